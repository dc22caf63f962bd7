"""One point of a workload's design space, made: decisions in, a kernel's text out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from compiler.core.diagnostics import TkError
from compiler.core.files import sha256_bytes
from compiler.core.passes import run_passes
from compiler.core.target import TargetFacts
from compiler.loops.ir import Func
from compiler.loops.text import print_func
from compiler.lower import lowering
from compiler.render.launch import Launch
from compiler.schedule.chooser import Chooser, Option, RecordingChooser
from compiler.schedule.known_steps import KnownSteps
from compiler.schedule.rules import schedule_func
from compiler.schedule.rules.estimate import form_seconds
from compiler.schedule.trace import Trace
from compiler.stages.kernels import Kernel, print_kernel
from compiler.stages.tuned import Decisions
from compiler.stages.workload import Workload
from compiler.targets import Target


@dataclass(frozen=True)
class KernelCandidate:
    """A kernel as a chooser wanted it.

    decisions: all that were asked for, in order, the form first; offered: what each could have been.
    lowered, text: the kernel, number 0; scratch_bytes, launches: what it needs, as a `Kernel` has it.
    """

    workload: Workload
    decisions: Decisions
    offered: Mapping[str, tuple[Option, ...]]
    trace: Trace
    scheduled: Func
    lowered: Func
    text: str
    scratch_bytes: int = 0
    launches: tuple[Launch, ...] = ()

    @property
    def kernel(self) -> Kernel:
        """As a compile has it, with number 0."""
        func, layouts = self.workload.work(self.decisions)
        return Kernel(
            number=0,
            func=func,
            layouts=dict(layouts),
            trace=self.trace,
            scheduled=self.scheduled,
            lowered=self.lowered,
            text=self.text,
            scratch_bytes=self.scratch_bytes,
            workload=self.workload,
            launches=self.launches,
            decisions=self.decisions,
        )

    @cached_property
    def program(self) -> str:
        """The digest of its lowered loops: the same for decisions that make the same kernel."""
        return program_digest(self.lowered)


def program_digest(lowered: Func) -> str:
    """What tells whether rules still make the kernel that was measured of the same decisions."""
    return sha256_bytes(print_func(lowered).encode())


class RejectedError(Exception):
    """No kernel came of a candidate's decisions; the cause is the error that a primitive or pass raised."""

    def __init__(self, decisions: Decisions, error: TkError) -> None:
        super().__init__(error.what)
        self.decisions, self.error = decisions, error


def make_candidate(
    workload: Workload, target: Target, chooser: Chooser, known: KnownSteps | None = None
) -> KernelCandidate:
    """Make the kernel that `chooser` wants; raises RejectedError where its decisions lead to none.

    known: steps of other candidates, which are not taken again.
    """
    recording = RecordingChooser(chooser)
    facts = target.facts
    if len(workload.forms) > 1:
        recording.choose(workload.decision, form_options(workload, facts))
    func, layouts = workload.work(recording.decisions)
    try:
        schedule = schedule_func(
            func, dict(layouts), facts, recording, custom=target.plugins.rules, known=known
        )
        lowered = run_passes(lowering(facts, custom=target.plugins.passes), schedule.func)
        printed = print_kernel(0, lowered, target)
    except TkError as error:
        raise RejectedError(recording.decisions, error) from error
    return KernelCandidate(
        workload,
        recording.decisions,
        recording.offered,
        schedule.trace,
        schedule.func,
        lowered,
        printed.text,
        printed.scratch_bytes,
        printed.launches,
    )


def form_options(workload: Workload, facts: TargetFacts) -> list[Option]:
    """The forms of a workload as a decision, with their estimated seconds."""
    works = [(func, dict(layouts)) for _, (func, layouts) in workload.forms]
    return [Option((number,), cost) for number, cost in enumerate(form_seconds(works, facts))]
