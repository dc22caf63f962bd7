"""Strategies by name: what `--strategy` says."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.stages.tuned import Decisions
from compiler.tune.search.evolution import Evolution
from compiler.tune.search.ranking import Ranking
from compiler.tune.search.space import Space
from compiler.tune.search.strategy import ExhaustiveSearch, RandomSearch, ReplaySearch, Strategy

STRATEGIES = {
    "evolution": "offspring of the best candidates, as a learned model ranks it",
    "random": "any schedules of the design space",
    "exhaustive": "every schedule of the design space, in the order of the rules",
    "replay": "schedules of the database only, the best ones first",
}
"""Names, and what each measures."""


def make_strategy(
    name: str, space: Space, seed: int, guesses: Sequence[Decisions] = (), ranking: Ranking | None = None
) -> Strategy:
    """The strategy of that name; raises UsageError where there is none.

    guesses: decisions to begin with, the best ones first; all that replay proposes. ranking: what evolution
    asks; the analytic order where it is None.
    """
    if name == "evolution":
        return Evolution(space, seed, guesses, ranking)
    if name == "random":
        return RandomSearch(space, seed, guesses)
    if name == "exhaustive":
        return ExhaustiveSearch(space, guesses)
    if name == "replay":
        return ReplaySearch(space, guesses)
    raise UsageError(
        f"unknown strategy `{name}`",
        where="--strategy",
        why=f"the strategies are {', '.join(STRATEGIES)}",
        hint=did_you_mean(name, STRATEGIES),
    )
