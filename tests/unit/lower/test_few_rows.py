"""Tiles of rows of which a run has few: how many are computed, and that they are right; oracle: numpy."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import EXTENTS, SYMBOLS, Func
from compiler.lower.limit_loops import limit_loops
from compiler.schedule.schedule import Schedule

ROWS, TERMS, COLUMNS = 40, 6, 4


def product() -> Func:
    """x @ w, of whose rows a run has some."""
    b = Builder("f")
    x, w = b.input("x", (ROWS, TERMS)), b.input("w", (TERMS, COLUMNS))
    y = b.reduce("y", (ROWS, COLUMNS), (TERMS,), lambda i, j, k: x[i, k] * w[k, j])
    return b.finish([y], [(SYMBOLS, ((0, ROWS),)), (EXTENTS, ((2, 0, 0, 1, 1),))])


def tiled(*factors: int, lanes: bool = False) -> Func:
    """Rows in tiles inside the sum, by one loop or by several."""
    schedule = Schedule(product())
    rows, columns, terms = schedule.loops("y")
    outer, *inner = schedule.split(rows, (None, *factors), tail="guard")
    schedule.reorder(outer, columns, terms, *inner)
    for loop in inner:
        (schedule.vectorize if lanes else schedule.unroll)(loop)
    return limit_loops(schedule.func)


def computed(func: Func, size: int) -> int:
    """How many rows a run of this size computes; those that it has are right."""
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, (ROWS, TERMS)).astype(np.float32)
    w = rng.uniform(1, 2, (TERMS, COLUMNS)).astype(np.float32)
    (dim,) = func.dims
    y = interpret(func, {"x": x, "w": w, dim.var.name: size})["y"]
    rows = int((np.nan_to_num(y) > 0).all(1).sum())
    np.testing.assert_allclose(y[:rows], (x @ w)[:rows], rtol=1e-5)
    assert rows >= size
    return rows


@pytest.mark.parametrize(
    ("tile", "rows"),
    [
        (13, {0: 0, 1: 1, 2: 5, 5: 5, 6: 9, 10: 13, 13: 13, 14: 14, 15: 18, 27: 27, 31: 31, 32: 35, 40: 40}),
        (6, {1: 1, 2: 2, 3: 4, 5: 6, 6: 6, 7: 7, 8: 8, 16: 16, 39: 40}),
        (4, {1: 1, 2: 2, 3: 3, 4: 4, 40: 40}),
        (2, {1: 1, 2: 2, 3: 3}),
        (1, {1: 1, 2: 2}),
    ],
)
def test_the_last_tile_is_shortened(tile: int, rows: dict[int, int]) -> None:
    func = tiled(tile)
    assert {size: computed(func, size) for size in rows} == rows


def test_rows_that_two_loops_number_are_all_computed() -> None:
    func = tiled(2, 4)
    assert [computed(func, size) for size in (1, 8, 9)] == [8, 8, 16]


def test_rows_in_lanes_are_one_or_all() -> None:
    func = tiled(8, lanes=True)
    assert [computed(func, size) for size in (1, 2, 8, 9, 10)] == [1, 8, 8, 9, 16]
