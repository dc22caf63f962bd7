"""Measure the latency of a library beside others: in turns, by kernels, several contexts at once."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from compiler.core.diagnostics import BadInputError, HostError, TkError
from compiler.core.progress import Progress, silent
from compiler.core.settings import EMULATORS, load_settings, usable_processors
from compiler.runtime.loader import BoundRun, Context, Model
from compiler.runtime.manifest import manifest_of
from compiler.runtime.tensors import Array
from compiler.targets import get_target
from compiler.verify.access import access_of
from compiler.verify.access_report import AccessReport
from compiler.verify.check import bound_arrays, checked_model
from compiler.verify.device import load
from compiler.verify.inputs import read_feeds
from compiler.verify.peak import peak_gflops
from compiler.verify.reference import OnnxRuntime, has_onnxruntime
from compiler.verify.report import BenchReport, BenchRequest, DeviceTimes, EngineTimes, KernelTime
from compiler.verify.sizes import free_names, plan_of, samples_of, sizes_of
from compiler.verify.timing import Percentiles, Run, difference, measure, throughput

_PROFILE_RUNS = 20
_T = TypeVar("_T")


def bench_library(request: BenchRequest, *, progress: Progress = silent) -> BenchReport:
    """Carry out `request` in this process.

    `progress` is told between measurements which part of them is done. Raises HostError if onnxruntime is
    asked for and missing, BadInputError for files that cannot be read, and for libraries to compare with
    that have other inputs.
    """
    library = load(request.library, device=request.device)
    contexts = [library.context(request.threads) for _ in range(request.contexts)]
    context = contexts[0]
    place = _place(library, context, request)
    feeds = _feeds(library, request)
    bound = [one.bind(feeds) for one in contexts]
    others = _others(request, library, place, feeds)
    runs = {"": bound[0].run, **{f"{i}": one.run for i, one in enumerate(others)}}
    measured = measure(runs, warmup=request.warmup, seconds=request.seconds, progress=progress)
    at_once = (
        throughput([one.run for one in bound], seconds=request.seconds, progress=progress)
        if len(bound) > 1
        else None
    )
    peak, warnings = (None, ()) if place.threads is None else _peak(place.threads)
    access, uncounted = _access(request)
    mine = measured[""]
    manifest = library.manifest
    flops = plan_of(manifest, library.inputs, feeds).get("flops", 0)
    rates = _Rates(flops * samples_of(manifest, library.inputs, feeds), peak)
    times = [_times(one, measured[f"{i}"], rates, mine) for i, one in enumerate(others)]
    return BenchReport(
        library=request.library,
        target=str(manifest.get("target", "")),
        threads=place.threads,
        runs=mine.runs,
        p50_ms=mine.p50,
        p90_ms=mine.p90,
        p99_ms=mine.p99,
        spread=mine.spread,
        gflops=rates.gflops(mine),
        peak_gflops=peak,
        percent_of_peak=rates.percent(mine),
        baseline=next((one for one in times if one.library is None), None),
        kernels=kernel_times(library, context, feeds, request.seconds) if request.profile else (),
        warnings=tuple(filter(None, (*place.warnings, *warnings, mine.noisy, uncounted))),
        device=library.device,
        on_device=_on_device(bound[0], request) if library.device else None,
        low_ms=mine.low,
        high_ms=mine.high,
        noisy=mine.noisy,
        others=tuple(one for one in times if one.library is not None),
        throughput=at_once,
        model_sha256=str(manifest.get("model_sha256", "")),
        arch=str(manifest.get("arch", "")),
        access=access,
    )


def _access(request: BenchRequest) -> tuple[AccessReport | None, str]:
    """What accesses cost, in a profile by the emulator; or why that is not known."""
    if not (request.profile and _is_emulated(request)):
        return None, ""
    try:
        return access_of(request.library), ""
    except BadInputError as error:
        return None, f"{error.what}: {error.why}"


def _feeds(library: Model, request: BenchRequest) -> dict[str, Array]:
    sizes = sizes_of(library.manifest, library.inputs, request.dims, request.shapes)
    return read_feeds(library.inputs, (), request.seed, sizes=sizes)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a library runs: `threads` of this machine's cores, None where its kernels do not run on them."""

    threads: int | None
    warnings: tuple[str, ...] = ()


def _place(library: Model, context: Context, request: BenchRequest) -> _Place:
    if not library.device:
        return _Place(context.threads)
    unused = "--threads has no use here: the device's driver decides" if request.threads is not None else ""
    if _is_emulated(request):
        slow = "the emulator runs kernels on this machine's cores: its times say nothing about a GPU's"
        return _Place(None, tuple(filter(None, (unused, slow))))
    manifest = library.manifest
    facts = get_target(str(manifest.get("target", "")), str(manifest.get("arch", ""))).facts
    warnings = (unused,) if unused else ()
    return _Place(None if facts.binds_threads else usable_processors(), warnings)


def _on_device(run: BoundRun, request: BenchRequest) -> DeviceTimes | None:
    """What runs take by the device's clock; None where the library or the emulator has none."""
    if _is_emulated(request):
        return None
    found = list(filter(None, _several(run.measure, request.seconds)))
    if not found:
        return None
    kernels = statistics.median(one.kernels for one in found)
    return DeviceTimes(1e-6 * kernels, 1e-6 * statistics.median(one.with_copies for one in found))


def _several(measured: Callable[[], _T], seconds: float) -> Iterator[_T]:
    """Several measurements: once at least, and then as many as begin in this time, up to `_PROFILE_RUNS`."""
    end = time.monotonic() + seconds
    for number in range(_PROFILE_RUNS):
        if number and time.monotonic() > end:
            return
        yield measured()


def _is_emulated(request: BenchRequest) -> bool:
    return (request.device or load_settings().device) in EMULATORS


def kernel_times(
    library: Model, context: Context, feeds: Mapping[str, Array], seconds: float = math.inf
) -> tuple[KernelTime, ...]:
    """Median time of every kernel over some profiled inferences, the slowest first; ends after `seconds`."""
    times: dict[int, list[float]] = {}
    calls: dict[int, int] = {}
    for steps in _several(lambda: context.profile(feeds), seconds):
        totals: dict[int, float] = {}
        calls = {}
        for step in steps:
            totals[step.kernel] = totals.get(step.kernel, 0.0) + step.nanoseconds * 1e-6
            calls[step.kernel] = calls.get(step.kernel, 0) + 1
        for kernel, ms in totals.items():
            times.setdefault(kernel, []).append(ms)
    facts = library.manifest.get("kernels", [])
    batch = samples_of(library.manifest, library.inputs, feeds)
    found = [
        _kernel_time(kernel, calls[kernel], statistics.median(ms), facts, batch)
        for kernel, ms in times.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.ms))


def _kernel_time(kernel: int, calls: int, ms: float, facts: list[dict[str, Any]], samples: int) -> KernelTime:
    """Rates count all calls of the kernel: the manifest's numbers are those of one call, for one sample."""
    fact = facts[kernel] if kernel < len(facts) else {}
    rates = [
        fact.get(name, 0) * calls * samples / ms * 1e-6 if ms and fact.get(name) else None
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


@dataclass(frozen=True, slots=True)
class _Other:
    """Something that is measured in turns with the library."""

    engine: str
    run: Run
    threads: int | None
    library: Path | None = None
    device: str = ""


def _others(request: BenchRequest, library: Model, place: _Place, feeds: Mapping[str, Array]) -> list[_Other]:
    others = [_other_library(path, request, library, feeds) for path in request.compare]
    if request.baseline is not None:
        others.append(_onnxruntime(request.baseline, request, place, feeds))
    return others


def _other_library(path: Path, request: BenchRequest, library: Model, feeds: Mapping[str, Array]) -> _Other:
    target = str(manifest_of(path).get("target", ""))
    device = request.device if target == library.manifest.get("target") else None
    other = load(path, device=device)
    free = free_names(other.manifest)  # it may be for just one of the sizes
    dims = {name: extent for name, extent in request.dims.items() if name in free}
    theirs = _feeds(other, replace(request, dims=dims))
    ours, found = ({name: (one.shape, one.dtype) for name, one in some.items()} for some in (feeds, theirs))
    if ours != found:
        differing = sorted(name for name in {*ours, *found} if ours.get(name) != found.get(name))
        raise BadInputError(
            "a library to compare with has other inputs",
            where=str(path),
            why=f"{', '.join(differing)}: not as in {request.library.name}",
            hint="compare libraries of one model, compiled for the same shapes",
        )
    context = other.context(request.threads)
    threads = None if other.device else context.threads
    return _Other(f"tk {target}".strip(), context.bind(feeds).run, threads, path, other.device)


def _onnxruntime(model: Path, request: BenchRequest, place: _Place, feeds: Mapping[str, Array]) -> _Other:
    if not has_onnxruntime():
        raise HostError(
            "onnxruntime is not installed", where="--baseline", hint="pip install 'tk-toolchain[verify]'"
        )
    proto = checked_model(model)
    threads = place.threads or usable_processors()
    engine = OnnxRuntime(model, threads)
    given = {**feeds, **bound_arrays(proto, request.binds)}
    return _Other(engine.name, lambda: engine.run(given), threads)


def _peak(threads: int) -> tuple[float | None, tuple[str, ...]]:
    try:
        return peak_gflops(threads, load_settings()), ()
    except TkError as error:
        return None, (f"this machine's peak was not measured: {error.what}",)


@dataclass(frozen=True, slots=True)
class _Rates:
    """The model's operations, and this machine's peak; None where they are not known."""

    flops: float | None
    peak: float | None

    def gflops(self, one: Percentiles) -> float | None:
        return self.flops / one.p50 * 1e-6 if self.flops else None

    def percent(self, one: Percentiles) -> float | None:
        rate = self.gflops(one)
        return None if rate is None or not self.peak else 100.0 * rate / self.peak


def _times(other: _Other, one: Percentiles, rates: _Rates, mine: Percentiles) -> EngineTimes:
    return EngineTimes(
        other.engine,
        one.p50,
        one.p90,
        one.p99,
        one.runs,
        other.threads,
        rates.gflops(one),
        rates.percent(one),
        low_ms=one.low,
        high_ms=one.high,
        spread=one.spread,
        noisy=one.noisy,
        library=other.library,
        device=other.device,
        difference=difference(mine, one),
    )
