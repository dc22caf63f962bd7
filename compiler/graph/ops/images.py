"""Images cut, padded and put together: CenterCropPad, Col2Im."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, NodeInfo, TensorType
from compiler.graph.op import (
    Emitter,
    Form,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Sign,
    Signature,
    Types,
    Values,
    no_flops,
    normal_axis,
    rounded_once,
)
from compiler.graph.ops.elementwise import widen
from compiler.graph.ops.indexing import emit_slice
from compiler.graph.ops.movement import ravel
from compiler.graph.ops.reduction import reduce_block
from compiler.graph.ops.windows import import_windows, windows_of
from compiler.loops.build import Builder
from compiler.loops.ir import Buffer, Expr, Select, all_of, maximum, minimum, wrap

# ---------------------------------------------------------------- CenterCropPad


def _centre_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given, rank = Attrs(attrs), inputs[0].type.rank
    wanted = given.integers("shape")
    axes = tuple(normal_axis(axis, rank) for axis in given.integers("axes", tuple(range(rank))))
    if len(wanted) != len(axes) or min(wanted, default=0) < 0:
        raise InvalidError(f"CenterCropPad to {list(wanted)} along {len(axes)} axes")
    shape = list(inputs[0].type.shape)
    for axis, size in zip(axes, wanted, strict=True):
        shape[axis] = size
    return inputs, {"shape": tuple(shape)}


def _centre_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0].with_shape(attrs.integers("shape")),)


def _shares(extent: int, wanted: int) -> tuple[int, int]:
    """Elements cut at the beginning, and elements added there."""
    return max(extent - wanted, 0) // 2, max(wanted - extent, 0) // 2


def _centre_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, wanted = arrays[0], attrs.integers("shape")
    result = np.zeros(wanted, x.dtype)
    taken, put = [], []
    for n, size in zip(x.shape, wanted, strict=True):
        cut, low = _shares(n, size)
        count = min(n, size)
        taken.append(slice(cut, cut + count))
        put.append(slice(low, low + count))
    result[tuple(put)] = x[tuple(taken)]
    return (result,)


def _centre_expand(e: Emitter, item: Node) -> Values:
    value, wanted = item.inputs[0], item.output.type.shape
    before, after = [], []
    for axis, (n, size) in enumerate(zip(value.type.shape, wanted, strict=True)):
        cut, low = _shares(n, size)
        value = emit_slice(e, value, axis, cut, min(n, size))
        before.append(low)
        after.append(max(size - n, 0) - low)
    if any((*before, *after)):
        zero = 0.0 if value.type.dtype.is_float else 0
        value = e.emit("Pad", value, before=tuple(before), after=tuple(after), mode="constant", value=zero)
    return (value,)


CENTER_CROP_PAD = Op(
    "CenterCropPad", Kind.INJECTIVE, _centre_infer, _centre_reference, (1, 1),
    (Signature(18, {"axes": None}, {1: "shape"}, adapt=_centre_import),),
    expand=_centre_expand, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip

# ---------------------------------------------------------------- Col2Im


def _columns_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    image, kernel = given.integers("image_shape"), given.integers("block_shape")
    return inputs, {**import_windows(given, kernel, image).attrs(), "image": image}


def _columns_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    source, windows, image = types[0], windows_of(attrs), attrs.integers("image")
    count = math.prod(windows.counts(image))
    if source.rank != 3 or source.shape[1] % windows.taps or source.shape[2] != count:
        raise InvalidError(
            f"Col2Im of {source}, expected multiples of {windows.taps} rows of {count} columns"
        )
    return (source.with_shape((source.shape[0], source.shape[1] // windows.taps, *image)),)


@rounded_once
def _columns_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    x, windows, image = arrays[0], windows_of(attrs), attrs.integers("image")
    counts = windows.counts(image)
    x = x.reshape(x.shape[0], -1, *windows.kernel, *counts)
    padded = [low + n + high for low, n, high in zip(windows.before, image, windows.after, strict=True)]
    result = np.zeros((*x.shape[:2], *padded), x.dtype)
    for tap in np.ndindex(*windows.kernel):
        rows = zip(tap, windows.dilations, windows.strides, counts, strict=True)
        place = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in rows)
        result[(slice(None), slice(None), *place)] += x[(slice(None), slice(None), *tap)]
    inside = tuple(slice(low, low + n) for low, n in zip(windows.before, image, strict=True))
    return np.asarray(result[(slice(None), slice(None), *inside)])


def _columns_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """For each element the sum over taps of the windows that have it there."""
    windows, out = windows_of(info.attrs), info.out_types[0]
    counts, rank = windows.counts(out.shape[2:]), len(windows.kernel)

    def at(*index: Expr) -> Expr:
        taps, window = index[out.rank :], list[Expr]()
        inside: list[Expr | None] = []
        for axis in range(rank):
            first = index[2 + axis] + windows.before[axis] - taps[axis] * windows.dilations[axis]
            number, stride = first // windows.strides[axis], windows.strides[axis]
            inside += [first.ge(0), number.lt(counts[axis])]
            inside.append((number * stride).eq(first) if stride > 1 else None)
            window.append(minimum(maximum(number, 0), counts[axis] - 1))
        row = ravel((index[1], *taps), (1, *windows.kernel))
        value = widen(inputs[0][(index[0], row, ravel(window, counts))])
        guard = all_of(*inside)
        assert guard is not None
        return Select(guard, value, wrap(0, value.dtype))

    return reduce_block(b, "col2im", out.shape, windows.kernel, at, "sum", out.dtype)


def _columns_flops(info: NodeInfo) -> int:
    return info.out_types[0].size * windows_of(info.attrs).taps


COL2IM = Op(
    "Col2Im", Kind.REDUCTION, _columns_infer, _columns_reference, (1, 1),
    (
        Signature(18, {"strides": None, "dilations": None, "pads": None},
                  {1: "image_shape", 2: "block_shape"}, adapt=_columns_import),
    ),
    forms={"direct": Form(_columns_form)}, flops=_columns_flops, sign=Sign.KEEPS,
)  # fmt: skip

OPS = (CENTER_CROP_PAD, COL2IM)
