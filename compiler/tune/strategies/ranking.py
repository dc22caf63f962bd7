"""What evolution asks of a model that ranks candidates, and the one that is always there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compiler.tune.candidate import KernelCandidate
from compiler.tune.record import Measured
from compiler.tune.strategies.tree import Walk


class Ranking(Protocol):
    """Says which candidates are promising: higher scores are better, and compare within a call only."""

    def learn(self, candidate: KernelCandidate, measured: Measured) -> None:
        """Hear of a measurement."""
        ...

    def of_decisions(self, walks: Sequence[Walk]) -> list[float]:
        """Scores of candidates that were not made, by their decisions."""
        ...

    def of_candidates(self, candidates: Sequence[KernelCandidate]) -> list[float]:
        """Scores of candidates that were made."""
        ...

    def in_seconds(self, scores: Sequence[float]) -> list[float] | None:
        """What the scores of made candidates mean in seconds; None where they mean nothing of the kind."""
        ...


class AnalyticRanking:
    """By the estimated costs of the options that were taken, each relative to the cheapest one beside it."""

    def learn(self, candidate: KernelCandidate, measured: Measured) -> None:
        """Nothing is learned."""

    def of_decisions(self, walks: Sequence[Walk]) -> list[float]:
        """See `Ranking`."""
        return [-item.surplus for item in walks]

    def of_candidates(self, candidates: Sequence[KernelCandidate]) -> list[float]:
        """See `Ranking`."""
        return [-Walk.of(item).surplus for item in candidates]

    def in_seconds(self, scores: Sequence[float]) -> None:
        """Costs of decisions are no times."""
