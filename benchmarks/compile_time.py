"""What a compile costs from an empty cache and from a full one: `tk compile` in a new process.

    python benchmarks/compile_time.py [--networks resnet50 densenet121]

Beside the seconds: the longest text of a kernel, what the C++ compiler takes for the slowest one (processor
time, one after the other), the peak memory of `tk` beside the constants, the library's size without them, and
the time from loading it to the first result.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support import ROOT, WORK, machine, markdown_table, model_path, network_inputs, save

import compiler
from compiler.core.process import run
from compiler.core.settings import child_environment, load_settings
from compiler.targets import get_target
from compiler.targets.build import compile_object
from compiler.targets.toolchain import find_cxx
from toolchain import zoo

# Seconds from an empty cache and from a full one.
COLD_BAR, CACHED_BAR = 15.0, 1.5
LINES_BAR, KERNEL_BAR = 3000, 5.0
MEMORY_BAR_BYTES = 10**9
CODE_BAR_BYTES = 2 << 20
_COMPILE = """
import resource, sys
from toolchain.start import main
try:
    main()
finally:
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    used = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    print(used, peak * 1024, file=sys.stderr)
"""
"""`tk`, and then as the last line of standard error its processor seconds and its peak memory in bytes.

Not `ru_maxrss`: a new program takes that over from the process that started it, here one that made models.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """Wall seconds of the two compiles and of the first one's stages, processor seconds, bytes, milliseconds.

    processor: seconds of the first compile on all cores; on a busy machine they tell more than `cold`.
    """

    network: str
    cold: float
    processor: float
    cached: float
    kernels: int
    stages: dict[str, float]
    longest_lines: int
    slowest_kernel: float
    memory_bytes: int
    code_bytes: int
    first_result_ms: float


def measure(name: str, models: Path, work: Path) -> Result:
    """Compile twice with a cache of its own, then load and run; then each kernel by itself."""
    model, library = model_path(name, models), work / f"{name}.so"
    seconds, measured = [], []
    for _ in range(2):
        started = time.perf_counter()
        measured.append(compile_in_child(work, str(model), "-o", str(library)))
        seconds.append(time.perf_counter() - started)
    first, processor, peak = measured[0]
    lines, slowest = _kernels(model, work)
    return Result(
        name,
        seconds[0],
        processor,
        seconds[1],
        first["kernels"],
        {one["name"]: one["seconds"] for one in first["stages"]},
        lines,
        slowest,
        peak - first["constant_bytes"],
        library.stat().st_size - first["constant_bytes"],
        _first_result(name, library),
    )


def compile_in_child(work: Path, *arguments: str) -> tuple[dict[str, Any], float, int]:
    """The report of `tk compile`, its processor seconds and its peak memory."""
    environment = {**child_environment(), "TK_CACHE_DIR": str(work / "cache"), "PYTHONPATH": str(ROOT)}
    done = run([sys.executable, "-c", _COMPILE, "compile", *arguments, "--json"], env=environment)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    *_, used, peak = done.stderr.split()
    return json.loads(done.stdout), float(used), int(peak)


def _kernels(model: Path, work: Path) -> tuple[int, float]:
    """(lines of the longest kernel, processor seconds that the C++ compiler takes for the slowest one)."""
    compile_in_child(work, str(model), "-o", str(work / "sources"), "--emit", "source")
    cxx, target = find_cxx(load_settings()), get_target(None, None)
    lines, slowest = 0, 0.0
    for source in sorted((work / "sources").glob("k*.cpp")):
        text = source.read_text(encoding="ascii")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        compile_object(cxx, target.flags(cxx), source.stem, text)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        slowest = max(slowest, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        lines = max(lines, text.count("\n"))
    return lines, slowest


def _first_result(name: str, library: Path) -> float:
    """Milliseconds from opening the library to the end of the first inference, on all processors."""
    inputs = network_inputs(name)
    started = time.perf_counter()
    with compiler.load(library) as model:
        model.run(inputs)
        return (time.perf_counter() - started) * 1e3


def main() -> None:
    """Print and save the table; exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="*", default=list(zoo.networks()), metavar="NAME")
    parser.add_argument("--models", type=Path, default=WORK / "models", help="where the networks are kept")
    arguments = parser.parse_args()
    results = []
    for name in arguments.networks:
        with compiler.private_directory("tk-compile-time") as work:
            results.append(measure(name, arguments.models, work))
        print(*_row(results[-1]), sep="  ", file=sys.stderr, flush=True)
    head = [
        "network",
        f"cold s (<= {COLD_BAR:.0f})",
        "processor s",
        f"cached s (<= {CACHED_BAR})",
        "kernels",
        f"longest, lines (<= {LINES_BAR})",
        f"slowest, s (<= {KERNEL_BAR:.0f})",
        f"memory MB (<= {MEMORY_BAR_BYTES // 10**6})",
        f"code KiB (<= {CODE_BAR_BYTES >> 10})",
        "first result ms",
        "slowest stages",
    ]
    text = markdown_table(head, [_row(one) for one in results])
    print(text)
    save("compile_time", {"machine": machine(), "results": [asdict(one) for one in results]}, text)
    raise SystemExit(any(map(_misses, results)))


def _row(one: Result) -> list[str]:
    slowest = sorted(one.stages.items(), key=lambda stage: -stage[1])[:3]
    return [
        one.network,
        f"{one.cold:.1f}",
        f"{one.processor:.1f}",
        f"{one.cached:.2f}",
        str(one.kernels),
        str(one.longest_lines),
        f"{one.slowest_kernel:.2f}",
        f"{one.memory_bytes / 1e6:.0f}",
        f"{one.code_bytes / 1024:.0f}",
        f"{one.first_result_ms:.0f}",
        ", ".join(f"{name} {seconds:.1f}" for name, seconds in slowest),
    ]


def _misses(one: Result) -> bool:
    measured = (
        (one.cold, COLD_BAR),
        (one.cached, CACHED_BAR),
        (one.longest_lines, LINES_BAR),
        (one.slowest_kernel, KERNEL_BAR),
        (one.memory_bytes, MEMORY_BAR_BYTES),
        (one.code_bytes, CODE_BAR_BYTES),
    )
    return any(value > bar for value, bar in measured)


if __name__ == "__main__":
    main()
