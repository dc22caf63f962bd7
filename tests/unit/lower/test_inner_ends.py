"""Sums along an axis of which a run has a part end with it; oracle: numpy, with no number beyond."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.core.types import BOOL
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import OPERANDS, SYMBOLS, Expr, For, Func, If, Select, const, statements
from compiler.lower.limit_loops import limit_loops as limited
from compiler.schedule.schedule import Schedule

LENGTH = 256


def masked_sum(shift: int = 0) -> Func:
    """Rows of x where m holds, added up from place `shift` on."""
    b = Builder("f")
    x, m = b.input("x", (4, LENGTH)), b.input("m", (LENGTH,), BOOL)
    filled = b.compute("filled", (4, LENGTH), lambda i, k: Select(m[k], x[i, k], const(0, x.dtype)))

    def term(i: Expr, k: Expr) -> Expr:
        return filled[i, k + shift]

    total = b.reduce("total", (4,), (LENGTH - shift,), term)
    return b.finish([total], [(SYMBOLS, ((0, LENGTH),)), (OPERANDS, ((0, 1, 0, 1, 1),))])


def check(func: Func) -> None:
    rng = np.random.default_rng(0)
    (dim,) = func.dims
    for size in (0, 1, 7, 8, 9, 40, LENGTH):
        x = rng.standard_normal((4, LENGTH), dtype=np.float32)
        wanted = x[:, :size].sum(1)
        x[:, size:] = np.nan
        given = {"x": x, "m": np.arange(LENGTH) < size, dim.var.name: size}
        np.testing.assert_allclose(interpret(func, given)["total"], wanted, rtol=1e-4, atol=1e-5)


def ended(func: Func) -> set[str]:
    """Loops whose body is asked for."""
    return {i.var.name for i in statements(func.body) if isinstance(i, For) and isinstance(i.body, If)}


def test_what_is_summed_and_what_that_reads() -> None:
    func = limited(masked_sum())
    assert ended(func) == {"filled_i1", "total_r0"}
    check(func)


def test_a_sum_that_begins_elsewhere_is_left_as_it_is() -> None:
    """Its first iteration, in which it begins, may be about no place at all."""
    func = limited(masked_sum(shift=1))
    assert "total_r0" not in ended(func)
    x = np.ones((4, LENGTH), np.float32)
    given: dict[str, Any] = {"x": x, "m": np.arange(LENGTH) < 1}
    given |= {dim.var.name: 1 for dim in func.dims}
    np.testing.assert_array_equal(interpret(func, given)["total"], np.zeros(4))


@pytest.mark.parametrize(("made", "read"), [(8, 8), (32, 8), (8, 32)])
def test_tiles(made: int, read: int) -> None:
    """What is read in larger tiles than it is made in has to be made as a whole."""
    schedule = Schedule(masked_sum())
    for block, factor in (("filled", made), ("total", read)):
        loop = schedule.loops(block)[1]
        schedule.unroll(schedule.split(loop, (None, factor))[1])
    func = limited(schedule.func)
    assert len(ended(func)) == (2 if made % read == 0 else 1), "filled and total, or total alone"
    check(func)
