"""Strategies by name: what `--strategy` says."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.diagnostics import HostError, UsageError, did_you_mean
from compiler.stages.tuned import Decisions
from compiler.tune.strategies.evolution import Evolution
from compiler.tune.strategies.model import CostModel
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.strategy import ExhaustiveSearch, RandomSearch, ReplaySearch, Strategy
from compiler.tune.strategies.tasks import GradientScheduler, RoundRobin, Task, TaskScheduler

STRATEGIES = {
    "evolution": "offspring of the best candidates, as a learned model ranks it",
    "random": "any schedules of the design space",
    "exhaustive": "every schedule of the design space, in the order of the rules",
    "replay": "schedules of the database only, the best ones first",
}
"""Names, and what each measures."""


def make_strategy(
    name: str, space: Space, seed: int, guesses: Sequence[Decisions] = (), model: CostModel | None = None
) -> Strategy:
    """The strategy of that name; raises UsageError where there is none.

    guesses: decisions to begin with, the best ones first; all that replay proposes. model: what evolution
    asks, the same for all kernels of a search; it goes by the analytic costs where there is none.
    """
    if name == "evolution":
        ranking = model.ranking(space.workload.key, space.target.facts) if model is not None else None
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


def model_for(strategy: str) -> tuple[CostModel | None, tuple[str, ...]]:
    """The model that a strategy of that name asks, if it asks one; what to tell where it cannot be had."""
    if strategy != "evolution":
        return None, ()
    try:
        return CostModel(), ()
    except HostError as error:
        ranked = "candidates are ranked by the analytic costs, not by a learned model"
        return None, (f"{error.what}: {ranked} ({error.hint})",)


def scheduler_for(strategy: str, tasks: Sequence[Task], min_gain: float) -> TaskScheduler:
    """Whose turn it is: by gradients; where records are replayed, the best ones of all kernels come first."""
    return RoundRobin(tasks, min_gain) if strategy == "replay" else GradientScheduler(tasks, min_gain)
