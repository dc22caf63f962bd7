"""Winograd's minimal filtering F(m x m, 3 x 3) for convolutions of stride 1, and along one axis alone.

The image is cut into tiles of m x m results, each from (m + 2) x (m + 2) elements. Tiles and filters are
transformed into the values of polynomials at m + 1 points and infinity; there the convolution is a product
per position, summed over channels (a matrix product for each of the (m + 2)^2 positions), and a last
transform leads back. F(2) takes 4 products per result instead of 9, F(4) takes 2.25, at the price of larger
filters.

Along an axis that is left as it is a tile is one result, F(1, r): its positions are the r taps themselves,
and the results are their sum. F(1 x 4, 1 x 3) takes 1.5 products per result instead of 3, F(1 x 4, 3 x 3) 4.5
instead of 9, with filters twice as large, and smaller errors than with both axes.

On devices that bind loops to threads one launch does all of it: the form of `fused_form`, whose stages are
cut so that a block of threads has a few tiles of some output channels (`schedule/rules/threads/winograd.py`).

The matrices follow Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), with the
points in pairs: 0, infinity, 1, -1, 2, -2. Transforms of p and -p share their even and odd parts, which the C
compiler finds as common subexpressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

from compiler.graph.ir import NodeInfo
from compiler.graph.op import Build
from compiler.graph.ops.factors import is_f32
from compiler.graph.ops.windows import padded_buffer, windows_of
from compiler.loops.annotations import CONSTANT_ONLY, STAGE
from compiler.loops.build import Builder
from compiler.loops.ir import Buffer, Expr, Select, const, minimum

TAPS = 3
POINTS = {2: (Fraction(1),), 4: (Fraction(1), Fraction(2))}
"""Points p of each F(m); -p, 0 and infinity belong to all."""

Row = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Transforms:
    """The matrices of F(m, taps) for input and filter, one row per position; the points, for the result."""

    points: tuple[float, ...]
    data: tuple[Row, ...]
    filter: tuple[Row, ...]


@cache
def transforms(m: int, taps: int = TAPS) -> Transforms:
    """The matrices of F(m, 3), made from its points by Toom and Cook's construction; of F(1, taps): ones."""
    if m == 1:
        ones = tuple(tuple(float(row == column) for column in range(taps)) for row in range(taps))
        return Transforms((), ones, ones)
    finite = [Fraction(0), *(sign * p for p in POINTS[m] for sign in (1, -1))]
    size = len(finite) + 1
    data, filters = [_roots(finite[1:], size), _roots(finite, size)], []
    filters.append([p / _distance(finite[0], finite[1:]) for p in (Fraction(1), Fraction(0), Fraction(0))])
    filters.append([Fraction(0), Fraction(0), Fraction(1)])
    for point in finite[1:]:
        others = [item for item in finite if item != point]
        data.append(_roots(others, size))
        filters.append([point**power / _distance(point, others) for power in range(TAPS)])
    return Transforms(tuple(float(p) for p in POINTS[m]), _floats(data), _floats(filters))


def _roots(roots: Sequence[Fraction], size: int) -> list[Fraction]:
    """Coefficients, from the constant one, of the polynomial with these roots."""
    found = [Fraction(1)]
    for root in roots:
        below, above = [*(root * item for item in found), Fraction(0)], [Fraction(0), *found]
        found = [b - a for a, b in zip(below, above, strict=True)]
    return [*found, *[Fraction(0)] * (size - len(found))]


def _distance(point: Fraction, others: Sequence[Fraction]) -> Fraction:
    return math.prod((point - other for other in others), start=Fraction(1))


def _floats(rows: Sequence[Sequence[Fraction]]) -> tuple[Row, ...]:
    return tuple(tuple(float(item) for item in row) for row in rows)


# ---------------------------------------------------------------- sums with known factors


def _sum(factors: Sequence[float], values: Sequence[Expr]) -> Expr:
    """The sum of the products without those that are 0; a positive factor comes first."""
    terms = [(factor, value) for factor, value in zip(factors, values, strict=True) if factor]
    terms.sort(key=lambda term: term[0] <= 0)
    (first, value), *rest = terms
    total = value if first == 1 else value * first
    for factor, value in rest:
        part = value if abs(factor) == 1 else value * abs(factor)
        total = total + part if factor > 0 else total - part
    return total


def _transformed(row: Row, values: Sequence[Expr]) -> Expr:
    """A row times a vector, as even part plus or minus odd part, so that the rows of p and -p share both."""
    even = [factor if power % 2 == 0 else 0.0 for power, factor in enumerate(row)]
    odd = [factor if power % 2 else 0.0 for power, factor in enumerate(row)]
    if not any(even) or not any(odd):
        return _sum(row, values)
    if next(factor for factor in reversed(odd) if factor) > 0:
        return _sum(even, values) + _sum(odd, values)
    return _sum(even, values) - _sum([-factor for factor in odd], values)


def _result(power: int, m: int, values: Sequence[Expr]) -> Expr:
    """Element `power` of a transformed-back vector: the sum of p^power times the value at p."""
    if m == 1:
        return _sum([1.0] * len(values), values)
    factors, parts = [], []
    if power == 0:
        factors, parts = [1.0], [values[0]]
    for number, point in enumerate(transforms(m).points):
        plus, minus = values[2 + 2 * number], values[3 + 2 * number]
        factors.append(point**power)
        parts.append(plus + minus if power % 2 == 0 else plus - minus)
    if power == m - 1:
        factors, parts = [*factors, 1.0], [*parts, values[1]]
    return _sum(factors, parts)


def _pick(index: Expr, choices: Sequence[Expr]) -> Expr:
    """The choice of number `index`; where its loop is unrolled, only one is left."""
    *firsts, found = choices
    for number, choice in reversed(list(enumerate(firsts))):
        found = Select(index.eq(number), choice, found)
    return found


# ---------------------------------------------------------------- the form


def is_winograd(info: NodeInfo) -> bool:
    """Whether a convolution is one of 3 x 3 taps over an image in f32, with stride 1 and one group."""
    return _is_plain(info) and windows_of(info.attrs).kernel == (TAPS, TAPS)


def is_winograd_along(axis: int) -> Callable[[NodeInfo], bool]:
    """Whether a convolution has three taps along an axis of the image, and one or three along the other."""

    def applies(info: NodeInfo) -> bool:
        if not _is_plain(info):
            return False
        kernel = windows_of(info.attrs).kernel
        return kernel[axis] == TAPS and kernel[1 - axis] in (1, TAPS)

    return applies


def _is_plain(info: NodeInfo) -> bool:
    """Whether a convolution is one over an image in f32, with stride 1 and one group."""
    if info.in_types[0].rank != 4 or not is_f32(info):
        return False
    windows = windows_of(info.attrs)
    return windows.strides == windows.dilations == (1, 1) and info.attrs.integer("group") == 1


Pair = tuple[int, int]
"""Of rows and of columns."""


@dataclass(frozen=True, slots=True)
class _Grid:
    """The tiles of all images: `m` results high and wide, `down` x `across` of them per image.

    size: positions of a tile down and across; taps: of the filter; image: rows and columns of results.
    """

    m: Pair
    taps: Pair
    size: Pair
    image: Pair
    down: int
    across: int
    count: int

    @staticmethod
    def of(info: NodeInfo, m: Pair) -> _Grid:
        batch, _, height, width = info.out_types[0].shape
        rows, columns = windows_of(info.attrs).kernel
        down, across = -(-height // m[0]), -(-width // m[1])
        size = m[0] + rows - 1, m[1] + columns - 1
        return _Grid(m, (rows, columns), size, (height, width), down, across, batch * down * across)

    @property
    def matrices(self) -> tuple[Transforms, Transforms]:
        """Of rows and of columns."""
        rows, columns = (transforms(m, taps) for m, taps in zip(self.m, self.taps, strict=True))
        return rows, columns


def winograd_form(down: int, across: int) -> Build:
    """The form F(down x across, taps); 1 leaves an axis as it is.

    Tiles are numbered over all images, row by row. Where they stick out of the image they repeat its last row
    or column; results that come from there are not used.
    """

    def form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
        grid, (out, inner) = _Grid.of(info, (down, across)), info.in_types[1].shape[:2]
        source = padded_buffer(b, inputs[0], info.in_types[0], windows_of(info.attrs))
        filters = _filters(b, inputs[1], (out, inner), grid)
        tiles = _tiles(b, _elements(source, grid), (*grid.size, inner, grid.count), grid)
        sums = b.reduce(
            "products",
            (*grid.size, out, grid.count),
            (inner,),
            lambda i, j, k, t, c: tiles[i, j, c, t] * filters[i, j, k, c],
            annotations=((STAGE, "products"),),
        )
        return _results(b, sums, info.out_types[0].shape, grid)

    return form


def _filters(b: Builder, weights: Buffer, channels: Pair, g: _Grid) -> Buffer:
    """Transformed filters, (row, column, output channel, input channel): rows first, then columns."""
    (out, inner), (high, wide) = channels, g.taps
    by_rows, by_columns = (matrices.filter for matrices in g.matrices)
    known = ((CONSTANT_ONLY, True),)
    rows = b.local("filter_rows", (g.size[0], wide, out, inner))
    for number, row in enumerate(by_rows):

        def by_row(
            j: Expr, k: Expr, c: Expr, row: Row = row, number: int = number
        ) -> tuple[tuple[Expr | int, ...], Expr]:
            return (number, j, k, c), _sum(row, [weights[k, c, i, j] for i in range(high)])

        b.write("filter_row", rows, (wide, out, inner), by_row, known)
    filters = b.local("filters", (*g.size, out, inner))
    for number, row in enumerate(by_columns):

        def by_column(
            i: Expr, k: Expr, c: Expr, row: Row = row, number: int = number
        ) -> tuple[tuple[Expr | int, ...], Expr]:
            return (i, number, k, c), _sum(row, [rows[i, j, k, c] for j in range(wide)])

        b.write("filter_column", filters, (g.size[0], out, inner), by_column, known)
    return filters


Element = Callable[[Expr, Expr, Expr, Expr], Expr]
"""Of a tile, by row, column, channel and the tile's number."""


def _elements(source: Buffer, g: _Grid) -> Element:
    """What the image has there; beyond its last row or column that is repeated."""
    height, width = g.image

    def element(i: Expr, j: Expr, c: Expr, t: Expr) -> Expr:
        y, x = t // g.across % g.down * g.m[0] + i, t % g.across * g.m[1] + j
        y = y if g.down * g.m[0] == height else minimum(y, height + g.taps[0] - 2)
        x = x if g.across * g.m[1] == width else minimum(x, width + g.taps[1] - 2)
        return source[t // (g.across * g.down), c, y, x]

    return element


def _tiles(b: Builder, element: Element, shape: tuple[int, ...], g: _Grid) -> Buffer:
    """Transformed tiles, (row, column, channel, tile): first the rows of each tile, then its columns."""
    by_rows, by_columns = (matrices.data for matrices in g.matrices)

    def by_row(i: Expr, j: Expr, c: Expr, t: Expr) -> Expr:
        column = [element(const(n), j, c, t) for n in range(g.size[0])]
        return _pick(i, [_transformed(row, column) for row in by_rows])

    rows = b.compute("tile_rows", shape, by_row, annotations=((STAGE, "tile_rows"),))

    def by_column(i: Expr, j: Expr, c: Expr, t: Expr) -> Expr:
        row = [rows[i, n, c, t] for n in range(g.size[1])]
        return _pick(j, [_transformed(item, row) for item in by_columns])

    return b.compute("tiles", shape, by_column, annotations=((STAGE, "tiles"),))


def _results(
    b: Builder, sums: Buffer, shape: Sequence[int], g: _Grid, chunks: tuple[int, ...] = ()
) -> Buffer:
    """The image of results: the rows of each tile are transformed back, then its columns.

    chunks: how many parts of a sum there are, each of which has an image of its own.
    """
    (high, wide), (down, across) = g.size, g.m

    def by_row(*at: Expr) -> Expr:
        *chunk, i, j, k, t = at
        column = [sums[(*chunk, n, j, k, t)] for n in range(high)]
        return _pick(i, [_result(power, down, column) for power in range(down)])

    rows_shape = (*chunks, down, wide, shape[1], g.count)
    rows = b.compute("result_rows", rows_shape, by_row, annotations=((STAGE, "result_rows"),))

    def by_column(*at: Expr) -> Expr:
        *chunk, n, k, y, x = at
        tile = (n * g.down + y // down) * g.across + x // across
        row = [rows[(*chunk, y % down, j, k, tile)] for j in range(wide)]
        return _pick(x % across, [_result(power, across, row) for power in range(across)])

    if not chunks:
        return b.compute("conv", shape, by_column)
    return b.compute("parts", (*chunks, *shape), by_column, annotations=((STAGE, "parts"),))


# ---------------------------------------------------------------- the form for blocks of threads

_ROUNDED = 32
"""Tiles of all images are as many as this divides, so that blocks of threads need no conditions."""


def fused_form(chunks: int) -> Build:
    """The form F(2 x 2, 3 x 3) for devices that bind loops to threads, to be one launch.

    A stage more holds what a tile is transformed from (a thread fetches it ahead), and behind the last tile
    that one is repeated. chunks: parts of the input channels whose results a second launch adds up.
    """

    def form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
        grid, (out, inner) = _Grid.of(info, (2, 2)), info.in_types[1].shape[:2]
        last, padded = grid.count - 1, -(-grid.count // _ROUNDED) * _ROUNDED
        source = padded_buffer(b, inputs[0], info.in_types[0], windows_of(info.attrs))
        filters = _filters(b, inputs[1], (out, inner), grid)
        element = _elements(source, grid)

        def patch(i: Expr, j: Expr, c: Expr, t: Expr) -> Expr:
            return element(i, j, c, t if padded == grid.count else minimum(t, last))

        shape = (*grid.size, inner, padded)
        patches = b.compute("patches", shape, patch, annotations=((STAGE, "patches"),))
        tiles = _tiles(b, lambda i, j, c, t: patches[i, j, c, t], shape, grid)
        parts, size = (chunks,) if chunks > 1 else (), inner // chunks

        def product(*at: Expr) -> Expr:
            *chunk, i, j, k, t, c = at
            channel = chunk[0] * size + c if chunk else c
            return tiles[i, j, channel, t] * filters[i, j, k, channel]

        noted = ((STAGE, "products"),)
        sums = b.reduce("products", (*parts, *grid.size, out, padded), (size,), product, annotations=noted)
        result = _results(b, sums, info.out_types[0].shape, replace(grid, count=padded), parts)
        if not parts:
            return result
        return b.reduce("conv", info.out_types[0].shape, parts, lambda n, k, y, x, q: result[q, n, k, y, x])

    return form


def in_chunks(chunks: int) -> Callable[[NodeInfo], bool]:
    """Whether the channels of a convolution that has this form come in so many chunks that pay."""

    def applies(info: NodeInfo) -> bool:
        channels = info.in_types[1].shape[1]
        return is_winograd(info) and channels % chunks == 0 and channels >= chunks * _LEAST_CHANNELS

    return applies


_LEAST_CHANNELS = 16
"""Fewer channels of a chunk take less time than the transforms of its results."""
