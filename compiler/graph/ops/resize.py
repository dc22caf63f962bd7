"""Resize and Upsample: nearest, linear and cubic, in every coordinate mode of ONNX.

Resizing is separable. Whole-factor nearest enlargement becomes `Repeat`; everything else becomes, per axis, a
weighted sum of `Gather`s whose indices and weights are constants, so that no loop computes coordinates. Where
there are many taps (`antialias`) it is a product with a constant matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial, reduce

import numpy as np

from compiler.core.types import F32, F64, DType
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, from_numpy, to_numpy, widened_array
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    Emitter,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Signature,
    Types,
    UnsupportedError,
    Values,
    normal_axis,
)
from compiler.graph.ops.resize_at_run import resized_at_run
from compiler.graph.ops.resize_tables import COORDINATES, ROUNDINGS, cubic_weights, keys_kernel

_REGION = "tf_crop_and_resize"
_MOST_TAPS = 4
"""Taps above which an axis is resized by a matrix product."""
_DEFAULTS: dict[str, AttrValue] = {
    "coordinate_transformation_mode": "half_pixel",
    "cubic_coeff_a": -0.75,
    "exclude_outside": 0,
    "mode": "nearest",
    "nearest_mode": "round_prefer_floor",
}


def _resize_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given, source = Attrs(attrs), inputs[0].type
    axes = tuple(normal_axis(axis, source.rank) for axis in given.integers("axes", tuple(range(source.rank))))
    scales, sizes = [1.0] * source.rank, list(source.shape)
    wanted, factors = given.integers("sizes", ()), given.numbers("scales", ())
    if len(wanted or factors) != len(axes):
        raise InvalidError(
            f"Resize of {source} has {len(wanted or factors)} sizes or scales for {len(axes)} axes"
        )
    extents = [source.shape[axis] for axis in axes]
    if wanted:
        policy = given.text("keep_aspect_ratio_policy", "stretch")
        wanted, factors = _keep_ratio(policy, wanted, extents)
    else:
        wanted = tuple(math.floor(n * factor) for n, factor in zip(extents, factors, strict=True))
    for axis, size, factor in zip(axes, wanted, factors, strict=True):
        sizes[axis], scales[axis] = size, factor
    return inputs, {**_kept(given), **_region(given, axes, source.rank),
                    "scales": tuple(scales), "sizes": tuple(sizes)}  # fmt: skip


def _region(given: Attrs, axes: Sequence[int], rank: int) -> Raw:
    """Begin and end of each axis, and what lies outside, for the mode that has a region."""
    if given.text("coordinate_transformation_mode") != _REGION:
        return {}
    region = given.numbers("roi", ())
    if len(region) != 2 * len(axes):
        raise InvalidError(f"Resize has a region of {len(region)} numbers for {len(axes)} axes")
    first, last = [0.0] * rank, [1.0] * rank
    for number, axis in enumerate(axes):
        first[axis], last[axis] = region[number], region[len(axes) + number]
    return {"first": tuple(first), "last": tuple(last), "outside": given.number("extrapolation_value")}


def _keep_ratio(
    policy: str, wanted: tuple[int, ...], extents: Sequence[int]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Sizes and scales of axes for the sizes that are wanted."""
    ratios = tuple(size / n for size, n in zip(wanted, extents, strict=True))
    if policy == "stretch":
        return wanted, ratios
    if policy not in ("not_larger", "not_smaller"):
        raise InvalidError(f"Resize has no keep_aspect_ratio_policy {policy!r}")
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return tuple(math.floor(scale * n + 0.5) for n in extents), (scale,) * len(extents)


def _kept(given: Attrs) -> Raw:
    kept = {name: given.get(name, default) for name, default in _DEFAULTS.items()}
    mode = kept["coordinate_transformation_mode"]
    if mode not in (*COORDINATES, _REGION):
        raise InvalidError(f"Resize has no coordinate_transformation_mode {mode!r}")
    if kept["mode"] not in ("nearest", "linear", "cubic"):
        raise InvalidError(f"Resize has no mode {kept['mode']!r}")
    if kept["nearest_mode"] not in ROUNDINGS:
        raise InvalidError(f"Resize has no nearest_mode {kept['nearest_mode']!r}")
    if given.flag("antialias", default=False):
        if kept["mode"] == "nearest":
            raise InvalidError("Resize in mode nearest has no antialias")
        kept["antialias"] = 1
    return kept


def _old_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """Upsample, and Resize of opset 10: floor of the asymmetric coordinate."""
    mode = "linear" if attrs["mode"] in ("linear", "bilinear") else attrs["mode"]
    more: Raw = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return _resize_import(node, inputs, {**attrs, **more})


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    sizes = attrs.integers("sizes")
    if len(sizes) != types[0].rank or min(sizes, default=1) < 1:
        raise InvalidError(f"Resize of {types[0]} to {list(sizes)}")
    if attrs.text("mode") != "nearest" and types[0].dtype.is_bool:
        raise UnsupportedError(f"Resize of {types[0].dtype} in mode {attrs.text('mode')} is not supported")
    return (types[0].with_shape(sizes),)


def _coordinates(attrs: Attrs, axis: int, source: int) -> Array:
    """Where each element of a resized axis lies on the axis that it comes from.

    In f32, as runtimes do: what is read depends on which side of a whole number a coordinate falls.
    """
    target, scale = attrs.integers("sizes")[axis], attrs.numbers("scales")[axis]
    mode, at = attrs.text("coordinate_transformation_mode"), np.arange(target, dtype=np.float32)
    if mode == _REGION:
        first, last = np.float32(attrs.numbers("first")[axis]), np.float32(attrs.numbers("last")[axis])
        if target == 1:
            return np.full(1, np.float32(0.5) * (first + last) * (source - 1), np.float32)
        return np.asarray(
            first * (source - 1) + at * (last - first) * (source - 1) / (target - 1), np.float32
        )
    found: Array = COORDINATES[mode](at, np.float32(scale), source, target)
    assert found.dtype == np.float32
    return found


def _outside(attrs: Attrs, axis: int, source: int) -> Array | None:
    """Which elements of a resized axis lie outside of the axis that they come from; None: no mode to ask."""
    if attrs.text("coordinate_transformation_mode") != _REGION:
        return None
    at = _coordinates(attrs, axis, source)
    return np.asarray((at < 0) | (at > source - 1))


def _axis_table(attrs: Attrs, axis: int, source: int) -> tuple[Array, Array]:
    """What each element of a resized axis is made of: indices and weights, (target, taps)."""
    target = attrs.integers("sizes")[axis]
    at, kind = _coordinates(attrs, axis, source), attrs.text("mode")
    if kind == "nearest":
        indices = ROUNDINGS[attrs.text("nearest_mode")](at).astype(np.int64)[:, None]
        return indices.clip(0, source - 1), np.ones((target, 1))
    low = np.floor(at)
    part, scale = at - low, attrs.numbers("scales")[axis]
    if attrs.flag("antialias", default=False) and scale < 1:
        offsets, weights = _filter(part, scale, attrs)
    elif kind == "linear":
        offsets, weights = np.arange(2), np.stack([1 - part, part], axis=1)
    else:
        offsets, weights = (
            np.arange(-1, 3),
            np.stack(cubic_weights(part, attrs.number("cubic_coeff_a")), axis=1),
        )
    indices = low[:, None].astype(np.int64) + offsets
    if attrs.flag("exclude_outside"):
        weights = weights * ((indices >= 0) & (indices < source))
        weights = weights / weights.sum(axis=1, keepdims=True)
    return indices.clip(0, source - 1), weights


def _filter(part: Array, scale: float, attrs: Attrs) -> tuple[Array, Array]:
    """Offsets and weights of an interpolation kernel made wider by 1 / scale."""
    reach = 1 if attrs.text("mode") == "linear" else 2
    offsets = np.arange(math.floor(-reach / scale) + 1, math.ceil(reach / scale) + 1)
    distances = np.abs(offsets - part[:, None].astype(np.float64)) * scale
    if reach == 1:
        weights = np.maximum(1 - distances, 0)
    else:
        near, far = keys_kernel(attrs.number("cubic_coeff_a"))
        weights = np.where(distances <= 1, near(distances), np.where(distances < 2, far(distances), 0))
    return offsets, weights / weights.sum(axis=1, keepdims=True)


def _changed_axes(attrs: Attrs, shape: Sequence[int]) -> Iterator[tuple[int, Array, Array]]:
    """The axes of a tensor of `shape` that are resized, each with its table."""
    extents = zip(shape, attrs.integers("sizes"), attrs.numbers("scales"), strict=True)
    whole = attrs.text("coordinate_transformation_mode") != _REGION
    for axis, (source, target, scale) in enumerate(extents):
        same = whole or (attrs.numbers("first")[axis], attrs.numbers("last")[axis]) == (0, 1)
        if scale != 1 or target != source or not same:
            yield axis, *_axis_table(attrs, axis, source)


def _between(kind: DType) -> DType:
    """The type in which integers are interpolated; results are cut towards zero, as runtimes do."""
    return kind if kind.is_float else F64 if kind.bits > F32.bits else F32


def _limits(kind: DType) -> tuple[Array, Array]:
    """The least and the greatest value between which results become integers of a type."""
    wide, bounds = to_numpy(_between(kind)).type, np.iinfo(to_numpy(kind))
    most = wide(bounds.max)
    if int(most) > bounds.max:
        most = np.nextafter(most, wide(0))
    return np.asarray(wide(bounds.min)), np.asarray(most)


def _reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, kind = arrays[0], arrays[0].dtype
    if kind.kind in "iu" and attrs.text("mode") != "nearest":
        found = _reference([x.astype(to_numpy(_between(from_numpy(kind))))], attrs)[0]
        return (np.clip(found, *_limits(from_numpy(kind))).astype(kind),)
    for axis, indices, weights in _changed_axes(attrs, x.shape):
        shape = [-1 if at == axis else 1 for at in range(x.ndim)]
        outside = _outside(attrs, axis, x.shape[axis])
        if weights.shape[1] == 1:
            x = np.take(x, indices[:, 0], axis=axis)
        else:
            wide = widened_array(x)
            taps = zip(indices.T, weights.T.astype(wide.dtype), strict=True)
            parts = (np.take(wide, i, axis=axis) * w.reshape(shape) for i, w in taps)
            x = sum(parts, np.zeros((), wide.dtype))
        if outside is not None:
            x = np.where(outside.reshape(shape), x.dtype.type(attrs.number("outside")), x)
    return (x.astype(kind, copy=False),)


def _whole_factor(attrs: Attrs, axis: int, source: int) -> int:
    """R when result element i is source element i // r, else 0."""
    target = attrs.integers("sizes")[axis]
    if attrs.text("mode") != "nearest" or target % source:
        return 0
    if attrs.text("coordinate_transformation_mode") == _REGION:
        return 0
    indices, _ = _axis_table(attrs, axis, source)
    factor = target // source
    return factor if np.array_equal(indices[:, 0], np.arange(target) // factor) else 0


def _expand(e: Emitter, item: Node) -> Values:
    value, attrs = item.inputs[0], item.attrs
    shape = value.type.shape
    factors = tuple(_whole_factor(attrs, axis, n) for axis, n in enumerate(shape))
    if all(factors):
        return (e.emit("Repeat", value, repeats=factors),)
    kind = value.type.dtype
    if attrs.text("mode") == "nearest" or kind.is_float:
        return (_resized(e, value, attrs),)
    found = _resized(e, e.emit("Cast", value, to=_between(kind)), attrs)
    for op, limit in zip(("Max", "Min"), _limits(kind), strict=True):
        found = e.emit(op, found, e.constant(limit))
    return (e.emit("Cast", found, to=kind),)


def _resized(e: Emitter, value: Value, attrs: Attrs) -> Value:
    shape = value.type.shape
    for axis, indices, weights in _changed_axes(attrs, shape):
        outside = _outside(attrs, axis, shape[axis])
        value = (_multiply_axis if weights.shape[1] > _MOST_TAPS else _resize_axis)(
            e, value, axis, indices, weights
        )
        if outside is not None and outside.any():
            beyond = np.asarray(attrs.number("outside"), to_numpy(value.type.dtype))
            value = e.emit("Where", _column(e, value, axis, outside), e.constant(beyond), value)
    return value


def _column(e: Emitter, value: Value, axis: int, items: Array) -> Value:
    """One number for each element along an axis, as a constant that broadcasts to `value`."""
    return e.constant(items.reshape(-1, *([1] * (value.type.rank - axis - 1))))


def _resize_axis(e: Emitter, value: Value, axis: int, indices: Array, weights: Array) -> Value:
    parts = []
    for at, weight in zip(indices.T, weights.T, strict=True):
        part = e.emit("Gather", value, e.constant(at.astype(np.int64)), axis=axis)
        if weights.shape[1] > 1:
            part = e.emit("Mul", part, _column(e, part, axis, weight.astype(to_numpy(value.type.dtype))))
        parts.append(part)
    return reduce(partial(e.emit, "Add"), parts)


def _multiply_axis(e: Emitter, value: Value, axis: int, indices: Array, weights: Array) -> Value:
    """All weights as one matrix, (target, source)."""
    shape = value.type.shape
    matrix = np.zeros((weights.shape[0], shape[axis]))
    np.add.at(matrix, (np.arange(weights.shape[0])[:, None], indices), weights)
    known = e.constant(matrix.astype(to_numpy(value.type.dtype)))
    lead, rest = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    if rest == 1:
        rows = e.emit("Reshape", value, shape=(lead, shape[axis]))
        made = e.emit("MatMul", rows, e.emit("Transpose", known, perm=(1, 0)))
    else:
        made = e.emit("MatMul", known, e.emit("Reshape", value, shape=(lead, shape[axis], rest)))
    return e.emit("Reshape", made, shape=(*shape[:axis], weights.shape[0], *shape[axis + 1 :]))


def _flops(info: NodeInfo) -> int:
    taps: int = {"nearest": 0, "linear": 4, "cubic": 8}[info.attrs.text("mode")]
    return taps * info.out_types[0].size


_NEW: dict[str, AttrValue | None] = {**_DEFAULTS, "extrapolation_value": 0.0}
_INPUTS = {1: "roi", 2: "scales", 3: "sizes"}
_MAYBE = frozenset({1, 2, 3})
RESIZE = Op(
    "Resize", Kind.INJECTIVE, _infer, _reference, (1, 1),
    (
        Signature(10, {"mode": "nearest"}, {1: "scales"}, adapt=_old_import, at_run=resized_at_run),
        Signature(11, _NEW, _INPUTS, adapt=_resize_import, optional=_MAYBE,
                  at_run=resized_at_run),
        Signature(18, {**_NEW, "antialias": 0, "axes": None, "keep_aspect_ratio_policy": "stretch"}, _INPUTS,
                  adapt=_resize_import, optional=_MAYBE, at_run=resized_at_run),
    ),
    expand=_expand, flops=_flops,
)  # fmt: skip
UPSAMPLE = Op(
    "Upsample", Kind.INJECTIVE, _infer, _reference, (1, 1),
    (
        Signature(7, {"mode": "nearest", "scales": None}, adapt=_old_import),
        Signature(9, {"mode": "nearest"}, {1: "scales"}, adapt=_old_import, at_run=resized_at_run),
    ),
    expand=_expand, flops=_flops,
)  # fmt: skip

OPS = (RESIZE, UPSAMPLE)
