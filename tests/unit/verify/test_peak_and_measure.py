"""Measurement: percentiles, turns, and this machine's peak."""

from __future__ import annotations

import math
import random
import statistics
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from compiler.core.settings import load_settings
from compiler.verify.peak import peak_gflops
from compiler.verify.timing import Percentiles, difference, measure, median_interval, percentiles, throughput


def test_percentiles_are_milliseconds() -> None:
    result = percentiles([i / 1000 for i in range(1, 102)])
    assert (result.p50, result.p90, result.runs) == (pytest.approx(51), pytest.approx(91), 101)
    assert result.p99 == pytest.approx(100)
    assert result.spread == pytest.approx((91 - 11) / 51)


def test_the_interval_holds_the_median_in_95_of_100_cases() -> None:
    source, cases = random.Random(1), 2000
    for count in (10, 101):
        bounds = [median_interval([source.expovariate(1) for _ in range(count)]) for _ in range(cases)]
        held = statistics.fmean(low <= math.log(2) <= high for low, high in bounds)
        assert 0.94 < held < 0.985, count


def test_a_busy_machine_decides_nothing() -> None:
    assert percentiles([0.001] * 20).noisy == ""
    assert "spread over 300 %" in percentiles([0.001] * 10 + [0.001] * 7 + [0.004] * 3).noisy


def test_engines_take_turns_and_get_the_same_time() -> None:
    order: list[str] = []

    def run(name: str) -> None:
        order.append(name)
        time.sleep(0.001)

    times = measure({"a": lambda: run("a"), "b": lambda: run("b")}, warmup=0.01, seconds=0.6)
    turns = sum(1 for one, next_one in pairwise(order) if one != next_one)
    assert turns >= 5
    assert 0.7 < times["a"].runs / times["b"].runs < 1.4
    assert times["a"].p50 >= 1.0


def _timed(*turns: float) -> Percentiles:
    return replace(percentiles([one / 1000 for one in turns]), turns=turns)


@pytest.mark.parametrize(
    ("mine", "verdict"), [(0.9, "faster"), (1.1, "slower"), (1.0, "same")], ids=["faster", "slower", "same"]
)
def test_a_difference_is_that_of_turns(mine: float, verdict: str) -> None:
    """The machine gets slower and slower, which both see: the ratio stays."""
    other = [1.0 + 0.1 * i for i in range(12)]
    found = difference(_timed(*(mine * one for one in other)), _timed(*other))
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(mine)
    assert found.low <= found.ratio <= found.high


def test_an_uneasy_machine_leaves_a_difference_undecided() -> None:
    source = random.Random(2)
    mine, other = ([source.uniform(1, 2) for _ in range(12)] for _ in range(2))
    assert difference(_timed(*mine), _timed(*other)).verdict == "undecided"


def test_throughput_is_of_all_contexts_together() -> None:
    found = throughput([lambda: time.sleep(0.004)] * 3, seconds=0.2)
    assert found.contexts == 3
    assert 3 / 0.012 < found.per_second <= 3 / 0.004
    assert found.p99_ms >= found.p50_ms >= 4.0


def test_an_error_in_one_of_several_contexts_is_raised() -> None:
    def fail() -> None:
        raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        throughput([lambda: None, fail], seconds=0.05)


def test_slow_functions_run_ten_times() -> None:
    assert measure({"a": lambda: time.sleep(0.005)}, warmup=0, seconds=0.01)["a"].runs >= 10


def test_peak_is_plausible_and_comes_from_the_cache() -> None:
    settings = load_settings()
    one = peak_gflops(1, settings, 0.05)
    before = sorted(settings.cache_dir.joinpath("peak").rglob("*.so"))
    again = peak_gflops(1, settings, 0.05)
    assert sorted(settings.cache_dir.joinpath("peak").rglob("*.so")) == before
    assert before
    # One SSE2 unit at 1 GHz gives 8, two AVX-512 units at 6 GHz give 384.
    assert 4 < one < 800
    assert 4 < again < 800
