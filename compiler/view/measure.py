"""What a view says about speed: a short profile of the library, and the rates that bound its kernels."""

from __future__ import annotations

from pathlib import Path

from compiler.core.diagnostics import TkError
from compiler.core.progress import Progress
from compiler.core.settings import load_settings
from compiler.core.target import TargetFacts
from compiler.core.units import counted
from compiler.targets import Target
from compiler.verify.bench import bench_library
from compiler.verify.peak import Machine
from compiler.verify.report import BenchReport, BenchRequest
from compiler.view.kernels import told
from compiler.view.report import Profile, Roofline, Unseen, ViewRequest

_SECONDS = 0.5
_WARMUP_SECONDS = 0.2
_MEMORY_SECONDS = 0.3
_MOST_BYTES = 512 << 20

Speed = tuple[Profile | None, Roofline, tuple[Unseen, ...]]


def measure_speed(library: Path, target: Target, request: ViewRequest, progress: Progress) -> Speed:
    """Times of a short run and the rates beside them; what cannot be measured is told with its reason."""
    stated = stated_roofline(target.facts)
    if not request.profile:
        return None, stated, (Unseen("times", "no measurement was asked for (--no-profile)"),)
    asked = BenchRequest(
        library=library,
        threads=request.threads,
        seconds=_SECONDS,
        warmup=_WARMUP_SECONDS,
        profile=True,
        seed=request.seed,
        device=request.device,
    )
    progress("measuring", 0, 0)
    try:
        report = bench_library(asked)
    except TkError as error:
        return None, stated, (Unseen("times", f"the library does not run here: {told(error)}"),)
    profile = Profile(
        ms=report.p50_ms,
        runs=report.runs,
        threads=report.threads,
        device=report.device,
        kernels=report.kernels,
        warnings=report.warnings,
    )
    return profile, _measured_roofline(report, target.facts) or stated, ()


def stated_roofline(facts: TargetFacts) -> Roofline:
    """The rates of the target's facts: of one core, or of all units of a device."""
    units = facts.limit("units")
    of = f"{counted(units, 'unit')} of the device" if units else "one core"
    name = ":".join(filter(None, (facts.name, facts.microarchitecture or facts.arch)))
    return Roofline(
        gflops=facts.peak_flops * (units or 1) / 1e9,
        gbytes_per_s=facts.bandwidth * (units or 1) / 1e9,
        source=f"stated by the facts of target {name}, {of}; not measured",
    )


def _measured_roofline(report: BenchReport, facts: TargetFacts) -> Roofline | None:
    """This machine's rates with the threads of the profile; None where other hardware ran the kernels."""
    if report.threads is None or report.peak_gflops is None:
        return None
    size = max(min(4 * facts.l3.bytes, _MOST_BYTES) // report.threads, 2 * facts.l2.bytes)
    try:
        rate = Machine(load_settings()).memory("read", size, threads=report.threads, seconds=_MEMORY_SECONDS)
    except TkError:
        return None
    threads = counted(report.threads, "thread")
    return Roofline(report.peak_gflops, rate / 1e9, f"measured on this machine with {threads}")
