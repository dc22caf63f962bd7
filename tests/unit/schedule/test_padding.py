"""decompose_padding and pad_einsum."""

from __future__ import annotations

import pytest

from compiler.core.types import F32
from compiler.loops.build import Builder
from compiler.loops.ir import For, Func, Select, all_of, const
from compiler.loops.printer import print_func
from compiler.schedule.errors import ScheduleError
from compiler.schedule.schedule import Schedule
from tests.support.schedules import checked, conv_direct, padded_conv_pool, product


def padded_row(low: int = 1, high: int = 9) -> Func:
    b = Builder("row")
    x = b.input("x", (8,))
    zero = const(0.0, F32)
    value = b.compute(
        "y",
        (10,),
        lambda i: Select(all_of(i.ge(low), i.lt(high)), x[i - 1], zero),  # type: ignore[arg-type]
    )
    return b.finish([value])


def test_decompose_padding_before_and_after() -> None:
    before = padded_row()
    s = Schedule(before)
    assert s.decompose_padding("y") == ("y_before0", "y_behind0")
    text = print_func(s.func)
    assert (
        text[text.index("\n  for") :]
        == """
  for y_i0 in 0..8
    block y(vy_i0: spatial 8 = y_i0)
      reads x[vy_i0]
      writes y[vy_i0 + 1]
      y[vy_i0 + 1] = x[vy_i0]
  for y_before0_i0 in 0..1
    block y_before0(vy_before0_i0: spatial 1 = y_before0_i0)
      writes y[0]
      y[0] = 0.0
  for y_behind0_i0 in 0..1
    block y_behind0(vy_behind0_i0: spatial 1 = y_behind0_i0)
      writes y[9]
      y[9] = 0.0
"""
    )
    checked(before, s)


@pytest.mark.parametrize(("h", "w"), [(8, 8), (5, 7)])
def test_the_border_of_a_convolution(h: int, w: int) -> None:
    before = padded_conv_pool(h=h, w=w)
    s = Schedule(before)
    assert s.decompose_padding("P") == ("P_before1", "P_behind1", "P_before2", "P_behind2")
    assert "select" not in print_func(s.func)
    s.compute_at("P", "T_i1")
    checked(before, s)


@pytest.mark.parametrize(("low", "high", "borders"), [(0, 9, 1), (2, 10, 1), (3, 7, 2)])
def test_one_sided_borders(low: int, high: int, borders: int) -> None:
    b = Builder("row")
    x = b.input("x", (12,))
    zero = const(0.0, F32)
    before = b.finish(
        [
            b.compute(
                "y",
                (10,),
                lambda i: Select(all_of(i.ge(low), i.le(high - 1)), x[i], zero),  # type: ignore[arg-type]
            )
        ]
    )
    s = Schedule(before)
    assert len(s.decompose_padding("y")) == borders
    checked(before, s)


def test_decompose_padding_refusals() -> None:
    with pytest.raises(ScheduleError, match="its value is no select"):
        Schedule(conv_direct()).decompose_padding("epilogue")
    with pytest.raises(ScheduleError, match="it has no interior"):
        Schedule(padded_row(5, 5)).decompose_padding("y")
    s = Schedule(padded_row())
    s.split("y_i0", (None, 3))
    with pytest.raises(ScheduleError, match="its loops were split or fused"):
        s.decompose_padding("y")
    b = Builder("diagonal")
    x = b.input("x", (4, 4))
    zero = const(0.0, F32)
    diagonal = b.finish([b.compute("y", (4, 4), lambda i, j: Select(i.lt(j), x[i, j], zero))])
    with pytest.raises(ScheduleError, match="its condition is not a box") as error:
        Schedule(diagonal).decompose_padding("y")
    assert "first <= i and i < end" in error.value.hint


@pytest.mark.parametrize("padding", [(4, 4, 4), (1, 8, 1), (1, 1, 4), (4, 1, 1), (1, 1, 1)])
def test_pad_einsum(padding: tuple[int, int, int]) -> None:
    before = product(6, 7, 5)
    s = Schedule(before)
    made = s.pad_einsum("y", padding)
    assert len(made) == {(4, 4, 4): 3, (1, 8, 1): 2, (1, 1, 4): 2, (4, 1, 1): 2, (1, 1, 1): 0}[padding]
    checked(before, s)


def test_loops_in_a_block_get_names_that_are_free() -> None:
    """The loop around an outer block is none of the loops that are replaced, though it has the same name."""
    b = Builder("f")
    x, zero = b.input("x", (1, 8)), const(0.0, F32)
    value = b.compute(
        "y",
        (1, 10),
        lambda _, j: Select(all_of(j.ge(1), j.lt(9)), x[0, j - 1], zero),  # type: ignore[arg-type]
    )
    before = b.finish([value])
    s = Schedule(before)
    s.blockize("y_i1")
    s.decompose_padding("y")
    names = [item.var.name for item in s.func.walk() if isinstance(item, For)]
    assert len(names) == len(set(names)), names
    checked(before, s)


def test_pad_einsum_repeats_the_last_element() -> None:
    """Behind the end of rows and columns; terms of the sum still get zeros."""
    before = product(6, 7, 5)
    s = Schedule(before)
    made = s.pad_einsum("y", (4, 4, 4), (0, 1))
    stores = [line for line in print_func(s.func).splitlines() if "_padded[" in line and " = " in line]
    padded = [line for line in stores if "select(" in line]
    assert len(made) == 3
    assert [(line.count(" < 5"), line.count("min(")) for line in padded] == [(1, 1), (1, 1)]
    checked(before, s)


def test_pad_einsum_makes_splits_exact() -> None:
    before = product(6, 7, 5)
    s = Schedule(before)
    s.pad_einsum("y", (4, 4, 4))
    for loop in ("y_i0", "y_i1", "y_r0"):
        s.split(loop, (None, 4))
    assert s.block("y").predicate is None
    checked(before, s)


def test_pad_einsum_of_channels_in_a_convolution() -> None:
    before = conv_direct(c=3, k=5)
    s = Schedule(before)
    s.pad_einsum("T", (1, 4, 1, 1, 4, 1, 1))
    checked(before, s)


def test_pad_einsum_refusals() -> None:
    s = Schedule(product(6, 7, 5))
    with pytest.raises(ScheduleError, match="does not fit its 3 iteration variables"):
        s.pad_einsum("y", (4, 4))
    with pytest.raises(ScheduleError, match="are not all spatial"):
        s.pad_einsum("y", (4, 4, 4), (2,))
    with pytest.raises(ScheduleError, match="it is no sum of products"):
        Schedule(padded_conv_pool()).pad_einsum("Z", (1, 1, 1, 2, 2))
    with pytest.raises(ScheduleError, match="is only a part of an index of X") as error:
        Schedule(conv_direct()).pad_einsum("T", (1, 1, 4, 1, 1, 1, 1))
    assert "indices of their own" in error.value.hint
