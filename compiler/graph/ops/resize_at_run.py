"""Resize by factors, or to extents, that only a run knows: what reads where is computed by operators.

The functions of coordinates and weights are those of known factors; of a `Traced` array they make nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from compiler.core.types import F32, I64
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import Value
from compiler.graph.op import Checked, Emitter, OnnxNode, UnsupportedError, normal_axis
from compiler.graph.ops.at_run import all_hold, declared_type, element, operand
from compiler.graph.ops.resize_tables import COORDINATES, ROUNDINGS, cubic_weights

_NODES: Mapping[Any, str] = {
    np.add: "Add",
    np.subtract: "Sub",
    np.multiply: "Mul",
    np.true_divide: "Div",
    np.floor: "Floor",
    np.ceil: "Ceil",
}


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor of f32 under construction: numpy's arithmetic on it adds nodes."""

    def __init__(self, e: Emitter, value: Value) -> None:
        self.emitter = e
        self.value = value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Traced:
        assert method == "__call__"
        assert not options
        operands = (
            one.value if isinstance(one, Traced) else self.emitter.constant(np.asarray(one, np.float32))
            for one in inputs
        )
        return Traced(self.emitter, self.emitter.emit(_NODES[ufunc], *operands))


def resized_at_run(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """Resize whose declared result says the extents; factors are operands, or follow from extents."""
    data, kind = node.inputs[0], declared_type(node)
    assert data is not None
    mode = attrs.text("coordinate_transformation_mode", "asymmetric")
    if mode not in COORDINATES or attrs.flag("antialias", default=False):
        raise UnsupportedError("with a region, or antialias, its scales, sizes and region must be known")
    if attrs.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnsupportedError("where it keeps the ratio of extents, its sizes must be known")
    if not data.type.dtype.is_float and attrs.text("mode") != "nearest":
        raise UnsupportedError("interpolation of integers needs scales and sizes that are known")
    rank = data.type.rank
    axes = [normal_axis(axis, rank) for axis in attrs.integers("axes", tuple(range(rank)))]
    factors, agrees = _factors(e, node, axes, kind.shape)
    for axis, factor in zip(axes, factors, strict=True):
        data = _axis(e, data, axis, factor, kind.shape[axis], attrs)
    return Checked((data,), agrees)


def _factors(
    e: Emitter, node: OnnxNode, axes: Sequence[int], shape: Sequence[int]
) -> tuple[Sequence[Traced | np.float32], Value]:
    """Of each axis, and whether they lead to the declared extents."""
    data = node.inputs[0]
    assert data is not None
    sources, targets = ([extents[axis] for axis in axes] for extents in (data.type.shape, shape))
    sizes, scales = operand(node, 3), operand(node, len(node.inputs[:3]) - 1)
    if sizes is not None and sizes.type.size:
        holds = e.emit("Equal", sizes, e.constant(np.asarray(targets, np.int64)))
        ratios = [np.float32(target / source) for target, source in zip(targets, sources, strict=True)]
        return ratios, all_hold(e, holds)
    if scales is None or scales.type.size != len(axes):
        raise UnsupportedError("its scales or sizes must be known at compile time")
    wide = e.emit("Mul", scales, e.constant(np.asarray(sources, np.float32)))
    found = e.emit("Cast", e.emit("Floor", wide), to=I64)
    holds = e.emit("Equal", found, e.constant(np.asarray(targets, np.int64)))
    return [Traced(e, element(e, scales, at)) for at in range(len(axes))], all_hold(e, holds)


def _axis(
    e: Emitter, data: Value, axis: int, factor: Traced | np.float32, target: int, attrs: Attrs
) -> Value:
    """The data with one axis resized."""
    source, mode = data.type.shape[axis], attrs.text("coordinate_transformation_mode", "asymmetric")
    at = COORDINATES[mode](np.arange(target, dtype=np.float32), factor, source, target)
    places = at if isinstance(at, Traced) else Traced(e, e.constant(np.asarray(at, np.float32)))
    take = partial(_take, e, data, axis)
    kind = attrs.text("mode")
    if kind == "nearest":
        rounding = ROUNDINGS[attrs.text("nearest_mode", "floor")](places)
        return take(_index(e, rounding))
    low: Any = np.floor(places)
    part: Any = places - low
    first = _index(e, low)
    if kind == "cubic":
        offsets, weights = range(-1, 3), cubic_weights(part, attrs.number("cubic_coeff_a", -0.75))
    else:
        offsets, weights = range(2), [1 - part, part]
    rows = [e.emit("Add", first, e.constant(np.asarray(offset))) for offset in offsets]
    values = [weight.value for weight in weights]
    if attrs.flag("exclude_outside", default=False):
        values = _inside_only(e, rows, values, source)
    shape = tuple(target if at == axis else 1 for at in range(data.type.rank))
    columns = (_like(e, e.emit("Reshape", value, shape=shape), data) for value in values)
    parts = (e.emit("Mul", take(row), column) for row, column in zip(rows, columns, strict=True))
    return reduce(partial(e.emit, "Add"), parts)


def _like(e: Emitter, value: Value, data: Value) -> Value:
    return value if data.type.dtype == F32 else e.emit("Cast", value, to=data.type.dtype)


def _index(e: Emitter, places: Traced) -> Value:
    return e.emit("Cast", places.value, to=I64)


def _take(e: Emitter, data: Value, axis: int, places: Value) -> Value:
    """Elements along an axis; places beyond an end are those of the end."""
    zero, last = (e.constant(np.asarray(at, np.int64)) for at in (0, data.type.shape[axis] - 1))
    return e.emit("Gather", data, e.emit("Min", e.emit("Max", places, zero), last), axis=axis)


def _inside_only(e: Emitter, rows: Sequence[Value], weights: Sequence[Value], extent: int) -> list[Value]:
    """Weights of what lies within the axis, which add up to one."""
    zero: Array = np.zeros((), to_numpy(F32))
    kept = []
    for row, weight in zip(rows, weights, strict=True):
        after = e.emit("GreaterOrEqual", row, e.constant(np.asarray(0)))
        before = e.emit("Less", row, e.constant(np.asarray(extent)))
        kept.append(e.emit("Where", e.emit("And", after, before), weight, e.constant(zero)))
    total = reduce(partial(e.emit, "Add"), kept)
    return [e.emit("Div", weight, total) for weight in kept]
