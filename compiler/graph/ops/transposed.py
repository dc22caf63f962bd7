"""Transposed convolution, as a convolution whose output channels are interleaved into the image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array
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
    Values,
    rounded_once,
    same_dtype,
)
from compiler.graph.ops.indexing import emit_slice
from compiler.graph.ops.linear import check_weights
from compiler.graph.ops.repeating import emit_repeated
from compiler.graph.ops.windows import Windows, check_positive, share_pads, windows_of


def _transposed_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """`before` and `after` are what is cut from the full result, or added where they are negative.

    `extra` is what is added at its end.
    """
    given = Attrs(attrs)
    kernel = check_weights([value.type for value in inputs], given)
    spatial, ones = inputs[0].type.shape[2:], (1,) * len(kernel)
    strides, dilations = given.integers("strides", ones), given.integers("dilations", ones)
    extra = given.integers("output_padding", (0,) * len(kernel))
    plain = Windows(kernel, strides, dilations, ones, ones)
    if not len(kernel) == len(strides) == len(dilations) == len(extra):
        raise InvalidError("strides, dilations or output_padding do not fit the kernel")
    check_positive(plain)
    full = _full_extents(spatial, plain, extra)
    pads = given.integers("pads", (0,) * (2 * len(kernel)))
    before, after = pads[: len(kernel)], pads[len(kernel) :]
    mode = given.text("auto_pad")
    wanted = given.integers("output_shape", ())
    if mode.startswith("SAME") and not wanted:
        wanted = tuple(n * s for n, s in zip(spatial, strides, strict=True))
    if wanted:
        total = [f - n for f, n in zip(full, wanted[-len(kernel) :], strict=True)]
        before, after = share_pads([max(one, 0) for one in total], mode)
        after = tuple(high + min(one, 0) for high, one in zip(after, total, strict=True))
    windows = Windows(kernel, strides, dilations, before, after)
    return inputs, {**windows.attrs(), "extra": extra, "group": given.integer("group")}


def _full_extents(spatial: Sequence[int], windows: Windows, extra: Sequence[int]) -> list[int]:
    """Extents of the result before its pads are cut."""
    parts = zip(spatial, windows.strides, windows.reach, extra, strict=True)
    return [(n - 1) * stride + reach + more for n, stride, reach, more in parts]


def _cut_extents(spatial: Sequence[int], attrs: Attrs) -> tuple[int, ...]:
    """Extents of the result."""
    windows = windows_of(attrs)
    full = _full_extents(spatial, windows, attrs.integers("extra"))
    return tuple(n - low - high for n, low, high in zip(full, windows.before, windows.after, strict=True))


def _transposed_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    same_dtype(types)
    check_weights(types, Attrs())
    source, weights, group = types[0], types[1], attrs.integer("group")
    if source.shape[1] != weights.shape[0] or group < 1 or source.shape[1] % group:
        raise InvalidError(f"{source.shape[1]} channels, {group} groups and weights {weights} do not fit")
    spatial = _cut_extents(source.shape[2:], attrs)
    if min(spatial) < 1:
        raise InvalidError(f"the result would have shape {list(spatial)}")
    return (source.with_shape((source.shape[0], weights.shape[1] * group, *spatial)),)


@rounded_once
def _transposed_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    """The definition: each input element adds its multiple of the kernel to the result."""
    x, w, *rest = arrays
    windows, group = windows_of(attrs), attrs.integer("group")
    rank, inner = len(windows.kernel), x.shape[1] // group
    sizes = _full_extents(x.shape[2:], windows, attrs.integers("extra"))
    result = np.zeros((x.shape[0], w.shape[1] * group, *sizes), x.dtype)
    for at in range(group):
        part = x[:, at * inner : (at + 1) * inner]
        filters = w[at * inner : (at + 1) * inner]
        target = result[:, at * w.shape[1] : (at + 1) * w.shape[1]]
        for tap in np.ndindex(*windows.kernel):
            found = np.moveaxis(np.tensordot(filters[(slice(None), slice(None), *tap)], part, (0, 1)), 0, 1)
            place = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, windows.dilations, x.shape[2:], windows.strides, strict=True)
            )
            target[(slice(None), slice(None), *place)] += found
    spatial = _cut_extents(x.shape[2:], attrs)
    grown = [(max(-low, 0), max(-high, 0)) for low, high in zip(windows.before, windows.after, strict=True)]
    result = np.pad(result, [(0, 0), (0, 0), *grown])
    cut = tuple(slice(max(low, 0), max(low, 0) + n) for low, n in zip(windows.before, spatial, strict=True))
    result = result[(slice(None), slice(None), *cut)]
    return result + rest[0].reshape(-1, *([1] * rank)) if rest else result


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
        weights = emit_slice(e, joined, axis, 0, (taps - 1) * gap + 1)
    return weights


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
    bias = (emit_repeated(e, value, phases) for value in item.inputs[2:])
    result = e.emit("Conv", source, weights, *bias, **shape.attrs(), group=group)
    for axis, n in enumerate(count, 2):
        result = emit_slice(e, result, axis, 0, n)
    if phases > 1:
        result = _interleave(e, result, strides)
    for axis, (first, n) in enumerate(zip(offset, out.shape[2:], strict=True), 2):
        result = emit_slice(e, result, axis, first, n)
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
