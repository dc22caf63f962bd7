"""Transposed convolution, as a convolution whose output channels are interleaved into the image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, accumulate_type, from_numpy, to_numpy
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
    array_type,
    same_dtype,
)
from compiler.graph.ops.linear import check_weights
from compiler.graph.ops.windows import Windows, windows_of


def _transposed_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """`before` and `after` are what is cut from the full result; `extra` what is added at its end."""
    given = Attrs(attrs)
    kernel = check_weights([value.type for value in inputs], given)
    spatial, ones = inputs[0].type.shape[2:], (1,) * len(kernel)
    strides, dilations = given.integers("strides", ones), given.integers("dilations", ones)
    extra = given.integers("output_padding", (0,) * len(kernel))
    plain = Windows(kernel, strides, dilations, ones, ones)
    if not len(kernel) == len(strides) == len(dilations) == len(extra):
        raise InvalidError("strides, dilations or output_padding do not fit the kernel")
    full = [(n - 1) * s + r + x for n, s, r, x in zip(spatial, strides, plain.reach, extra, strict=True)]
    pads = given.integers("pads", (0,) * (2 * len(kernel)))
    before, after = pads[: len(kernel)], pads[len(kernel) :]
    mode = given.text("auto_pad")
    wanted = given.integers("output_shape", ())
    if mode.startswith("SAME") and not wanted:
        wanted = tuple(n * s for n, s in zip(spatial, strides, strict=True))
    if wanted:
        total = [f - n for f, n in zip(full, wanted[-len(kernel) :], strict=True)]
        less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        before, after = (less, more) if mode == "SAME_UPPER" else (more, less)
    if min((*before, *after), default=0) < 0:
        raise UnsupportedError(f"negative pads {[*before, *after]} are not supported")
    windows = Windows(kernel, strides, dilations, before, after)
    return inputs, {**windows.attrs(), "extra": extra, "group": given.integer("group")}


def _transposed_shape(types: Types, attrs: Attrs) -> tuple[int, ...]:
    windows, extra = windows_of(attrs), attrs.integers("extra")
    parts = zip(
        types[0].shape[2:], windows.strides, windows.reach, extra, windows.before, windows.after, strict=True
    )
    return tuple((n - 1) * stride + reach + more - low - high for n, stride, reach, more, low, high in parts)


def _transposed_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    same_dtype(types)
    check_weights(types, Attrs())
    source, weights, group = types[0], types[1], attrs.integer("group")
    if source.shape[1] != weights.shape[0] or group < 1 or source.shape[1] % group:
        raise InvalidError(f"{source.shape[1]} channels, {group} groups and weights {weights} do not fit")
    spatial = _transposed_shape(types, attrs)
    if min(spatial) < 1:
        raise InvalidError(f"the result would have shape {list(spatial)}")
    return (source.with_shape((source.shape[0], weights.shape[1] * group, *spatial)),)


def _transposed_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """The definition: each input element adds its multiple of the kernel to the result."""
    x, w, *rest = arrays
    windows, group, extra = windows_of(attrs), attrs.integer("group"), attrs.integers("extra")
    wide = to_numpy(accumulate_type(from_numpy(x.dtype)))
    rank, inner = len(windows.kernel), x.shape[1] // group
    parts = zip(x.shape[2:], windows.strides, windows.reach, extra, strict=True)
    sizes = [(n - 1) * stride + reach + more for n, stride, reach, more in parts]
    result = np.zeros((x.shape[0], w.shape[1] * group, *sizes), wide)
    for at in range(group):
        part = x[:, at * inner : (at + 1) * inner].astype(wide)
        filters = w[at * inner : (at + 1) * inner].astype(wide)
        target = result[:, at * w.shape[1] : (at + 1) * w.shape[1]]
        for tap in np.ndindex(*windows.kernel):
            found = np.moveaxis(np.tensordot(filters[(slice(None), slice(None), *tap)], part, (0, 1)), 0, 1)
            place = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, windows.dilations, x.shape[2:], windows.strides, strict=True)
            )
            target[(slice(None), slice(None), *place)] += found
    spatial = _transposed_shape([array_type(x), array_type(w)], attrs)
    cut = tuple(slice(low, low + n) for low, n in zip(windows.before, spatial, strict=True))
    result = result[(slice(None), slice(None), *cut)]
    if rest:
        result = result + rest[0].reshape(-1, *([1] * rank))
    return (result.astype(x.dtype, copy=False),)


def _along(shape: Sequence[int], axis: int, extents: Sequence[int]) -> tuple[int, ...]:
    """`shape` with one axis replaced by several."""
    return (*shape[:axis], *extents, *shape[axis + 1 :])


def _pad_end(e: Emitter, value: Value, axis: int, count: int) -> Value:
    rank = value.type.rank
    after = tuple(count if at == axis else 0 for at in range(rank))
    return (
        e.emit("Pad", value, before=(0,) * rank, after=after, mode="constant", value=0.0) if count else value
    )


def _spread(e: Emitter, weights: Value, windows: Windows) -> Value:
    """Weights with the gaps of dilation written out as zeros, so that every kernel is `reach` long."""
    for axis, (taps, gap) in enumerate(zip(windows.kernel, windows.dilations, strict=True), 2):
        if gap == 1 or taps == 1:
            continue
        shape = weights.type.shape
        apart = e.emit("Reshape", weights, shape=_along(shape, axis, (taps, 1)))
        padded = _pad_end(e, apart, axis + 1, gap - 1)
        joined = e.emit("Reshape", padded, shape=_along(shape, axis, (taps * gap,)))
        weights = _cut(e, joined, axis, 0, (taps - 1) * gap + 1)
    return weights


def _cut(e: Emitter, value: Value, axis: int, first: int, count: int) -> Value:
    shape = value.type.shape
    if first == 0 and count == shape[axis]:
        return value
    begin = tuple(first if at == axis else 0 for at in range(len(shape)))
    return e.emit("Slice", value, begin=begin, step=(1,) * len(shape), size=_along(shape, axis, (count,)))


def _phase_weights(e: Emitter, weights: Value, strides: Sequence[int], group: int) -> Value:
    """(C, K/G, *kernel) -> (K * phases, C/G, *taps): for each phase of the stride its taps, flipped."""
    rank = len(strides)
    taps = []
    for axis, stride in enumerate(strides, 2):
        count = -(-weights.type.shape[axis] // stride)
        weights = _pad_end(e, weights, axis, count * stride - weights.type.shape[axis])
        taps.append(count)
    channels, outer = weights.type.shape[:2]
    pairs = [extent for pair in zip(taps, strides, strict=True) for extent in pair]
    split = e.emit("Reshape", weights, shape=(group, channels // group, outer, *pairs))
    flipped = [3 + 2 * axis for axis in range(rank)]
    shape = split.type.shape
    turned = e.emit(
        "Slice",
        split,
        begin=tuple(n - 1 if at in flipped else 0 for at, n in enumerate(shape)),
        step=tuple(-1 if at in flipped else 1 for at in range(len(shape))),
        size=shape,
    )
    phases = [axis + 1 for axis in flipped]
    moved = e.emit("Transpose", turned, perm=(0, 2, *phases, 1, *flipped))
    return e.emit("Reshape", moved, shape=(group * outer * math.prod(strides), channels // group, *taps))


def _phase_bias(e: Emitter, bias: Value, phases: int) -> Value:
    channels = bias.type.shape[0]
    column = e.emit("Reshape", bias, shape=(channels, 1))
    return e.emit("Reshape", e.emit("Expand", column, shape=(channels, phases)), shape=(channels * phases,))


def _expand(e: Emitter, item: Node) -> Values:
    """Phase p of the result, every stride-th element from p on, is a convolution with every stride-th weight.

    All phases are computed as output channels of one convolution and then interleaved. With Q results per
    phase, y[q * stride + p] = sum over j of x[q - j] * w[j * stride + p].
    """
    windows, group = windows_of(item.attrs), item.attrs.integer("group")
    source, out, strides = item.inputs[0], item.output.type, windows.strides
    weights = _phase_weights(e, _spread(e, item.inputs[1], windows), strides, group)
    phases, taps = math.prod(strides), weights.type.shape[2:]
    skipped = tuple(min(low // s, t - 1) for low, s, t in zip(windows.before, strides, taps, strict=True))
    offset = tuple(low - q * s for low, q, s in zip(windows.before, skipped, strides, strict=True))
    count = tuple(-(-(o + n) // s) for o, n, s in zip(offset, out.shape[2:], strides, strict=True))
    before = tuple(t - 1 - q for t, q in zip(taps, skipped, strict=True))
    parts = zip(source.type.shape[2:], before, taps, count, strict=True)
    after = tuple(max(q - (n + low - t + 1), 0) for n, low, t, q in parts)
    ones = (1,) * len(taps)
    shape = Windows(taps, ones, ones, before, after)
    extra = (_phase_bias(e, item.inputs[2], phases),) if len(item.inputs) > 2 else ()
    result = e.emit("Conv", source, weights, *extra, **shape.attrs(), group=group)
    for axis, n in enumerate(count, 2):
        result = _cut(e, result, axis, 0, n)
    if phases > 1:
        result = _interleave(e, result, strides)
    for axis, (first, n) in enumerate(zip(offset, out.shape[2:], strict=True), 2):
        result = _cut(e, result, axis, first, n)
    return (result,)


def _interleave(e: Emitter, value: Value, strides: Sequence[int]) -> Value:
    """(N, K * phases, *Q) -> (N, K, *(Q * stride))."""
    batch, channels, *counts = value.type.shape
    rank, outer = len(strides), channels // math.prod(strides)
    apart = e.emit("Reshape", value, shape=(batch, outer, *strides, *counts))
    perm = [axis for at in range(rank) for axis in (2 + rank + at, 2 + at)]
    moved = e.emit("Transpose", apart, perm=(0, 1, *perm))
    grown = tuple(n * s for n, s in zip(counts, strides, strict=True))
    return e.emit("Reshape", moved, shape=(batch, outer, *grown))


def _flops(info: NodeInfo) -> int:
    weights = info.in_types[1]
    return 2 * info.in_types[0].size * weights.size // weights.shape[0]


_ATTRS: dict[str, AttrValue | None] = {
    "kernel_shape": None, "strides": None, "dilations": None, "pads": None, "auto_pad": "NOTSET", "group": 1,
    "output_padding": None, "output_shape": None,
}  # fmt: skip

CONV_TRANSPOSE = Op(
    "ConvTranspose", Kind.ANCHOR, _transposed_infer, _transposed_reference, (2, 3),
    (Signature(1, _ATTRS, adapt=_transposed_import, optional=frozenset({2})),), expand=_expand, flops=_flops,
)  # fmt: skip

OPS = (CONV_TRANSPOSE,)
