"""Times of candidates in turns with the default schedule, so that both see the same state of the machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import cycle

from compiler.runtime.loader import BoundRun
from compiler.tune.measure.buffers import Loaded
from compiler.verify.report import Difference
from compiler.verify.timing import difference, median_interval, percentiles_of_turns

_TURNS = 5
_MOST_TURNS = 15
_NARROW = 0.02
"""Part of the median that its confidence interval may be wide, at 95 %."""
_SLOW = 1.5
"""How much longer than the default schedule takes what is not measured to the end."""
_SLOW_TURNS = 2
_FEWEST_RUNS = 2
_FIRST_LOOK = 8
_SETTLING_SECONDS = 0.02


def timed(candidate: Loaded, default: Loaded, seconds: float) -> tuple[list[float], list[float]]:
    """Median seconds of each turn of a candidate, and of the default schedule's turn before it.

    There are turns until the ratio of the two is known well, at most three times as long as `seconds`;
    fewer for a candidate that is much slower.
    """
    mine: list[float] = []
    others: list[float] = []
    sets, other_sets = cycle(candidate.bound), cycle(default.bound)
    _turn(other_sets, seconds / 20)
    _turn(sets, seconds / 10)
    while not _is_known(mine, others):
        others.append(_turn(other_sets, seconds / _TURNS / 2))
        mine.append(_turn(sets, seconds / _TURNS))
    return mine, others


def _is_known(mine: Sequence[float], others: Sequence[float]) -> bool:
    ratios = [one / other for one, other in zip(mine, others, strict=True)]
    if len(ratios) < _TURNS:
        return len(ratios) >= _SLOW_TURNS and min(ratios) > _SLOW
    low, high = median_interval(ratios)
    return high - low <= _NARROW * statistics.median(ratios) or len(ratios) >= _MOST_TURNS


def settled(loaded: Sequence[Loaded], seconds: float) -> list[list[Difference]]:
    """How each compares with each in turns: rows in their order.

    There are turns until every difference is decided, or for `seconds`. It is looked at after 8, 16, 32 ...
    turns, and what is said twice in a row counts: who looks more often finds a difference in the end.
    """
    sets = [cycle(one.bound) for one in loaded]
    turns: list[list[list[float]]] = [[] for _ in loaded]
    for runs in sets:
        _turn(runs, _SETTLING_SECONDS)
    end = time.perf_counter() + seconds
    looks, before = _FIRST_LOOK, ""
    while True:
        for runs, times in zip(sets, turns, strict=True):
            next(runs).run()  # what the one before left in the caches
            times.append([_turn(runs, _SETTLING_SECONDS)])
        is_over = time.perf_counter() > end and len(turns[0]) >= _FIRST_LOOK
        if len(turns[0]) < looks and not is_over:
            continue
        looks *= 2
        found = [percentiles_of_turns(times) for times in turns]
        table = [[difference(mine, other) for other in found] for mine in found]
        said = " ".join(one.verdict for row in table for one in row)
        if is_over or (said == before and "undecided" not in said):
            return table
        before = said


def _turn(sets: Iterator[BoundRun], seconds: float) -> float:
    """Median seconds of a run, each on the next set of buffers."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < _FEWEST_RUNS or time.perf_counter() < end:
        times.append(_seconds(next(sets)))
    return statistics.median(times)


def _seconds(bound: BoundRun) -> float:
    """Of one run; on a device its launches alone: a network does not copy between them."""
    if bound.context.model.device:
        return sum(one.nanoseconds for one in bound.profile()) * 1e-9
    started = time.perf_counter()
    bound.run()
    return time.perf_counter() - started
