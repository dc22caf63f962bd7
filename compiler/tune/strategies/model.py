"""The learned cost model: ranks candidates by what was measured of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from compiler.core.target import TargetFacts
from compiler.runtime.tensors import Array
from compiler.tune.candidate import KernelCandidate
from compiler.tune.record import Measured
from compiler.tune.strategies.boosting import Trees, learned, load_trees, require_xgboost, save_trees
from compiler.tune.strategies.features.decided import decided
from compiler.tune.strategies.features.pooled import FEATURES, NAMES, pooled
from compiler.tune.strategies.ranking import AnalyticRanking
from compiler.tune.strategies.tree import Walk

_GROWTH = 1.2
"""Trees are learned again when there is so much more data; from the peers' cost models."""
_FEWEST = 12
"""Measurements before trees are worth anything."""
_KEPT = 64
"""Measurements that trees of a file are taken for: those learned here come when there are more."""
_LEAST_WEIGHT = 0.05
_LEAST_SCORE = 0.01
"""Below which a prediction says only that a candidate is slow, or fails."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """A measurement of a workload's candidate; infinite seconds for one that failed."""

    workload: str
    loops: Array
    decisions: dict[str, float]
    seconds: float


@dataclass(slots=True)
class _Data:
    """Measurements, and the trees learned from the first so many of them."""

    samples: list[_Sample] = field(default_factory=list)
    trees: Trees | None = None
    learned_from: int = 0

    def up_to_date(self, learn: Callable[[list[_Sample]], Trees]) -> Trees | None:
        """The trees, learned again if there is much that they have not seen; None with too little."""
        if len(self.samples) >= max(_FEWEST, _GROWTH * self.learned_from):
            self.trees, self.learned_from = learn(self.samples), len(self.samples)
        return self.trees


class CostModel:
    """What was measured of all kernels of a search, and trees that tell fast candidates from slow ones.

    Trees on loops and decisions rank candidates of any kernel, also of one that nothing was measured of;
    trees on decisions alone those of one kernel, before they are made. A label is the least seconds of the
    kernel by those of the candidate; 0 for one that failed. Raises HostError where xgboost is not installed.
    """

    def __init__(self) -> None:
        require_xgboost()
        self._all = _Data()
        self._own: dict[str, _Data] = {}

    def ranking(self, workload: str, facts: TargetFacts) -> LearnedRanking:
        """What ranks the candidates of one workload, given by its key."""
        return LearnedRanking(self, workload, facts)

    def add(self, sample: _Sample) -> None:
        """Add a measurement."""
        for data in (self._all, self._own.setdefault(sample.workload, _Data())):
            data.samples.append(sample)

    def of_loops(self) -> Trees | None:
        """The trees on loops and decisions; None where too little was measured."""
        return self._all.up_to_date(_learned_loops)

    def of_decisions(self, workload: str) -> Trees | None:
        """The trees on a workload's decisions; None where too little of it was measured."""
        return self._own.setdefault(workload, _Data()).up_to_date(_learned_decisions)

    def fastest(self, workload: str) -> float:
        """Seconds of the fastest candidate of a workload; infinite where none was measured."""
        samples = self._own.setdefault(workload, _Data()).samples
        return min((item.seconds for item in samples), default=math.inf)

    def save(self, path: Path) -> bool:
        """Write the trees on loops and decisions; false where there are none yet."""
        trees = self.of_loops()
        if trees is not None:
            save_trees(trees, path, FEATURES)
        return trees is not None

    def load(self, path: Path) -> None:
        """Begin with trees that `save` wrote, and keep them for a while.

        Raises BadInputError for a file that is none of them.
        """
        self._all.trees, self._all.learned_from = load_trees(path, FEATURES), _KEPT


def _learned_loops(samples: list[_Sample]) -> Trees:
    names = _decisions_of(samples)
    rows = [row_of(item.loops, item.decisions, names) for item in samples]
    return _learned(rows, samples, (*NAMES, *names))


def _learned_decisions(samples: list[_Sample]) -> Trees:
    names = _decisions_of(samples)
    return _learned([decisions_row(item.decisions, names) for item in samples], samples, names)


def _decisions_of(samples: list[_Sample]) -> list[str]:
    return sorted({name for item in samples for name in item.decisions})


def _learned(rows: list[Array], samples: list[_Sample], columns: Sequence[str]) -> Trees:
    best: dict[str, float] = {}
    for item in samples:
        best[item.workload] = min(item.seconds, best.get(item.workload, math.inf))
    labels = [best[item.workload] / item.seconds if math.isfinite(item.seconds) else 0.0 for item in samples]
    return learned(np.vstack(rows), labels, [max(label, _LEAST_WEIGHT) for label in labels], columns)


def decisions_row(decisions: dict[str, float], names: Sequence[str]) -> Array:
    """Decisions as a row; NaN where one was not asked for."""
    return np.array([decisions.get(name, math.nan) for name in names], np.float32)


def row_of(loops: Array, decisions: dict[str, float], names: Sequence[str]) -> Array:
    """Loops and decisions as a row."""
    return np.concatenate([loops, decisions_row(decisions, names)])


class LearnedRanking:
    """Ranks the candidates of one workload: by the model; in the analytic order while it knows too little."""

    def __init__(self, model: CostModel, workload: str, facts: TargetFacts) -> None:
        self._model, self._workload, self._facts = model, workload, facts
        self._analytic = AnalyticRanking()

    def learn(self, candidate: KernelCandidate, measured: Measured) -> None:
        """See `Ranking`."""
        loops = pooled(candidate.lowered, self._facts)
        decisions = decided(Walk.of(candidate))
        self._model.add(_Sample(self._workload, loops, decisions, measured.median))

    def of_decisions(self, walks: Sequence[Walk]) -> list[float]:
        """See `Ranking`."""
        trees = self._model.of_decisions(self._workload)
        if trees is None or not walks:
            return self._analytic.of_decisions(walks)
        return trees.of(np.vstack([decisions_row(decided(item), trees.columns) for item in walks]))

    def of_candidates(self, candidates: Sequence[KernelCandidate]) -> list[float]:
        """See `Ranking`."""
        trees = self._model.of_loops()
        if trees is None or not candidates:
            return self._analytic.of_candidates(candidates)
        names = trees.columns[len(NAMES) :]
        rows = [
            row_of(pooled(item.lowered, self._facts), decided(Walk.of(item)), names) for item in candidates
        ]
        return trees.of(np.vstack(rows))

    def in_seconds(self, scores: Sequence[float]) -> list[float] | None:
        """See `Ranking`: a score is the part that the fastest candidate takes of the time."""
        fastest = self._model.fastest(self._workload)
        if self._model.of_loops() is None or not math.isfinite(fastest):
            return None
        return [fastest / max(score, _LEAST_SCORE) for score in scores]
