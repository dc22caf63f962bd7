"""How extents and constants follow from the values of symbols, from what they are in several instances."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

import numpy as np

from compiler.graph.dtypes import Array
from compiler.graph.ir import Extent

Point = tuple[int, ...]
"""A value for each symbol."""


def fit_extent(points: Sequence[Point], extents: Sequence[int], steps: Point) -> Extent | None:
    """The sum of symbols, each some times, and an offset, that gives these extents at these points.

    steps: what each symbol is a multiple of, and may be divided by. None where there is no such sum. Points
    must determine it: one, and for each symbol one that differs from it in that symbol alone.
    """
    slopes = _slopes(points, extents)
    if any((slope * step).denominator != 1 for slope, step in zip(slopes, steps, strict=True)):
        return None
    divisor = lcm(*(slope.denominator for slope in slopes))
    factors = tuple(int(slope * divisor) for slope in slopes)
    offset = extents[0] * divisor - sum(f * n for f, n in zip(factors, points[0], strict=True))
    found = Extent(factors, offset, divisor)
    agrees = all(found.of(point) == extent for point, extent in zip(points, extents, strict=True))
    return found if agrees else None


def fit_constant(points: Sequence[Point], arrays: Sequence[Array], steps: Point) -> Point | None:
    """By how much every element of a constant grows with each symbol.

    Zeros where all arrays are parts of the first, that of the largest point. None where elements do not grow
    alike, or are no integers.
    """
    largest = arrays[0]
    parts = [largest[tuple(slice(extent) for extent in item.shape)] for item in arrays]
    if any(part.shape != item.shape for part, item in zip(parts, arrays, strict=True)):
        return None
    if all(_same(part, item) for part, item in zip(parts, arrays, strict=True)):
        return (0,) * len(points[0])
    if largest.dtype.kind not in "iu" or any(item.size == 0 for item in arrays):
        return None
    differences = [
        item.astype(np.int64) - part.astype(np.int64) for part, item in zip(parts, arrays, strict=True)
    ]
    if any(item.min() != item.max() for item in differences):
        return None
    found = fit_extent(points, [int(item.flat[0]) for item in differences], steps)
    return found.factors if found is not None and found.divisor == 1 else None


def _same(a: Array, b: Array) -> bool:
    return (
        bool(np.array_equal(a, b)) or a.tobytes() == b.tobytes()
    )  # the same number where none equals itself


def _slopes(points: Sequence[Point], values: Sequence[int]) -> list[Fraction]:
    """How much a value grows with each symbol, from points that differ in one alone."""
    slopes = []
    for symbol in range(len(points[0])):
        pairs = (
            (a, b, x, y)
            for a, x in zip(points, values, strict=True)
            for b, y in zip(points, values, strict=True)
            if a[symbol] != b[symbol] and _without(a, symbol) == _without(b, symbol)
        )
        a, b, x, y = next(pairs)
        slopes.append(Fraction(x - y, a[symbol] - b[symbol]))
    return slopes


def _without(point: Point, symbol: int) -> Point:
    return point[:symbol] + point[symbol + 1 :]
