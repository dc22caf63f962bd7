"""The design space of one workload on one target, and what of it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from compiler.schedule.chooser import AnalyticChooser, Chooser, RecordingChooser, ReplayChooser
from compiler.stages.tuned import Decisions
from compiler.stages.workload import Workload
from compiler.targets import Target
from compiler.tune.candidate import KernelCandidate, RejectedError, make_candidate
from compiler.tune.record import OK, Measured
from compiler.tune.strategies.tree import DecisionTree

LIMIT = "limit"
"""The class of what no kernel came of."""


class Tried(Protocol):
    """What was tried before: a candidate, or a record of one."""

    @property
    def decisions(self) -> Decisions: ...

    @property
    def program(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Rejection:
    """Decisions of which no kernel came, and what to record of them."""

    decisions: Decisions
    measured: Measured


Make = Callable[[Workload, Target, Chooser], KernelCandidate]


class Space:
    """Makes candidates of a workload, none of them twice.

    make: as `make_candidate`. refused: how often schedules were refused, by the class of the error;
    first_refusals: why, the first time.
    """

    def __init__(self, workload: Workload, target: Target, make: Make = make_candidate) -> None:
        self.workload, self.target, self._make = workload, target, make
        self.tree = DecisionTree()
        self.refused: Counter[str] = Counter()
        self.first_refusals: dict[str, str] = {}
        self._programs: set[str] = set()
        self._known_refusals: set[frozenset[tuple[str, tuple[int, ...]]]] = set()
        self._rejections: list[Rejection] = []

    @property
    def is_exhausted(self) -> bool:
        """Whether there is nothing left that was not made."""
        return self.tree.is_closed

    def make(self, chooser: Chooser) -> KernelCandidate | None:
        """The kernel that a chooser wants; None where none comes of it, and where it is known already."""
        recording = RecordingChooser(chooser)
        try:
            candidate = self._make(self.workload, self.target, recording)
        except RejectedError as error:
            self.tree.add(recording.decisions, recording.offered)
            self._reject(error)
            return None
        self.tree.add(recording.decisions, recording.offered)
        if candidate.program in self._programs:
            return None
        self._programs.add(candidate.program)
        return candidate

    def revisit(self, decisions: Decisions) -> KernelCandidate | None:
        """What decisions make that were tried before; None where no kernel comes of them any more."""
        recording = RecordingChooser(ReplayChooser(decisions, AnalyticChooser()))
        try:
            candidate = self._make(self.workload, self.target, recording)
        except RejectedError:
            return None
        self.tree.add(recording.decisions, recording.offered)
        self._programs.add(candidate.program)
        return candidate

    def tell(self, tried: Tried, measured: Measured) -> None:
        """Something was tried: by this search, or earlier, as a database says; it is not made again."""
        if tried.program:
            self._programs.add(tried.program)
        elif measured.status != OK:
            self._known_refusals.add(frozenset(tried.decisions.items()))

    def take_rejections(self) -> list[Rejection]:
        """What was refused since the last call."""
        taken, self._rejections = self._rejections, []
        return taken

    def _reject(self, error: RejectedError) -> None:
        kind, message = type(error.error).__name__, error.error.what
        self.refused[kind] += 1
        self.first_refusals.setdefault(kind, message)
        key = frozenset(error.decisions.items())
        if key not in self._known_refusals:
            self._known_refusals.add(key)
            self._rejections.append(Rejection(error.decisions, Measured(LIMIT, message=f"{kind}: {message}")))
