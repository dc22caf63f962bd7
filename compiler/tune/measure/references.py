"""What is right for a kernel: what its work gives before anybody scheduled it, on two inputs.

By the interpreter, which defines the meaning, where that takes moments; else by the same loops compiled as
they stand, for the host whatever the target; where that takes many seconds and the target is a device, by the
host's default schedule; where no compiler takes these, by the target's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.core.diagnostics import BuildError, TkError
from compiler.core.settings import Settings
from compiler.loops.ir import Func
from compiler.loops.queries import iterations
from compiler.loops.text import print_func
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.stages.workload import Workload
from compiler.targets import Target, get_target
from compiler.tune.candidate import RejectedError, make_candidate
from compiler.workbench.build import kernel_of, link_kernel

_INTERPRETED = 200_000
"""Iterations that the interpreter is asked for: about a second's."""
_PATIENT = 500_000_000
"""Iterations of loops as they stand that are waited for: a second or two."""
_SHORTEST = 64

Run = Callable[[Mapping[str, Any]], bool]
"""Carries out a request in a process of its own; false where that did not work."""


@dataclass(frozen=True, slots=True)
class RightResults:
    """The right results as the bytes of a file, and who computed them."""

    by: str
    results: bytes


def reference_of(
    workload: Workload, form: int, target: Target, settings: Settings, directory: Path, seed: int, run: Run
) -> RightResults | None:
    """The right results of one form of a workload; None where no way leads to them."""
    func, _ = workload.forms[form][1]
    path = directory / "reference.npz"
    for by, described in _ways(workload, form, target, settings, directory):
        request = {
            "do": "reference",
            "func": print_func(func),
            "by": described,
            "seed": seed,
            "threads": None,
            "results": str(path),
        }
        if run(request) and path.exists():
            return RightResults(by, path.read_bytes())
    return None


def _ways(
    workload: Workload, form: int, target: Target, settings: Settings, directory: Path
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    func, _ = workload.forms[form][1]
    work = sum(iterations(block.iters) for block in func.blocks())
    if work <= _INTERPRETED:
        yield "interpreter", None
    path = directory / "reference.so"
    host = target if target.device is None else get_target()
    if work > _PATIENT and target.device is not None:
        scheduled = schedule_func(func, {}, host.facts, AnalyticChooser()).func
        with suppress(BuildError, TkError):
            link_kernel(kernel_of(scheduled, scheduled, host), host, settings, path)
            yield "host schedule", {"library": str(path), "scheduled": print_func(scheduled)}
    try:
        link_kernel(kernel_of(func, func, host), host, settings, path)
        yield "unscheduled loops", {"library": str(path), "scheduled": print_func(func)}
    except (BuildError, TkError):
        pass  # what no compiler takes without a schedule
    try:
        chooser = ReplayChooser({workload.decision: (form,)}, AnalyticChooser())
        default = make_candidate(workload, target, chooser)
        link_kernel(default.kernel, target, settings, path)
        yield "default schedule", {"library": str(path), "scheduled": print_func(default.scheduled)}
    except (RejectedError, BuildError):
        pass


def sum_length(func: Func) -> int:
    """The lengths of all sums of a function together, as a tolerance takes it."""
    total = 0
    for block in func.blocks():
        if block.is_reduction:
            total += iterations([item for item in block.iters if item.kind == "reduce"])
    return max(_SHORTEST, total)
