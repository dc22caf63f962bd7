"""A candidate as a library of one kernel: what is made of it before it runs, here or on another machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler.core.diagnostics import BuildError
from compiler.core.settings import Settings
from compiler.loops.text import print_func
from compiler.targets import Target
from compiler.tune.candidate import KernelCandidate
from compiler.tune.record import Measured
from compiler.workbench.build import link_kernel


@dataclass(frozen=True, slots=True)
class BuiltCandidate:
    """A library, the scheduled function as text (how its parameters lie in memory), its form's number."""

    scheduled: str
    form: int
    library: Path


def build_candidate(
    candidate: KernelCandidate, target: Target, settings: Settings, path: Path
) -> BuiltCandidate:
    """Write the library of a candidate to `path`; raises BuildError and HostError."""
    link_kernel(candidate.kernel, target, settings, path)
    return BuiltCandidate(print_func(candidate.scheduled), form_of(candidate), path)


def form_of(candidate: KernelCandidate) -> int:
    """The number of the form that a candidate's work has."""
    (number,) = candidate.decisions.get(candidate.workload.decision, (0,))
    return number if 0 <= number < len(candidate.workload.forms) else 0


def failed_build(error: BuildError) -> Measured:
    """What becomes of a candidate that the compiler refuses: its first line that says what is wrong."""
    lines = (error.why or error.what).strip().splitlines()
    said = next((line for line in lines if "error" in line), lines[0] if lines else "")
    return Measured("build", message=said)
