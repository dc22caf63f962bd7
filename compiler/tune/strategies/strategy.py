"""Strategies: which candidates of a workload are measured next."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from typing import Protocol

from compiler.schedule.chooser import AnalyticChooser, Chooser, RandomChooser, ReplayChooser
from compiler.stages.tuned import Decisions
from compiler.tune.candidate import KernelCandidate
from compiler.tune.record import Measured
from compiler.tune.strategies.space import Space, Tried
from compiler.tune.strategies.tree import FirstChooser, OpenChooser


class Strategy(Protocol):
    """Says what to measure next, and hears what came of it.

    space: what is searched; it counts what was refused.
    """

    space: Space

    def propose(self, count: int) -> list[KernelCandidate]:
        """So many candidates that are new, by their programs; fewer, and then none, at the space's end."""
        ...

    def learn(self, tried: Tried, measured: Measured) -> None:
        """Hear of a measurement: of what was proposed, or of what a database has from before."""
        ...

    def expected(self, candidate: KernelCandidate) -> float | None:
        """Seconds that a candidate was expected to take when it was proposed; None where nobody knew."""
        ...


FRUITLESS = 8
"""Schedules that are made for each one that is wanted, at most: a space of many decisions may hold few
kernels, and to go through all of it would take longer than it is worth."""


class Sequential:
    """A strategy that makes one candidate after the other: the default schedule, guesses, then its own.

    guesses: decisions to begin with, as those of a near hit. patience: as FRUITLESS.
    """

    patience = FRUITLESS

    def __init__(self, space: Space, guesses: Sequence[Decisions] = ()) -> None:
        self.space = space
        self._first: Iterator[Chooser] = iter(
            [AnalyticChooser(), *(ReplayChooser(item, AnalyticChooser()) for item in guesses)]
        )

    def propose(self, count: int) -> list[KernelCandidate]:
        """See `Strategy`."""
        found = self.begin(count)
        for _ in range(self.patience * count):
            chooser = self.chooser() if len(found) < count and not self.space.is_exhausted else None
            if chooser is None:
                break
            candidate = self.space.make(chooser)
            if candidate is not None:
                found.append(candidate)
        return found

    def begin(self, count: int) -> list[KernelCandidate]:
        """Of the default schedule and the guesses so many as are new, and were not proposed yet."""
        found: list[KernelCandidate] = []
        while len(found) < count and (chooser := next(self._first, None)) is not None:
            candidate = self.space.make(chooser)
            if candidate is not None:
                found.append(candidate)
        return found

    def learn(self, tried: Tried, measured: Measured) -> None:
        """See `Strategy`."""
        self.space.tell(tried, measured)

    def expected(self, candidate: KernelCandidate) -> float | None:  # noqa: ARG002 - of the interface
        """See `Strategy`."""
        return None

    def chooser(self) -> Chooser | None:
        """What makes the next candidate; None when there is none. The space is not exhausted."""
        raise NotImplementedError


class RandomSearch(Sequential):
    """Any schedule that was not made, each decision's open options with the same probability."""

    def __init__(self, space: Space, seed: int, guesses: Sequence[Decisions] = ()) -> None:
        super().__init__(space, guesses)
        self._source = random.Random(seed)  # noqa: S311 - a search

    def chooser(self) -> Chooser:
        return OpenChooser(self.space.tree, RandomChooser(self._source))


class ExhaustiveSearch(Sequential):
    """Every schedule, in the order in which the rules offer them, depth first."""

    patience = sys.maxsize

    def chooser(self) -> Chooser:
        return OpenChooser(self.space.tree, FirstChooser())


class ReplaySearch(Sequential):
    """Recorded decisions only, in the order given: those of a database, the best ones first."""

    def chooser(self) -> None:
        return None
