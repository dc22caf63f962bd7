"""The least sum of cost tables: against all combinations where there are few, and what holds where not."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest

from compiler.graph.minimise import Table, minimise, total


def table(variables: tuple[int, ...], costs: object) -> Table:
    return Table(variables, np.asarray(costs, np.float64))


def random_problem(seed: int) -> tuple[list[int], list[Table]]:
    """Up to seven variables of up to three options; tables of one to three, some entries impossible."""
    source = np.random.default_rng(seed)
    sizes = [int(n) for n in source.integers(1, 4, source.integers(1, 8))]
    tables = []
    for _ in range(int(source.integers(0, 2 * len(sizes) + 1))):
        count = int(source.integers(1, min(3, len(sizes)) + 1))
        variables = tuple(int(n) for n in source.permutation(len(sizes))[:count])
        costs = source.integers(0, 10, [sizes[item] for item in variables]).astype(float)
        costs[source.random(costs.shape) < 0.1] = math.inf
        tables.append(Table(variables, costs))
    return sizes, tables


def least(sizes: list[int], tables: list[Table]) -> float:
    return min(total(tables, options) for options in itertools.product(*map(range, sizes)))


@pytest.mark.parametrize("seed", range(300))
def test_no_combination_costs_less(seed: int) -> None:
    sizes, tables = random_problem(seed)
    options = minimise(sizes, tables)
    assert len(options) == len(sizes)
    assert total(tables, options) == least(sizes, tables)


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("limit", [1, 4, 9])
def test_with_tables_that_are_too_large_no_single_change_helps(seed: int, limit: int) -> None:
    sizes, tables = random_problem(seed)
    tables = [Table(item.variables, np.minimum(item.costs, 100.0)) for item in tables]
    options = minimise(sizes, tables, limit)
    here = total(tables, options)
    assert here >= least(sizes, tables)
    for item, size in enumerate(sizes):
        others = [[*options[:item], one, *options[item + 1 :]] for one in range(size)]
        assert all(total(tables, other) >= here for other in others)
    assert options == minimise(sizes, tables, limit)


def test_a_chain_that_pays_only_as_a_whole() -> None:
    """Changing sides costs 3, each of four steps saves 1: worth it for all four, not for two."""
    change = [[0, 3], [3, 0]]
    steps = [table((n,), [1, 0]) for n in range(4)]
    ends = [table((0,), [0, 1]), table((3,), [0, 1])]
    assert minimise([2] * 4, [*steps, *ends, *(table((n, n + 1), change) for n in range(3))]) == [1, 1, 1, 1]
    dear = [table((0,), [0, 3]), table((3,), [0, 3])]
    assert minimise([2] * 4, [*steps, *dear, *(table((n, n + 1), change) for n in range(3))]) == [0, 0, 0, 0]


def test_first_options_are_taken_where_nothing_is_better() -> None:
    assert minimise([3, 2], []) == [0, 0]
    assert minimise([2], [table((0,), [5, 5])]) == [0]
    assert minimise([2, 2, 2], [table((0, 1), [[1, 2], [2, 1]]), table((1, 2), [[3, 4], [4, 3]])]) == [
        0,
        0,
        0,
    ]


def test_a_tie_ends_the_same_way_every_time() -> None:
    either = [table((0, 1), [[1, 0], [0, 1]])]
    assert minimise([2, 2], either) == minimise([2, 2], either)
    assert total(either, minimise([2, 2], either)) == 0


def test_nothing_to_choose() -> None:
    assert minimise([], []) == []
    assert minimise([], [table((), 3.0)]) == []


@pytest.mark.perf
def test_a_thousand_variables_take_no_time() -> None:
    """Residual blocks, one after the other: each variable knows its neighbours and the one after the next."""
    source = np.random.default_rng(1)
    count = 1000
    near = [table((n, n + step), source.random((2, 2))) for step in (1, 2) for n in range(count - step)]
    started = time.perf_counter()
    minimise([2] * count, near)
    assert time.perf_counter() - started < 1.0
