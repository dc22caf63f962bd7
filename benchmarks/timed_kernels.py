"""Times of candidates, kept: each one is built and timed once, on one thread, whoever asks for it.

What counts is the thread's own time, of which one in ten of many runs takes less: others use the machine,
too, and the clock of a shared host at times says less than the processor can do.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from compiler.core.compilers import run_compiler
from compiler.core.files import write_atomic
from compiler.core.settings import load_settings, usable_processors
from compiler.loops.queries import static_shape
from compiler.targets import Target
from compiler.targets.build import compile_object
from compiler.tune.candidate import KernelCandidate

_HARNESS = """
#include <algorithm>
#include <time.h>
#include <vector>
#include "tk_plan.h"
static unsigned char *scratch_of(int which) {
  static std::vector<unsigned char> memory[2];
  memory[which].resize(SCRATCH + 64);
  auto place = reinterpret_cast<uintptr_t>(memory[which].data());
  return reinterpret_cast<unsigned char *>((place + 63) / 64 * 64);
}
struct tk_exec { int64_t symbols[8]; };
extern "C" void tk_parallel(tk_exec *, tk_body body, void *const *bufs, const int64_t *env, int64_t extent) {
  if (extent > 0) body(bufs, env, 0, extent, scratch_of(0), 0);
}
extern "C" unsigned char *tk_scratch(tk_exec *) { return scratch_of(1); }
extern "C" int tk_threads(const tk_exec *) { return 1; }
extern "C" const int64_t *tk_symbols(const tk_exec *exec) { return exec->symbols; }
extern "C" void tk_k0(void *const *bufs, tk_exec *exec);
static double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}
extern "C" __attribute__((visibility("default"))) double low(void *const *bufs, double seconds) {
  tk_exec exec = {};
  std::vector<double> took;
  double spent = 0;
  for (int run = 0; run < 5 || spent < seconds; ++run) {
    double begin = now();
    tk_k0(bufs, &exec);
    took.push_back(now() - begin);
    spent += took.back();
  }
  auto tenth = took.begin() + took.size() / 10;
  std::nth_element(took.begin(), tenth, took.end());
  return *tenth;
}
"""


@dataclass
class TimedKernels:
    """Low seconds of a workload's candidates by their programs, in a file and beside built kernels.

    known_only: nothing is built and timed; a candidate without a time ends the program.
    """

    name: str
    directory: Path
    target: Target
    seconds: dict[str, float] = field(default_factory=dict)
    decisions: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    known_only: bool = False

    def __post_init__(self) -> None:
        if self.file.exists():
            data = json.loads(self.file.read_text(encoding="utf-8"))
            self.seconds, self.decisions = data["seconds"], data["decisions"]

    @property
    def file(self) -> Path:
        return self.directory / f"{self.name}.json"

    def save(self) -> None:
        data = {"seconds": self.seconds, "decisions": self.decisions}
        write_atomic(self.file, json.dumps(data, separators=(",", ":")))

    def of(self, candidate: KernelCandidate) -> float:
        """Its seconds: those on file, else measured now."""
        key = candidate.program[:16]
        if key not in self.seconds:
            if self.known_only:
                raise SystemExit(f"{self.file} has no time of {key}: record with these rules first")
            self.time(candidate)
        return self.seconds[key]

    def build(self, candidates: Sequence[KernelCandidate]) -> None:
        """Build those that have no time yet, so many at once as there are processors; nothing is timed."""
        made = {one.program[:16]: one for one in candidates if one.program[:16] not in self.seconds}
        if made and not self.known_only:
            with ThreadPoolExecutor(usable_processors()) as pool:
                list(pool.map(self._built, made, made.values()))

    def time(self, candidate: KernelCandidate, turns: int = 2, seconds: float = 0.03) -> None:
        """Build it if it is new, and time it some turns more."""
        key = candidate.program[:16]
        call = ctypes.CDLL(str(self._built(key, candidate))).low
        call.restype = ctypes.c_double
        arrays = buffers_of(candidate)
        pointers = (ctypes.c_void_p * len(arrays))(*(item.ctypes.data for item in arrays))
        found = [call(pointers, ctypes.c_double(seconds)) for _ in range(turns)]
        self.seconds[key] = min(*found, self.seconds.get(key, 1e9))
        self.decisions[key] = {name: list(value) for name, value in candidate.decisions.items()}

    def _built(self, key: str, candidate: KernelCandidate) -> Path:
        directory = self.directory / self.name
        path = directory / f"{key}.so"
        if path.exists():
            return path
        cxx = self.target.cxx(load_settings())
        options = self.target.flags(cxx)
        harness = _HARNESS.replace("SCRATCH", str(max(candidate.scratch_bytes, 64)))
        names = []
        for name, text in (("kernel", candidate.text), ("harness", harness)):
            write_atomic(directory / f"{key}.{name}.o", compile_object(cxx, options, name, text))
            names.append(f"{key}.{name}.o")
        argv = [cxx.path, "-shared", *names, "-lm", "-o", f"{key}.so"]
        run_compiler(argv, directory, "the C++ compiler cannot link one kernel")
        for name in names:
            (directory / name).unlink()
        return path


_ARRAYS: dict[tuple[int, int], np.ndarray] = {}


def buffers_of(candidate: KernelCandidate) -> Sequence[np.ndarray]:
    """Memory for its parameters, the same for all candidates: normal numbers, aligned as the runtime does."""
    made = []
    for number, item in enumerate(candidate.lowered.params):
        (size,) = static_shape(item)
        key = number, size
        if key not in _ARRAYS:
            raw = np.zeros(size * 4 + 64, np.uint8)
            start = -raw.ctypes.data % 64
            _ARRAYS[key] = raw[start : start + size * 4].view(np.float32)
            _ARRAYS[key][:] = np.random.default_rng(number).standard_normal(size, np.float32)
        made.append(_ARRAYS[key])
    return made
