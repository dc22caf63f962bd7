"""Measure the latency of a library: warm-up by time, percentiles, spread, the machine's peak beside it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.core.diagnostics import HostError, TkError
from compiler.core.progress import Progress, silent
from compiler.core.settings import load_settings, usable_processors
from compiler.runtime.loader import Context, Model
from compiler.runtime.tensors import Array
from compiler.targets import get_target
from compiler.verify.check import bound_arrays, checked_model
from compiler.verify.device import EMULATOR, load
from compiler.verify.inputs import read_feeds
from compiler.verify.peak import peak_gflops
from compiler.verify.reference import OnnxRuntime, has_onnxruntime
from compiler.verify.report import BenchReport, BenchRequest, EngineTimes, KernelTime

_FEWEST_RUNS = 10
_MOST_RUNS = 200_000
_BLOCK_SECONDS = 0.25
_CALM_SPREAD = 0.15
_PROFILE_RUNS = 20
_NORMAL_95 = 1.96

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds; `low` to `high` is the confidence interval of p50; `spread` is (p90 - p10) / p50."""

    p50: float
    p90: float
    p99: float
    low: float
    high: float
    spread: float
    runs: int

    @property
    def noisy(self) -> str:
        """Why the times decide nothing; empty where they do."""
        if self.spread <= _CALM_SPREAD:
            return ""
        return f"times spread over {100 * self.spread:.0f} % of the median (p10 to p90): the machine is busy"


def bench_library(request: BenchRequest, *, progress: Progress = silent) -> BenchReport:
    """Carry out `request` in this process.

    `progress` is told between measurements which part of them is done. Raises HostError if onnxruntime is
    asked for and missing, BadInputError for files that cannot be read.
    """
    library = load(request.library, device=request.device)
    context = library.context(request.threads)
    place = _place(library, context, request)
    feeds = read_feeds(library.inputs, (), request.seed)
    runs: dict[str, Run] = {"tk": context.bind(feeds).run}
    baseline_threads = place.threads or usable_processors()
    other = _other_engine(request, baseline_threads, feeds)
    if other is not None:
        runs[other[0]] = other[1]
    measured = measure(runs, warmup=request.warmup, seconds=request.seconds, progress=progress)
    peak, warnings = (None, ()) if place.threads is None else _peak(place.threads)
    mine = measured["tk"]
    flops = library.manifest.get("flops")
    rate = None if not flops else flops / mine.p50 * 1e-6
    return BenchReport(
        library=request.library,
        target=str(library.manifest.get("target", "")),
        threads=place.threads,
        runs=mine.runs,
        p50_ms=mine.p50,
        p90_ms=mine.p90,
        p99_ms=mine.p99,
        spread=mine.spread,
        gflops=rate,
        peak_gflops=peak,
        percent_of_peak=_percent(rate, peak),
        baseline=None
        if other is None
        else _times(other[0], baseline_threads, measured[other[0]], flops, peak),
        kernels=kernel_times(library, context, feeds) if request.profile else (),
        warnings=tuple(filter(None, (*place.warnings, *warnings, mine.noisy))),
        device=library.device,
        low_ms=mine.low,
        high_ms=mine.high,
        noisy=mine.noisy,
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a library runs: `threads` of this machine's cores, None where its kernels do not run on them."""

    threads: int | None
    warnings: tuple[str, ...] = ()


def _place(library: Model, context: Context, request: BenchRequest) -> _Place:
    if not library.device:
        return _Place(context.threads)
    unused = "--threads has no use here: the device's driver decides" if request.threads is not None else ""
    if (request.device or load_settings().device) == EMULATOR:
        slow = "the emulator looks after every access: its times say nothing about a GPU's"
        return _Place(None, tuple(filter(None, (unused, slow))))
    manifest = library.manifest
    facts = get_target(str(manifest.get("target", "")), str(manifest.get("arch", ""))).facts
    warnings = (unused,) if unused else ()
    return _Place(None if facts.binds_threads else usable_processors(), warnings)


def measure(
    runs: Mapping[str, Run], *, warmup: float, seconds: float, progress: Progress = silent
) -> dict[str, Percentiles]:
    """Time each of `runs` for `seconds`, in turns of a quarter of a second after `warmup` seconds each.

    Turns let all of them see the same state of a shared machine; the first run of a turn, which finds the
    caches full of the other's data, does not count unless there is only one engine.
    """
    progress("warming up", 0, 0)
    for run in runs.values():
        _repeat(run, warmup, fewest=1)
    times: dict[str, list[float]] = {name: [] for name in runs}
    spent = 0.0
    while spent < seconds or min(map(len, times.values())) < _FEWEST_RUNS:
        for name, run in runs.items():
            if len(runs) > 1:
                run()
            times[name] += _repeat(run, min(_BLOCK_SECONDS, seconds), fewest=1)
        spent += min(_BLOCK_SECONDS, seconds)
        progress("measuring", min(1.0, spent / seconds, min(map(len, times.values())) / _FEWEST_RUNS), 1.0)
    return {name: percentiles(one) for name, one in times.items()}


def percentiles(seconds: list[float]) -> Percentiles:
    """Percentiles of wall times."""
    p10, p50, p90, p99 = (float(one) for one in np.percentile(np.asarray(seconds) * 1e3, (10, 50, 90, 99)))
    low, high = median_interval([one * 1e3 for one in seconds])
    return Percentiles(p50, p90, p99, low, high, spread=(p90 - p10) / p50, runs=len(seconds))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Bounds that hold the median of independent values in 95 of 100 cases: two of the values in order.

    How many values lie below the median is binomial, of n and 1/2; its normal approximation gives the ranks
    (Conover, Practical Nonparametric Statistics, 3rd ed., 3.2).
    """
    ordered, count = sorted(values), len(values)
    reach = _NORMAL_95 * math.sqrt(count) / 2
    first, last = math.ceil(count / 2 - reach), math.ceil(count / 2 + reach)
    return ordered[max(0, first - 1)], ordered[min(count, last) - 1]


def kernel_times(library: Model, context: Context, feeds: Mapping[str, Array]) -> tuple[KernelTime, ...]:
    """Median time of every kernel over some profiled inferences, the slowest first."""
    samples: dict[int, list[float]] = {}
    calls: dict[int, int] = {}
    for _ in range(_PROFILE_RUNS):
        totals: dict[int, float] = {}
        calls = {}
        for step in context.profile(feeds):
            totals[step.kernel] = totals.get(step.kernel, 0.0) + step.nanoseconds * 1e-6
            calls[step.kernel] = calls.get(step.kernel, 0) + 1
        for kernel, ms in totals.items():
            samples.setdefault(kernel, []).append(ms)
    facts = library.manifest.get("kernels", [])
    found = [
        _kernel_time(kernel, calls[kernel], statistics.median(ms), facts) for kernel, ms in samples.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.ms))


def _kernel_time(kernel: int, calls: int, ms: float, facts: list[dict[str, Any]]) -> KernelTime:
    """Rates count all calls of the kernel: the manifest's numbers are those of one call."""
    fact = facts[kernel] if kernel < len(facts) else {}
    rates = [
        fact.get(name, 0) * calls / ms * 1e-6 if ms and fact.get(name) else None
        for name in ("flops", "bytes")
    ]
    return KernelTime(
        kernel=kernel,
        calls=calls,
        ms=ms,
        gflops=rates[0],
        gbytes_per_s=rates[1],
        nodes=tuple(fact.get("nodes", ())),
    )


def _repeat(run: Run, seconds: float, fewest: int) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < fewest or (time.perf_counter() < end and len(times) < _MOST_RUNS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return times


def _other_engine(request: BenchRequest, threads: int, feeds: Mapping[str, Array]) -> tuple[str, Run] | None:
    if request.baseline is None:
        return None
    if not has_onnxruntime():
        raise HostError(
            "onnxruntime is not installed", where="--baseline", hint="pip install 'tk-toolchain[verify]'"
        )
    proto = checked_model(request.baseline)
    engine = OnnxRuntime(request.baseline, threads)
    given = {**feeds, **bound_arrays(proto, request.binds)}
    return engine.name, lambda: engine.run(given)


def _peak(threads: int) -> tuple[float | None, tuple[str, ...]]:
    try:
        return peak_gflops(threads, load_settings()), ()
    except TkError as error:
        return None, (f"this machine's peak was not measured: {error.what}",)


def _times(
    engine: str, threads: int, one: Percentiles, flops: float | None, peak: float | None
) -> EngineTimes:
    rate = None if not flops else flops / one.p50 * 1e-6
    return EngineTimes(
        engine,
        one.p50,
        one.p90,
        one.p99,
        one.runs,
        threads,
        rate,
        _percent(rate, peak),
        low_ms=one.low,
        high_ms=one.high,
        spread=one.spread,
        noisy=one.noisy,
    )


def _percent(rate: float | None, peak: float | None) -> float | None:
    return None if rate is None or not peak else 100.0 * rate / peak
