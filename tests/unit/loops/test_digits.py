"""Divisions that meet again are the number that they are digits of; oracle: both sums for all values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from operator import add, floordiv, mod, mul, sub

import pytest

from compiler.loops.digits import recombined
from compiler.loops.ir import Binary, Const, Expr, Var
from compiler.loops.simplify import Simplifier

BLOCK, THREAD, OWN = Var("block"), Var("thread"), Var("own")
RANGES = {"block": (0, 24), "thread": (0, 31), "own": (0, 3)}
ROW = BLOCK * 128 + THREAD // 4 * 16 + OWN * 4
"""A row of a product: of a block of 128, by a thread's group, one of four."""


def divisions(expr: Expr) -> int:
    return sum(isinstance(item, Binary) and item.op in ("floordiv", "floormod") for item in expr.walk())


def check(index: Expr, most: int) -> None:
    """As many divisions at most beside those of the thread's own number, and the same value everywhere."""
    known = Simplifier(RANGES)
    before = known.linear(index)
    after = known.emit(recombined(before, known))
    assert divisions(after) <= most
    for point in itertools.product(*(range(high + 1) for _, high in RANGES.values())):
        values = dict(zip(RANGES, point, strict=True))
        assert value_of(index, values) == value_of(after, values)


_OPERATORS = {"add": add, "sub": sub, "mul": mul, "floordiv": floordiv, "floormod": mod}


def value_of(expr: Expr, values: Mapping[str, int]) -> int:
    if isinstance(expr, Var):
        return values[expr.name]
    if isinstance(expr, Const):
        return int(expr.value)
    assert isinstance(expr, Binary)
    a, b = value_of(expr.a, values), value_of(expr.b, values)
    return int(_OPERATORS[expr.op](a, b))


def place(row: Expr, high: int, wide: int, strides: tuple[int, int, int]) -> Expr:
    image, line, at = row // (high * wide), row // wide % high, row % wide
    return image * strides[0] + line * strides[1] + at * strides[2]


@pytest.mark.parametrize(("high", "wide"), [(28, 28), (14, 14), (7, 7), (5, 12)])
def test_images_one_behind_the_other_take_no_division(high: int, wide: int) -> None:
    check(place(ROW, high, wide, (high * wide * 64, wide * 64, 64)) + 5, 1)


def test_channels_in_front_take_one_division() -> None:
    check(place(ROW, 28, 28, (64 * 784, 28, 1)), 3)


def test_what_is_no_number_again_stays() -> None:
    """Lines that are padded: the divisions are needed."""
    index = place(ROW, 28, 28, (900 * 64, 30 * 64, 64))
    known = Simplifier(RANGES)
    total = known.linear(index)
    assert recombined(total, known) is total


def test_too_many_values_are_not_tried() -> None:
    known = Simplifier({**RANGES, "block": (0, 1 << 20)})
    total = known.linear(place(ROW, 28, 28, (784, 28, 1)))
    assert recombined(total, known) is total
