"""Times of functions that take turns: percentiles, confidence of a median and of a difference, throughput."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.core.progress import Progress, silent
from compiler.verify.report import Difference, Throughput, Verdict

_FEWEST_RUNS = 10
_MOST_RUNS = 200_000
_TURN_SECONDS = 0.25
_CALM_SPREAD = 0.15
_SAME = 0.05
_NORMAL_95 = 1.96

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds; `low` to `high` is the confidence interval of p50; `spread` is (p90 - p10) / p50.

    turns: the median of each turn.
    """

    p50: float
    p90: float
    p99: float
    low: float
    high: float
    spread: float
    runs: int
    turns: tuple[float, ...] = ()

    @property
    def noisy(self) -> str:
        """Why the times decide nothing; empty where they do."""
        if self.spread <= _CALM_SPREAD:
            return ""
        return f"times spread over {100 * self.spread:.0f} % of the median (p10 to p90): the machine is busy"


def measure(
    runs: Mapping[str, Run], *, warmup: float, seconds: float, progress: Progress = silent
) -> dict[str, Percentiles]:
    """Time each of `runs` for `seconds`, in turns of a quarter of a second after `warmup` seconds each.

    Turns let all of them see the same state of a shared machine; the first run of a turn, which finds the
    caches full of the other's data, does not count unless there is only one engine.
    """
    progress("warming up", 0, 0)
    for run in runs.values():
        _repeat(run, warmup, fewest=1)
    turns: dict[str, list[list[float]]] = {name: [] for name in runs}
    spent, fewest = 0.0, 0
    while spent < seconds or fewest < _FEWEST_RUNS:
        for name, run in runs.items():
            if len(runs) > 1:
                run()
            turns[name].append(_repeat(run, min(_TURN_SECONDS, seconds), fewest=1))
        spent += min(_TURN_SECONDS, seconds)
        fewest = min(sum(map(len, one)) for one in turns.values())
        progress("measuring", min(1.0, spent / seconds, fewest / _FEWEST_RUNS), 1.0)
    return {name: percentiles_of_turns(one) for name, one in turns.items()}


def percentiles_of_turns(turns: Sequence[Sequence[float]]) -> Percentiles:
    """Percentiles of wall times in seconds, with the median of each turn."""
    medians = tuple(1e3 * statistics.median(one) for one in turns)
    return replace(percentiles([one for turn in turns for one in turn]), turns=medians)


def percentiles(seconds: list[float]) -> Percentiles:
    """Percentiles of wall times."""
    p10, p50, p90, p99 = (float(one) for one in np.percentile(np.asarray(seconds) * 1e3, (10, 50, 90, 99)))
    low, high = median_interval([one * 1e3 for one in seconds])
    return Percentiles(p50, p90, p99, low, high, spread=(p90 - p10) / p50, runs=len(seconds))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Bounds that hold the median of independent values in 95 of 100 cases: two of the values in order.

    How many values lie below the median is binomial, of n and 1/2; its normal approximation gives the ranks
    (Conover, Practical Nonparametric Statistics, 3rd ed., 3.2).
    """
    ordered, count = sorted(values), len(values)
    reach = _NORMAL_95 * math.sqrt(count) / 2
    first, last = math.ceil(count / 2 - reach), math.ceil(count / 2 + reach)
    return ordered[max(0, first - 1)], ordered[min(count, last) - 1]


def difference(mine: Percentiles, other: Percentiles) -> Difference:
    """How `mine` compares with what was measured in turns with it.

    Each turn of both saw the same state of the machine: the ratios of their medians are what is independent.
    """
    ratios = [one / two for one, two in zip(mine.turns, other.turns, strict=True)]
    low, high = median_interval(ratios)
    return Difference(statistics.median(ratios), low, high, _verdict(low, high))


def _verdict(low: float, high: float) -> Verdict:
    """Decided, even on a busy machine, where the whole interval lies on one side of 1."""
    if high < 1.0:
        return "faster"
    if low > 1.0:
        return "slower"
    return "same" if high - low <= _SAME else "undecided"


def throughput(runs: Sequence[Run], *, seconds: float, progress: Progress = silent) -> Throughput:
    """Let each of `runs` go on in a thread of its own for `seconds`, all at once."""
    times: list[list[float]] = [[] for _ in runs]
    failures: list[BaseException] = []
    begin = threading.Barrier(len(runs) + 1)

    def work(run: Run, mine: list[float]) -> None:
        begin.wait()
        try:
            mine += _repeat(run, seconds, fewest=_FEWEST_RUNS)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(runs, times, strict=True)]
    for thread in threads:
        thread.start()
    begin.wait()
    started = time.perf_counter()
    while any(thread.is_alive() for thread in threads):
        threads[0].join(_TURN_SECONDS)
        progress("several at once", min(1.0, (time.perf_counter() - started) / seconds), 1.0)
    if failures:
        raise failures[0]
    whole = percentiles([one for mine in times for one in mine])
    rate = sum(len(mine) / sum(mine) for mine in times)
    return Throughput(len(runs), rate, whole.p50, whole.p90, whole.p99, whole.runs)


def _repeat(run: Run, seconds: float, fewest: int) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < fewest or (time.perf_counter() < end and len(times) < _MOST_RUNS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return times
