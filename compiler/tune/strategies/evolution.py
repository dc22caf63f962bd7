"""Evolution: mutated and crossed decisions of the best candidates, ranked before they are made."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from compiler.schedule.chooser import AnalyticChooser, Chooser, RandomChooser, ReplayChooser
from compiler.stages.tuned import Decisions
from compiler.tune.candidate import KernelCandidate
from compiler.tune.record import OK, Measured
from compiler.tune.strategies.mutate import crossed, mutated
from compiler.tune.strategies.ranking import AnalyticRanking, Ranking
from compiler.tune.strategies.space import Space, Tried
from compiler.tune.strategies.strategy import FRUITLESS, Sequential
from compiler.tune.strategies.tree import OpenChooser, Value, Walk


@dataclass(frozen=True, slots=True)
class EvolutionRates:
    """Numbers of the search.

    analytic: candidates in the order of the analytic costs, at first. population, generations: decisions that
    are ranked for a batch, which costs no schedules. measured: share of the population that are the best
    candidates measured. mutation: probability; else two parents are crossed. random: share of a batch that
    is taken at random. made: candidates made, and ranked again, for each one proposed.
    """

    analytic: int = 8
    population: int = 128
    generations: int = 4
    measured: float = 0.2
    mutation: float = 0.85
    random: float = 0.05
    made: float = 2.0


T = TypeVar("T")
_Key = frozenset[tuple[str, Value]]


class Evolution(Sequential):
    """Improves on the best candidates, as a model ranks their offspring.

    ranking: the analytic order where there is no learned one.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        guesses: Sequence[Decisions] = (),
        ranking: Ranking | None = None,
        rates: EvolutionRates | None = None,
    ) -> None:
        super().__init__(space, guesses)
        self._source = random.Random(seed)  # noqa: S311 - a search
        self._ranking, self._rates = ranking or AnalyticRanking(), rates or EvolutionRates()
        self._analytic_left = self._rates.analytic
        self._own: dict[str, KernelCandidate] = {}  # proposed, by their programs; not heard of yet
        self._expected: dict[str, float] = {}  # seconds of what was proposed, by programs
        self._reserve: list[KernelCandidate] = []  # made, and not proposed yet
        self._later: list[Decisions] = []  # the same, of little promise
        self._told: dict[str, tuple[Decisions, float]] = {}
        self._seconds: dict[_Key, tuple[float, Decisions]] = {}

    def propose(self, count: int) -> list[KernelCandidate]:
        """See `Strategy`."""
        self._revisit()
        found = self.begin(count)
        while self._analytic_left > 0 and len(found) < count and not self.space.is_exhausted:
            self._make(self.space.tree.cheapest(), AnalyticChooser(), found)
            self._analytic_left -= 1
        if len(found) < count:
            found += self._offspring(count - len(found))
        self._own.update((item.program, item) for item in found)
        return found

    def learn(self, tried: Tried, measured: Measured) -> None:
        """See `Strategy`."""
        super().learn(tried, measured)
        candidate = self._own.pop(tried.program, None)
        if candidate is not None:
            self._hear(candidate, measured)
        elif measured.status == OK:
            self._told[tried.program] = (tried.decisions, measured.median)

    def _hear(self, candidate: KernelCandidate, measured: Measured) -> None:
        self._ranking.learn(candidate, measured)
        if measured.status == OK:
            self._seconds[_key(candidate.decisions)] = (measured.median, candidate.decisions)

    # ------------------------------------------------------------ what is known from before

    def _revisit(self) -> None:
        """Make again what a database told of: the best ones, and as many of all the others."""
        told = sorted(self._told.values(), key=lambda item: item[1])
        self._told.clear()
        rest = told[_BEST_AGAIN:]
        for decisions, seconds in told[:_BEST_AGAIN] + rest[:: max(1, len(rest) // _BEST_AGAIN)]:
            candidate = self.space.revisit(decisions)
            if candidate is not None:
                self._hear(candidate, Measured(OK, (seconds,)))

    # ------------------------------------------------------------ new ones

    def _offspring(self, count: int) -> list[KernelCandidate]:
        """So many that nobody has proposed: the most promising ones, and some at random."""
        lots = [self._source.random() < self._rates.random for _ in range(count)]
        found: list[KernelCandidate] = []
        for _ in range(sum(lots)):
            self._make({}, RandomChooser(self._source), found)
        count -= len(found)
        for walk in self._promising(round(self._rates.made * count)):
            self._make(walk.all_decisions, AnalyticChooser(), self._reserve)
        for _ in range(FRUITLESS * count):
            if len(self._reserve) >= count or self.space.is_exhausted:
                break
            self._make({}, RandomChooser(self._source), self._reserve)
        while len(self._reserve) < count and self._later:
            candidate = self.space.revisit(self._later.pop())
            self._reserve += [candidate] if candidate is not None else []
        scores = self._ranking.of_candidates(self._reserve)
        ranked = _ranked(self._reserve, scores)
        self._expect(self._reserve, scores)
        self._reserve = ranked[count : 2 * count]
        self._later += [item.decisions for item in ranked[2 * count :]]  # loops are large
        return found + ranked[:count]

    def _expect(self, candidates: Sequence[KernelCandidate], scores: Sequence[float]) -> None:
        """Note what those take that may be proposed now."""
        seconds = self._ranking.in_seconds(scores)
        self._expected = {}
        if seconds is not None:
            self._expected = {one.program: took for one, took in zip(candidates, seconds, strict=True)}

    def expected(self, candidate: KernelCandidate) -> float | None:
        """See `Strategy`."""
        return self._expected.get(candidate.program)

    def _make(self, decisions: Decisions, otherwise: Chooser, found: list[KernelCandidate]) -> None:
        """Make what is open and nearest to decisions, and add it if it is new."""
        if not self.space.is_exhausted:
            chooser = OpenChooser(self.space.tree, ReplayChooser(decisions, otherwise))
            candidate = self.space.make(chooser)
            if candidate is not None:
                found.append(candidate)

    def _promising(self, count: int) -> list[Walk]:
        """The best ranked of all decisions that some generations came to."""
        if count <= 0 or self.space.is_exhausted:
            return []
        population = self._first_population()
        seen: dict[_Key, tuple[float, Walk]] = {}
        for _ in range(self._rates.generations):
            scores = self._ranking.of_decisions(population)
            for walk, score in zip(population, scores, strict=True):
                seen.setdefault(_key(walk.all_decisions), (score, walk))
            population = self._next_population(population, scores)
        ranked = sorted(seen.values(), key=lambda item: -item[0])
        return [walk for _, walk in ranked if not walk.complete][:count]

    def _first_population(self) -> list[Walk]:
        """The best candidates measured, and ways at random."""
        tree, rates = self.space.tree, self._rates
        best = sorted(self._seconds.values(), key=lambda item: item[0])
        best = best[: int(rates.measured * rates.population)]
        parents = [tree.walk(ReplayChooser(decisions, AnalyticChooser())) for _, decisions in best]
        others = rates.population - len(parents)
        return parents + [tree.walk(RandomChooser(self._source)) for _ in range(others)]

    def _next_population(self, population: list[Walk], scores: list[float]) -> list[Walk]:
        """Offspring of those that rank well: each the nearest one that is open, as far as is known."""
        source, tree, form = self._source, self.space.tree, self.space.workload.decision
        parents = _ranked(population, scores)
        weights = [1.0 / (1 + place) ** 0.5 for place in range(len(parents))]
        made = []
        for a, b in zip(
            source.choices(parents, weights, k=len(parents)),
            source.choices(parents, weights, k=len(parents)),
            strict=True,
        ):
            mutates = source.random() < self._rates.mutation
            child = mutated(a, form, source) if mutates else crossed(a, b, form, source)
            made.append(tree.walk(OpenChooser(tree, ReplayChooser(child, AnalyticChooser())), child))
        return made


_BEST_AGAIN = 16


def _ranked(items: Sequence[T], scores: Sequence[float]) -> list[T]:
    """The items from the best score down; the first one first among equals."""
    order = sorted(range(len(items)), key=lambda number: -scores[number])
    return [items[number] for number in order]


def _key(decisions: Decisions) -> _Key:
    return frozenset(decisions.items())
