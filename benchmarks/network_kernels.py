"""A network's kernels, each against its bound on this machine.

A kernel's bound is the longer of two times: its multiply-adds at the measured peak of the vectors it was
compiled for, and its bytes at the measured rate of the caches that hold them. What the kernel before has
written lies in the cache that such an amount fits into; constants were last read one inference ago, so they
lie where all constants of the network fit. Operations count as the operators define them: a convolution by
Winograd does fewer and may exceed its bound.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import markdown_table, model_path, network_inputs

import compiler
from compiler.core.settings import load_settings
from compiler.core.target import TargetFacts
from compiler.loops.ir import Buffer
from compiler.loops.parser import parse_func
from compiler.loops.queries import static_shape
from compiler.runtime.loader import BoundRun
from compiler.targets import get_target
from compiler.verify.peak import Machine

SMALLEST_SHARE = 1.0  # per cent of the network's time
BARS = {"anchor": 85.0, "softmax": 40.0}
"""Per cent of the bound: of convolutions and products; of a softmax by itself."""

_FEWEST_PROFILES = 10
_MOST_SHOWN = 44  # letters of a kernel's operators
_SIZES = (16 << 10, 256 << 20)  # of working sets that are measured


@dataclass(frozen=True, slots=True)
class Work:
    """One call of a kernel: operations, bytes of constants, of tensors read, of results; a result's shape."""

    flops: int
    constants: int
    read: int
    written: int
    result: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The least seconds of a call, and what limits it: `peak`, or the cache that holds most of its bytes."""

    seconds: float
    name: str


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel, all its calls together; rates in GFLOP/s and GB/s; `asked` is None where nothing is."""

    operators: str
    node: str
    result: str
    calls: int
    ms: float
    share: float
    gflops: float
    gbytes_per_s: float
    bound: str
    percent: float
    asked: float | None

    @property
    def missed(self) -> bool:
        return self.asked is not None and self.percent < self.asked


class Rates:
    """This machine's rates with vectors of the compiled width, each measured when it is first asked for."""

    def __init__(self, facts: TargetFacts, threads: int) -> None:
        self._machine = Machine(load_settings(), facts.vector_bits)
        self._caches = {"L1": facts.l1.bytes, "L2": facts.l2.bytes, "L3": facts.l3.bytes}
        self._threads = threads
        self._memory: dict[tuple[str, int], float] = {}
        self.flops = self._machine.flops(threads)

    def read(self, size: int) -> float:
        """Bytes a second that all threads read together of `size` bytes."""
        return self._rate("read", size)

    def copy(self, size: int) -> float:
        """Bytes a second read and written, half each."""
        return self._rate("copy", size)

    def cache(self, size: int) -> str:
        """What holds `size` bytes of all threads."""
        part = size // self._threads
        return next((name for name, held in self._caches.items() if part <= held), "memory")

    def _rate(self, kind: Any, size: int) -> float:
        rounded = 1 << max(0, size // self._threads - 1).bit_length()
        key = kind, min(max(rounded, _SIZES[0]), _SIZES[1])
        if key not in self._memory:
            self._memory[key] = self._machine.memory(kind, key[1], threads=self._threads, seconds=0.2)
        return self._memory[key]


@dataclass(frozen=True, slots=True)
class Measured:
    """A network's kernels, the slowest first; their least times together, and the least of an inference."""

    rows: tuple[Row, ...]
    kernels_ms: float
    whole_ms: float
    peak_gflops: float

    @property
    def shown(self) -> tuple[Row, ...]:
        """The kernels that take more than the smallest share."""
        return tuple(one for one in self.rows if one.share > SMALLEST_SHARE)

    @property
    def missed(self) -> tuple[Row, ...]:
        """Those of them that are below what is asked."""
        return tuple(one for one in self.shown if one.missed)


def measure(name: str, *, arch: str, threads: int, seconds: float, directory: Path) -> Measured:
    """Compile a network of the zoo for `arch`, by default this machine's, and profile it for so long."""
    model = model_path(name, directory)
    output = model.with_suffix(f".{arch}.so" if arch else ".so")
    compiler.compile_model(model, compiler.CompileOptions(output=output, target="cpu", arch=arch or None))
    library = compiler.load(output)
    bound = library.context(threads).bind(network_inputs(name))
    steps, whole = _least_times(bound, seconds)
    rates = Rates(get_target(f"cpu:{arch}" if arch else "cpu").facts, threads)
    manifest = library.manifest
    rows = rows_of(manifest["kernels"], steps, rates, manifest["constant_bytes"])
    return Measured(tuple(rows), sum(ms for _, ms in steps), whole, rates.flops / 1e9)


def _least_times(bound: BoundRun, seconds: float) -> tuple[list[tuple[int, float]], float]:
    """Kernel and least milliseconds of every step, and the least of whole runs without a profile."""
    bound.run()
    least, whole, runs = [math.inf] * len(bound.profile()), math.inf, 0
    end = time.perf_counter() + seconds
    kernels: list[int] = []
    while runs < _FEWEST_PROFILES or time.perf_counter() < end:
        profile = bound.profile()
        kernels = [step.kernel for step in profile]
        least = [min(ms, step.nanoseconds * 1e-6) for ms, step in zip(least, profile, strict=True)]
        started = time.perf_counter()
        bound.run()
        whole, runs = min(whole, (time.perf_counter() - started) * 1e3), runs + 1
    return list(zip(kernels, least, strict=True)), whole


def rows_of(
    kernels: Sequence[Mapping[str, Any]], steps: Sequence[tuple[int, float]], rates: Rates, constants: int
) -> list[Row]:
    """The table's rows, the slowest first; `constants` are the bytes of all of the network's."""
    times: dict[int, list[float]] = {}
    for number, ms in steps:
        times.setdefault(number, []).append(ms)
    total = sum(ms for _, ms in steps)
    rows = [
        _row(kernels[number], len(some), sum(some), 100.0 * sum(some) / total, rates, constants)
        for number, some in times.items()
    ]
    return sorted(rows, key=lambda row: -row.ms)


def _row(fact: Mapping[str, Any], calls: int, ms: float, share: float, rates: Rates, constants: int) -> Row:
    work = work_of(fact)
    bound = bound_of(work, rates, constants)
    moved = work.constants + work.read + work.written
    operators = fact["ops"]
    softmax = BARS["softmax"] if operators == ["Softmax"] else None
    return Row(
        _shown(operators),
        fact["nodes"][0] if fact["nodes"] else "",
        work.result,
        calls,
        ms,
        share,
        calls * work.flops / ms * 1e-6,
        calls * moved / ms * 1e-6,
        bound.name,
        100.0 * calls * bound.seconds * 1e3 / ms,
        BARS["anchor"] if fact["kind"] == "anchor" else softmax,
    )


def work_of(fact: Mapping[str, Any]) -> Work:
    """What a kernel of the manifest does; of a table that Gather reads, as much as there are results."""
    func = parse_func(fact["func"])
    written = sum(map(_bytes, func.results))
    weights = [_bytes(one) for one in func.inputs if one.scope == "constant"]
    if "Gather" in fact["ops"]:
        weights = [min(one, written) for one in weights]
    read = sum(_bytes(one) for one in func.inputs if one.scope != "constant")
    shape = "x".join(map(str, static_shape(func.results[0])))
    return Work(fact["flops"], sum(weights), read, written, shape)


def _bytes(buffer: Buffer) -> int:
    return math.prod(static_shape(buffer)) * buffer.dtype.bits // 8


def bound_of(work: Work, rates: Rates, constants: int) -> Bound:
    """The least time that the machine's rates allow."""
    data = work.read + work.written
    rate = rates.copy(data) if 3 * work.written >= data else rates.read(data)
    from_memory, from_cache = work.constants / rates.read(constants), data / rate
    computed = work.flops / rates.flops
    if computed >= from_memory + from_cache:
        return Bound(computed, "peak")
    name = rates.cache(constants) if from_memory > from_cache else rates.cache(data)
    return Bound(from_memory + from_cache, name)


def _shown(operators: Sequence[str]) -> str:
    """Operators in their order, repeated ones once with a count."""
    counts = Counter(operators)
    text = " ".join(name if many == 1 else f"{many}x{name}" for name, many in counts.items())
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def table(measured: Measured) -> str:
    """The kernels above the smallest share; `<` marks those below what is asked of them; their sum."""
    head = ["kernel", "node", "result", "calls", "ms", "share", "GFLOP/s", "GB/s", "bound", "% of bound", ""]
    rows = markdown_table(
        head,
        [
            [
                one.operators,
                one.node,
                one.result,
                str(one.calls),
                f"{one.ms:.3f}",
                f"{one.share:.1f}",
                f"{one.gflops:.1f}",
                f"{one.gbytes_per_s:.1f}",
                one.bound,
                f"{one.percent:.0f}",
                "<" if one.missed else "",
            ]
            for one in measured.shown
        ],
    )
    lost = sum(one.ms * (1.0 - one.percent / 100.0) for one in measured.missed)
    return (
        f"{rows}\n\n{measured.kernels_ms:.2f} ms in {len(measured.rows)} kernels, {measured.whole_ms:.2f} ms "
        f"an inference; peak {measured.peak_gflops:.0f} GFLOP/s. {len(measured.missed)} kernels are below "
        f"what is asked, together {lost:.2f} ms above their bounds."
    )
