"""Sums over regions that data places: RoiAlign, and DeformConv with a position for each tap."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, accumulate_type, to_numpy
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
    rounded_once,
)
from compiler.graph.ops.elementwise import FLOATS, check_kind
from compiler.graph.ops.indexing import emit_slice
from compiler.graph.ops.linear import check_weights
from compiler.graph.ops.sampling import sample_reference
from compiler.graph.ops.windows import Windows, import_windows, windows_of

# ---------------------------------------------------------------- regions of interest


def _roi_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    mode, ratio = given.text("mode"), given.integer("sampling_ratio")
    if mode not in ("avg", "max"):
        raise InvalidError(f"RoiAlign has no mode {mode!r}")
    if ratio <= 0:
        raise UnsupportedError(
            "RoiAlign with sampling_ratio 0 is not supported: regions say how many points a bin has"
        )
    half = given.text("coordinate_transformation_mode", "output_half_pixel") == "half_pixel"
    return inputs, {
        "mode": mode,
        "bins": (given.integer("output_height"), given.integer("output_width")),
        "ratio": ratio,
        "scale": given.number("spatial_scale"),
        "half": half,
    }


def _roi_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    source, rois, images = types
    check_kind("RoiAlign", source.dtype, FLOATS)
    if source.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or images.shape != rois.shape[:1]:
        raise InvalidError(f"RoiAlign of {source} with regions {rois} of images {images}")
    bins = attrs.integers("bins")
    if min(bins) < 1:
        raise InvalidError(f"RoiAlign into {list(bins)} bins")
    return (source.with_shape((rois.shape[0], source.shape[1], *bins)),)


def _roi_points(attrs: Attrs, axis: int) -> Array:
    """Where in bins, from the beginning of a region, its points lie."""
    count, ratio = attrs.integers("bins")[axis], attrs.integer("ratio")
    return (np.arange(count * ratio, dtype=np.float64) + 0.5) / ratio


def _roi_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, rois, images = arrays
    kind = np.promote_types(rois.dtype, np.float32)
    scaled = rois.astype(kind) * kind.type(attrs.number("scale")) - kind.type(
        0.5 if attrs.flag("half") else 0
    )
    places = []
    for axis in range(2):
        low, high = scaled[:, 1 - axis], scaled[:, 3 - axis]
        size = high - low if attrs.flag("half") else np.maximum(high - low, 1)
        steps = _roi_points(attrs, axis).astype(kind)
        place = low[:, None] + size[:, None] / kind.type(attrs.integers("bins")[axis]) * steps
        places.append(place[:, :, None] if axis == 0 else place[:, None])
    combine = "max" if attrs.text("mode") == "max" else "sum"
    made = Attrs({"mode": "linear", "padding": "region", "align": True, "chosen": True, "combine": combine})
    found = sample_reference((x, images, *places), made)[0]
    ratio, (height, width) = attrs.integer("ratio"), attrs.integers("bins")
    apart = found.reshape(*found.shape[:2], height, ratio, width, ratio)
    if combine == "max":
        return (apart.max(axis=(3, 5)),)
    return (apart.astype(np.float64).mean(axis=(3, 5)).astype(x.dtype),)


def _roi_expand(e: Emitter, item: Node) -> Values:
    (source, rois, images), attrs = item.inputs, item.attrs
    rois = e.emit("Cast", rois, to=accumulate_type(rois.type.dtype))
    kind, count = to_numpy(rois.type.dtype), rois.type.shape[0]

    def number(value: float | Array) -> Value:
        return e.constant(np.asarray(value, kind))

    scaled = e.emit("Mul", rois, number(attrs.number("scale")))
    if attrs.flag("half"):
        scaled = e.emit("Sub", scaled, number(0.5))
    places = []
    for axis in range(2):
        low, high = emit_slice(e, scaled, 1, 1 - axis, 1), emit_slice(e, scaled, 1, 3 - axis, 1)
        size = e.emit("Sub", high, low)
        if not attrs.flag("half"):
            size = e.emit("Max", size, number(1))  # regions without an extent are one element large
        step = e.emit("Mul", size, number(1 / attrs.integers("bins")[axis]))
        place = e.emit("Add", low, e.emit("Mul", step, number(_roi_points(attrs, axis)[None])))
        points = place.type.shape[1]
        places.append(e.emit("Reshape", place, shape=(count, points, 1) if axis == 0 else (count, 1, points)))
    combine = "max" if attrs.text("mode") == "max" else "sum"
    found = e.emit(
        "Sample", source, images, *places, mode="linear", padding="region", align=True, chosen=True,
        combine=combine,
    )  # fmt: skip
    ratio = attrs.integer("ratio")
    windows = Windows((ratio, ratio), (ratio, ratio), (1, 1), (0, 0), (0, 0)).attrs()
    if combine == "max":
        return (e.emit("MaxPool", found, **windows),)
    return (e.emit("AveragePool", found, **windows, counted_before=(0, 0), counted_after=(0, 0)),)


_ROI: dict[str, AttrValue | None] = {
    "mode": "avg", "output_height": 1, "output_width": 1, "sampling_ratio": 0, "spatial_scale": 1.0,
}  # fmt: skip

ROI_ALIGN = Op(
    "RoiAlign", Kind.REDUCTION, _roi_infer, _roi_reference, (3, 3),
    (
        Signature(10, _ROI, adapt=_roi_import),
        Signature(16, {**_ROI, "coordinate_transformation_mode": "half_pixel"}, adapt=_roi_import),
    ),
    expand=_roi_expand, flops=lambda info: 8 * info.out_types[0].size * info.attrs.integer("ratio") ** 2,
)  # fmt: skip

# ---------------------------------------------------------------- deformable convolution


def _deform_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    kernel = check_weights([value.type for value in inputs], given)
    windows = import_windows(given, kernel, inputs[0].type.shape[2:])
    more = {"bias": node.has(3), "mask": node.has(4)}
    return inputs, {
        **windows.attrs(),
        "group": given.integer("group"),
        "offset_group": given.integer("offset_group"),
        **more,
    }


def _deform_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    source, weights, offset = types[:3]
    check_kind("DeformConv", source.dtype, FLOATS)
    group, parts, windows = attrs.integer("group"), attrs.integer("offset_group"), windows_of(attrs)
    channels, outer = source.shape[1], weights.shape[0]
    if min(group, parts) < 1 or channels != weights.shape[1] * group or outer % group or channels % parts:
        raise InvalidError(f"{channels} channels, {group} groups, {parts} of offsets, {weights} do not fit")
    result = (source.shape[0], outer, *windows.counts(source.shape[2:]))
    rank = source.rank - 2
    if offset.shape != (source.shape[0], parts * windows.taps * rank, *result[2:]):
        raise InvalidError(f"offsets {offset} do not fit results of shape {list(result)}")
    if attrs.flag("mask") and types[-1].shape != (source.shape[0], parts * windows.taps, *result[2:]):
        raise InvalidError(f"the mask {types[-1]} does not fit results of shape {list(result)}")
    return (source.with_shape(result),)


def _first_places(windows: Windows, shape: Sequence[int], axis: int) -> Array:
    """Where along an axis each tap of each window lies without offsets: (taps, *windows)."""
    rank = len(windows.kernel)
    taps = np.indices(windows.kernel)[axis].reshape(-1, *([1] * rank)) * windows.dilations[axis]
    starts = np.arange(shape[axis]) * windows.strides[axis] - windows.before[axis]
    along = [-1 if at == axis else 1 for at in range(rank)]
    return np.asarray(taps + starts.reshape(along), np.float64)


@rounded_once
def _deform_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    x, w, offset, *rest = arrays
    windows, group, parts = windows_of(attrs), attrs.integer("group"), attrs.integer("offset_group")
    rank, out = len(windows.kernel), offset.shape[2:]
    moved = offset.reshape(x.shape[0] * parts, windows.taps, rank, *out)
    places = [moved[:, :, axis] + _first_places(windows, out, axis) for axis in range(rank)]
    images = x.reshape(x.shape[0] * parts, x.shape[1] // parts, *x.shape[2:])
    made = Attrs({"mode": "linear", "padding": "zeros", "align": True, "chosen": False, "combine": "sum"})
    found = sample_reference((images, *places), made)[0]
    if attrs.flag("mask"):
        found = found * rest[-1].reshape(x.shape[0] * parts, 1, windows.taps, *out)
    columns = found.reshape(x.shape[0], group, -1, math.prod(out))
    filters = w.reshape(group, w.shape[0] // group, -1)
    result = np.matmul(filters, columns).reshape(x.shape[0], w.shape[0], *out)
    return np.asarray(result + rest[0].reshape(-1, *([1] * rank)) if attrs.flag("bias") else result)


def _deform_expand(e: Emitter, item: Node) -> Values:
    """Columns of sampled elements, and a pointwise convolution of them."""
    (source, weights, offset, *rest), attrs = item.inputs, item.attrs
    windows, parts = windows_of(attrs), attrs.integer("offset_group")
    rank, out, taps = len(windows.kernel), offset.type.shape[2:], windows.taps
    batch, channels = source.type.shape[:2]
    rows = batch * parts
    wide = accumulate_type(offset.type.dtype)
    moved = e.emit("Reshape", e.emit("Cast", offset, to=wide), shape=(rows, taps, rank, *out))
    places = []
    for axis in range(rank):
        part = e.emit("Reshape", emit_slice(e, moved, 2, axis, 1), shape=(rows, taps, *out))
        first = e.constant(_first_places(windows, out, axis).astype(to_numpy(wide)))
        places.append(e.emit("Add", part, first))
    images = e.emit("Reshape", source, shape=(rows, channels // parts, *source.type.shape[2:]))
    found = e.emit(
        "Sample", images, *places, mode="linear", padding="zeros", align=True, chosen=False, combine="sum"
    )
    if attrs.flag("mask"):
        found = e.emit("Mul", found, e.emit("Reshape", rest[-1], shape=(rows, 1, taps, *out)))
    columns = e.emit("Reshape", found, shape=(batch, channels * taps, *out))
    outer, inner = weights.type.shape[:2]
    filters = e.emit("Reshape", weights, shape=(outer, inner * taps, *([1] * rank)))
    ones, nothing = (1,) * rank, (0,) * rank
    point = Windows(ones, ones, ones, nothing, nothing)
    bias = rest[:1] if attrs.flag("bias") else []
    return (e.emit("Conv", columns, filters, *bias, **point.attrs(), group=attrs.integer("group")),)


def _deform_flops(info: NodeInfo) -> int:
    weights = info.in_types[1]
    return 2 * info.out_types[0].size * weights.size // max(weights.shape[0], 1)


DEFORM_CONV = Op(
    "DeformConv", Kind.ANCHOR, _deform_infer, _deform_reference, (3, 5),
    (
        Signature(
            19,
            {"kernel_shape": None, "strides": None, "dilations": None, "pads": None, "group": 1,
             "offset_group": 1},
            adapt=_deform_import, optional=frozenset({3, 4}),
        ),
    ),
    expand=_deform_expand, flops=_deform_flops,
)  # fmt: skip

OPS = (ROI_ALIGN, DEFORM_CONV)
