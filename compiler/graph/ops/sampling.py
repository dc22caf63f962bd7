"""Elements of images at positions between them, what GridSample and its kin are made of.

`Sample` interpolates separably: along each axis a position becomes a few neighbours, each with a weight. Both
are small tables over the positions, made before the sums, so that channels share them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import TypeVar

import numpy as np

from compiler.core.types import I32, INDEX
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, accumulate_type, from_numpy, to_numpy
from compiler.graph.ir import NodeInfo, TensorType
from compiler.graph.op import (
    Form,
    InvalidError,
    Kind,
    Op,
    Types,
    UnsupportedError,
    broadcast_shape,
)
from compiler.graph.ops.elementwise import narrow, read_broadcast, widen
from compiler.graph.ops.reduction import reduce_block
from compiler.loops.build import Builder
from compiler.loops.ir import Binary, Buffer, Expr, Select, call, const, maximum, minimum, wrap
from compiler.loops.ir import Cast as CastExpr

TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""Neighbours of a position, counted from the element at or before it."""
_CUBIC = -0.75
PADDINGS = ("zeros", "border", "reflection", "region")
"""What lies outside: zeros, the nearest element, the image mirrored; `region`: the nearest element, and zeros
from one element outside on."""
_FAR = 8
"""Elements outside of an image beyond which nothing is read; more than there are neighbours."""

# ---------------------------------------------------------------- the meaning in numpy


def _mirrored(x: Array, extent: int, *, align: bool) -> Array:
    """Positions reflected at the first and last element, or half an element outside."""
    low, span = (0.0, extent - 1) if align else (-0.5, extent)
    if span == 0:
        return np.zeros_like(x)
    rest = np.mod(x - low, 2 * span)
    return np.asarray(np.where(rest > span, 2 * span - rest, rest) + low).astype(x.dtype)


def _weights(part: Array, mode: str) -> list[Array]:
    if mode == "nearest":
        return [np.ones_like(part)]
    if mode == "linear":
        return [1 - part, part]
    distances = (1 + part, part, 1 - part, 2 - part)
    return [_keys(distance, np.where) for distance in distances]


def _keys(x: Array, where: Callable[..., Array]) -> Array:
    """Keys' kernel (1981) at a distance."""
    a = _CUBIC
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return where(x <= 1, near, far)


def _axis_reference(x: Array, extent: int, attrs: Attrs) -> list[tuple[Array, Array]]:
    """Index and weight of each neighbour along one axis."""
    mode, padding, align = attrs.text("mode"), attrs.text("padding"), attrs.flag("align")
    x = np.rint(x) if mode == "nearest" else x
    low, high = (0, extent - 1) if align else (-0.5, extent - 0.5)
    outside = ~((x >= low) & (x <= high))
    nothing = (x < -1) | (x > extent) if padding == "region" else np.zeros(x.shape, bool)
    if mode == "cubic":
        padding = ""  # as in PyTorch and onnxruntime: only the neighbours are moved inside
    if padding == "border":
        x = np.where(outside, x.clip(0, extent - 1), x)
    elif padding == "region":
        x = x.clip(0, extent - 1)
    elif padding == "reflection":
        x = np.where(outside, _mirrored(x, extent, align=align), x)
    x = np.nan_to_num(x, nan=-_FAR).clip(-_FAR, extent + _FAR).astype(x.dtype)
    first = np.floor(x)
    found = []
    for tap, weight in zip(TAPS[mode], _weights(x - first, mode), strict=True):
        at = first.astype(np.int64) + tap
        if attrs.text("padding") == "reflection":
            at = _mirrored(at.astype(np.float64), extent, align=align).astype(np.int64)
        inside = (at >= 0) & (at < extent) if attrs.text("padding") == "zeros" else ~nothing
        found.append((at.clip(0, extent - 1), weight * inside))
    return found


def sample_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """The meaning of `Sample`."""
    x, images, places = _parts(arrays, attrs)
    kind = accumulate_type(from_numpy(x.dtype))
    wide = to_numpy(kind)
    shape = np.broadcast_shapes(*(item.shape for item in places))
    axes = [
        _axis_reference(np.broadcast_to(item.astype(position_dtype(item)), shape), extent, attrs)
        for item, extent in zip(places, x.shape[2:], strict=True)
    ]
    rows = np.arange(shape[0]) if images is None else images.clip(0, x.shape[0] - 1)
    batch = rows.reshape(-1, *([1] * (len(shape) - 1)))
    largest = attrs.text("combine") == "max"
    total = np.full((*shape, x.shape[1]), -math.inf if largest else 0, wide)
    for taps in itertools.product(*axes):
        weight = math.prod((item[1] for item in taps), start=np.ones(shape))[..., None]
        values = np.moveaxis(x, 1, -1)[(batch, *(item[0] for item in taps))].astype(wide)
        with np.errstate(invalid="ignore"):
            value = np.where(weight == 0, 0, values * weight.astype(wide) if kind.is_float else values)
        total = np.maximum(total, value) if largest else total + value
    return (np.moveaxis(total, -1, 1).astype(x.dtype),)


def position_dtype(item: Array) -> np.dtype:
    """The type in which positions are computed."""
    return to_numpy(accumulate_type(from_numpy(item.dtype)))


_T = TypeVar("_T")


def _parts(operands: Sequence[_T], attrs: Attrs) -> tuple[_T, _T | None, Sequence[_T]]:
    """The images, which one each row of positions reads (None: its own), positions along each axis."""
    if attrs.flag("chosen"):
        return operands[0], operands[1], operands[2:]
    return operands[0], None, operands[1:]


# ---------------------------------------------------------------- the record


def _sample_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    source, images, places = _parts(types, attrs)
    if len(places) != source.rank - 2 or not places:
        raise InvalidError(f"{len(places)} positions for the axes of {source}")
    if attrs.text("mode") != "nearest" and not source.dtype.is_float:
        raise UnsupportedError(f"interpolation of {source.dtype} is not supported")
    if not all(item.dtype.is_float for item in places):
        raise UnsupportedError(f"positions of {places[0].dtype} are not supported")
    shape = broadcast_shape(*(item.shape for item in places))
    rows = source.shape[0] if images is None else images.size
    if shape[0] != rows:
        raise InvalidError(f"positions for {shape[0]} images, and there are {rows}")
    if source.size == 0 and math.prod(shape) * source.shape[1]:
        raise InvalidError(f"there is nothing to read in {source}")
    return (source.with_shape((shape[0], source.shape[1], *shape[1:])),)


def _remainder(x: Expr, period: float) -> Expr:
    """X modulo a positive number."""
    return x - call("floor", x * (1 / period)) * period


def _mirror(x: Expr, extent: int, *, align: bool) -> Expr:
    low, span = (0.0, extent - 1) if align else (-0.5, extent)
    if span == 0:
        return wrap(0.0, x.dtype)
    rest = _remainder(x - low, 2 * span)
    return Select(rest.gt(span), rest * -1.0 + 2.0 * span, rest) + low


def _mirror_index(at: Expr, extent: int, *, align: bool) -> Expr:
    """The same of whole numbers."""
    period = 2 * (extent - 1) if align else 2 * extent
    if period == 0:
        return const(0, I32)
    rest = Binary("floormod", at, const(period, I32))
    return minimum(rest, rest * -1 + (period if align else period - 1))


def _moved_inside(x: Expr, extent: int, attrs: Attrs) -> Expr:
    """A position as the padding moves it; a number in any case, and not far outside."""
    padding, align = attrs.text("padding"), attrs.flag("align")
    low, high = (0.0, extent - 1.0) if align else (-0.5, extent - 0.5)
    inside = Binary("and", x.ge(low), x.le(high))
    if attrs.text("mode") == "cubic":
        padding = ""  # only the neighbours are moved
    if padding == "border":
        x = Select(inside, x, minimum(maximum(x, 0.0), extent - 1.0))
    elif padding == "region":
        x = minimum(maximum(x, 0.0), extent - 1.0)
    elif padding == "reflection":
        x = Select(inside, x, _mirror(x, extent, align=align))
    bounded = Select(x.gt(-_FAR), x, wrap(float(-_FAR), x.dtype))  # no number compares as false
    return minimum(bounded, float(extent + _FAR))


def _tap_weight(part: Expr, tap: Expr, mode: str) -> Expr:
    """The weight of neighbour `tap`, counted from 0."""
    if mode == "nearest":
        return wrap(1.0, part.dtype)
    if mode == "linear":
        return Select(tap.eq(0), part * -1.0 + 1.0, part)
    distance = call("abs", part + 1.0 - narrow(tap, part.dtype))
    a, x = _CUBIC, distance
    near = (x * (a + 2) - (a + 3)) * x * x + 1.0
    far = ((x * a - 5 * a) * x + 8 * a) * x - 4 * a
    return Select(x.le(1.0), near, far)


def _axis_tables(
    b: Builder, place: Buffer, kind: TensorType, extent: int, attrs: Attrs
) -> tuple[Buffer, Buffer]:
    """Index and weight of each neighbour of each position: (*positions, taps)."""
    mode, padding = attrs.text("mode"), attrs.text("padding")
    taps = len(TAPS[mode])
    wide = accumulate_type(kind.dtype)
    shape = (*kind.shape, taps)

    def position(*index: Expr) -> Expr:
        x = widen(place[index])
        return call("round", x) if mode == "nearest" else x

    moved = b.compute("moved", kind.shape, lambda *i: _moved_inside(position(*i), extent, attrs), wide)

    def neighbour(*index: Expr) -> Expr:
        first = CastExpr(I32, call("floor", moved[index[:-1]]))
        return first + narrow(index[-1], I32) + TAPS[mode][0]

    def at(*index: Expr) -> Expr:
        found = neighbour(*index)
        if padding == "reflection":
            found = _mirror_index(found, extent, align=attrs.flag("align"))
        return minimum(maximum(found, 0), extent - 1)

    def weight(*index: Expr) -> Expr:
        x = moved[index[:-1]]
        found = _tap_weight(x - call("floor", x), index[-1], mode)
        zero = wrap(0.0, wide)
        if padding == "zeros":
            number = neighbour(*index)
            return Select(Binary("and", number.ge(0), number.lt(extent)), found, zero)
        if padding == "region":
            asked = position(*index[:-1])
            return Select(Binary("and", asked.ge(-1.0), asked.le(float(extent))), found, zero)
        return found

    return b.compute("neighbour", shape, at, I32), b.compute("weight", shape, weight, wide)


def _sample_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    attrs, out = info.attrs, info.out_types[0]
    (x, images, places), (source, _, kinds) = _parts(inputs, attrs), _parts(info.in_types, attrs)
    tables = [
        _axis_tables(b, place, kind, extent, attrs)
        for place, kind, extent in zip(places, kinds, source.shape[2:], strict=True)
    ]
    taps, rank = len(TAPS[attrs.text("mode")]), len(places)

    def row(n: Expr) -> Expr:
        if images is None:
            return n
        return minimum(maximum(narrow(images[n], INDEX), 0), source.shape[0] - 1)

    def read(index: Sequence[Expr], tap: Sequence[Expr]) -> tuple[Expr, Expr]:
        """The element and its weight."""
        where = (index[0], *index[2:])
        at: list[Expr] = []
        weights: list[Expr] = []
        for (number, weight), kind, t in zip(tables, kinds, tap, strict=True):
            at.append(narrow(read_broadcast(number, (*kind.shape, taps), (*where, t)), INDEX))
            weights.append(read_broadcast(weight, (*kind.shape, taps), (*where, t)))
        return x[(row(index[0]), index[1], *at)], reduce(mul, weights)

    def nearest(*index: Expr) -> Expr:
        value, weight = read(index, (const(0, INDEX),) * rank)
        return Select(weight.eq(0.0), wrap(0, out.dtype), value)

    if taps == 1:
        return b.compute("sample", out.shape, nearest, out.dtype)

    def term(*index: Expr) -> Expr:
        element, weight = read(index[: out.rank], index[out.rank :])
        value = widen(element)
        return Select(weight.eq(0.0), wrap(0.0, value.dtype), value * narrow(weight, value.dtype))

    combine = attrs.text("combine")
    return reduce_block(b, "sample", out.shape, (taps,) * rank, term, combine, out.dtype)


def _sample_flops(info: NodeInfo) -> int:
    places = _parts(info.in_types, info.attrs)[2]
    neighbours: int = len(TAPS[info.attrs.text("mode")]) ** len(places)
    return 2 * info.out_types[0].size * neighbours


SAMPLE = Op(
    "Sample", Kind.REDUCTION, _sample_infer, sample_reference, (2, None),
    forms={"direct": Form(_sample_form)}, flops=_sample_flops,
)  # fmt: skip
"""Ours: images (N, C, *S), which of them each row reads where `chosen`, then positions along each axis, which
broadcast to (N, *P), make (N, C, *P). Weighed neighbours are combined by `combine`, "sum" or "max"."""


OPS = (SAMPLE,)
