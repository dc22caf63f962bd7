"""Sums of products: convolutions and matrix products, the operators that a network's time goes into."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, NodeInfo, TensorType
from compiler.graph.op import (
    Build,
    Emitter,
    Form,
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
    broadcast_shape,
    everywhere,
    rounded_once,
    same_dtype,
)
from compiler.graph.ops.elementwise import FLOATS, INTS, check_kind, emit_scalar, read_broadcast
from compiler.graph.ops.factors import factor, is_f32, product_dtype, with_factors
from compiler.graph.ops.reduction import reduce_block
from compiler.graph.ops.windows import (
    import_windows,
    pad_array,
    padded_buffer,
    spatial_type,
    window_view,
    windows_of,
)
from compiler.graph.ops.winograd import fused_form, in_chunks, is_winograd, is_winograd_along, winograd_form
from compiler.loops.annotations import STAGE
from compiler.loops.build import Builder
from compiler.loops.index_map import fused
from compiler.loops.ir import Buffer, Expr

# ---------------------------------------------------------------- convolution


def check_weights(inputs: Sequence[TensorType], given: Attrs) -> tuple[int, ...]:
    """The kernel's shape; raises InvalidError where input, weights and `kernel_shape` do not fit."""
    source, weights = inputs[0], inputs[1]
    if source.rank < 3 or weights.rank != source.rank:
        raise InvalidError(f"input {source} and weights {weights} do not make a convolution")
    kernel = weights.shape[2:]
    if given.integers("kernel_shape", kernel) != kernel:
        raise InvalidError(
            f"kernel_shape {list(given.integers('kernel_shape'))} differs from weights {weights}"
        )
    return kernel


def import_conv(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """Canonical attributes of a convolution of the first two inputs."""
    given = Attrs(attrs)
    kernel = check_weights([value.type for value in inputs], given)
    windows = import_windows(given, kernel, inputs[0].type.shape[2:])
    return inputs, {**windows.attrs(), "group": given.integer("group")}


def conv_type(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    """The type of a convolution of input, weights and maybe bias; raises InvalidError."""
    kind = product_dtype(types, attrs)
    check_kind("convolution", kind, FLOATS + INTS)
    kernel, group = check_weights(types, Attrs()), attrs.integer("group")
    out, per_group = types[1].shape[:2]
    if group < 1 or types[0].shape[1] != per_group * group or out % group:
        raise InvalidError(f"{types[0].shape[1]} channels, {group} groups and weights {types[1]} do not fit")
    if len(types) > 2 and types[2].shape != (out,):
        raise InvalidError(f"the bias is {types[2]}, expected {out} elements")
    windows = windows_of(attrs)
    if windows.kernel != kernel:
        raise InvalidError(f"kernel {list(windows.kernel)} differs from weights {types[1]}")
    return (spatial_type(types[0], out, windows).with_dtype(kind),)


@with_factors
def conv_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    """The meaning of a convolution in numpy."""
    x, w, *rest = arrays
    windows, group = windows_of(attrs), attrs.integer("group")
    view = window_view(pad_array(x, windows, 0), windows)
    inner, outer = w.shape[1], w.shape[0] // group
    spatial = view.shape[2 : 2 + len(windows.kernel)]
    result = np.empty((x.shape[0], w.shape[0], *spatial), x.dtype)
    axes = [1, *range(2 + len(spatial), view.ndim)]
    for at in range(group):
        part = view[:, at * inner : (at + 1) * inner]
        filters = w[at * outer : (at + 1) * outer]
        found = np.tensordot(filters, part, (list(range(1, w.ndim)), axes))
        result[:, at * outer : (at + 1) * outer] = np.moveaxis(found, 0, 1)
    if rest:
        result += rest[0].reshape(-1, *([1] * len(spatial)))
    return result


def _conv_flops(info: NodeInfo) -> int:
    """Two operations per product."""
    return 2 * info.out_types[0].size * info.in_types[1].size // info.in_types[1].shape[0]


def _with_bias(b: Builder, sums: Buffer, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    if len(inputs) < 3:
        return sums
    return b.compute("bias", info.out_types[0].shape, lambda *i: sums[i] + inputs[2][i[1]], sums.dtype)


def _conv_direct(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """The definition: for each output element the sum over input channels and taps."""
    windows, out = windows_of(info.attrs), info.out_types[0]
    channels, per_group = out.shape[1], info.in_types[1].shape[1]
    outer = channels // info.attrs.integer("group")
    padded = padded_buffer(b, inputs[0], info.in_types[0], windows)

    def at(n: Expr, k: Expr, *rest: Expr) -> Expr:
        spatial, c, taps = rest[: out.rank - 2], rest[out.rank - 2], rest[out.rank - 1 :]
        channel = c if outer == channels else k // outer * per_group + c
        element = factor(padded[(n, channel, *windows.position(spatial, taps))], info)
        return element * factor(inputs[1][(k, c, *taps)], info)

    sums = reduce_block(b, "conv", out.shape, (per_group, *windows.kernel), at, "sum", out.dtype)
    return _with_bias(b, sums, inputs, info)


def _is_depthwise(info: NodeInfo) -> bool:
    """Whether each output channel reads one input channel."""
    return info.in_types[1].shape[1] == 1 and info.attrs.integer("group") > 1


def _conv_depthwise(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """One input channel per output channel: nothing to sum but the taps."""
    windows, out = windows_of(info.attrs), info.out_types[0]
    multiplier = out.shape[1] // info.in_types[0].shape[1]
    padded = padded_buffer(b, inputs[0], info.in_types[0], windows)

    def at(n: Expr, k: Expr, *rest: Expr) -> Expr:
        spatial, taps = rest[: out.rank - 2], rest[out.rank - 2 :]
        element = factor(padded[(n, k // multiplier, *windows.position(spatial, taps))], info)
        return element * factor(inputs[1][(k, 0, *taps)], info)

    sums = reduce_block(b, "conv", out.shape, windows.kernel, at, "sum", out.dtype)
    return _with_bias(b, sums, inputs, info)


def _is_matrix_product(info: NodeInfo) -> bool:
    """Whether one group of channels in f32 goes through several windows: a product of two large matrices."""
    out = info.out_types[0]
    return info.attrs.integer("group") == 1 and is_f32(info) and prod(out.shape[2:]) > 1


def _conv_im2col(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """A matrix product: pixels of all lines are one axis, and each has a column of what its window reads."""
    windows, out = windows_of(info.attrs), info.out_types[0]
    (batch, outer, *image), inner = out.shape, info.in_types[1].shape[1]
    padded = padded_buffer(b, inputs[0], info.in_types[0], windows)

    def element(n: Expr, c: Expr, *rest: Expr) -> Expr:
        *taps, pixel = rest
        places = [pixel // prod(image[axis + 1 :]) % extent for axis, extent in enumerate(image)]
        places[0] = pixel // prod(image[1:])
        return padded[(n, c, *windows.position(places, taps))]

    shape = (batch, inner, *windows.kernel, prod(image))
    columns = b.compute("columns", shape, element, annotations=((STAGE, "columns"),))
    sums = b.reduce(
        "conv",
        (batch, outer, prod(image)),
        (inner, *windows.kernel),
        lambda n, k, p, c, *taps: columns[(n, c, *taps, p)] * inputs[1][(k, c, *taps)],
    )
    result = b.compute(
        "image", out.shape, lambda n, k, *at: sums[n, k, fused(list(zip(at, image, strict=True)))]
    )
    return _with_bias(b, result, inputs, info)


def _conv_winograd(form: Build) -> Build:
    return lambda b, inputs, info: _with_bias(b, form(b, inputs, info), inputs, info)


_FUSED = {
    f"winograd-fused-{chunks}": Form(_conv_winograd(fused_form(chunks)), in_chunks(chunks), threads=True)
    for chunks in (1, 2, 4, 8)
}
"""Winograd in one launch, and, in several chunks of the channels, a second one that adds them up."""

WINDOW: dict[str, AttrValue | None] = {
    "kernel_shape": None, "strides": None, "dilations": None, "pads": None, "auto_pad": "NOTSET", "group": 1,
}  # fmt: skip
"""Attributes of ONNX's convolutions."""

CONV = Op(
    "Conv", Kind.ANCHOR, conv_type, conv_reference, (2, 3),
    (Signature(1, WINDOW, adapt=import_conv, optional=frozenset({2})),),
    forms={
        "depthwise": Form(_conv_depthwise, _is_depthwise),
        "direct": Form(_conv_direct),
        "winograd-2": Form(_conv_winograd(winograd_form(2, 2)), is_winograd, wants_blocks=True),
        "winograd-4": Form(_conv_winograd(winograd_form(4, 4)), is_winograd, wants_blocks=True),
        **_FUSED,
        "winograd-1x4": Form(_conv_winograd(winograd_form(1, 4)), is_winograd_along(1), searched=is_winograd),
        "winograd-4x1": Form(_conv_winograd(winograd_form(4, 1)), is_winograd_along(0), searched=is_winograd),
        "im2col": Form(_conv_im2col, _is_matrix_product, searched=everywhere),
    },
    flops=_conv_flops, channels=True,
)  # fmt: skip

# ---------------------------------------------------------------- matrix products


def product_shape(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape of numpy's matmul; raises InvalidError."""
    if not a or not b:
        raise InvalidError("a matrix product needs tensors of rank 1 or more")
    left, right = (tuple(a) if len(a) > 1 else (1, *a)), (tuple(b) if len(b) > 1 else (*b, 1))
    if left[-1] != right[-2]:
        raise InvalidError(f"{list(a)} and {list(b)} do not multiply: {left[-1]} columns, {right[-2]} rows")
    batch = broadcast_shape(left[:-2], right[:-2])
    return (*batch, *((left[-2],) if len(a) > 1 else ()), *((right[-1],) if len(b) > 1 else ()))


def _matmul_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    kind = product_dtype(types, attrs)
    if kind.is_bool:
        raise UnsupportedError("matrix products of bool are not supported")
    return (TensorType(kind, product_shape(types[0].shape, types[1].shape)),)


@with_factors
def _matmul_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    return np.asarray(np.matmul(arrays[0], arrays[1]))


def _matmul_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """The definition, with the batch axes broadcast."""
    left, right, out = info.in_types[0].shape, info.in_types[1].shape, info.out_types[0]

    def at(*index: Expr) -> Expr:
        *batch, m, n, k = index
        a = read_broadcast(inputs[0], left, (*batch, m, k))
        return factor(a, info) * factor(read_broadcast(inputs[1], right, (*batch, k, n)), info)

    return reduce_block(b, "matmul", out.shape, (left[-1],), at, "sum", out.dtype)


def _gemv_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """One row times a matrix: each element of the matrix is read once, so its bytes are the time it takes."""
    (inner, columns), out = info.in_types[1].shape, info.out_types[0]

    def at(n: Expr, k: Expr) -> Expr:
        return factor(inputs[0][0, k], info) * factor(inputs[1][k, n], info)

    sums = reduce_block(b, "gemv", (columns,), (inner,), at, "sum", out.dtype)
    return b.compute("row", out.shape, lambda m, n: sums[n], out.dtype)  # noqa: ARG005 - m is 0


def _is_one_row(info: NodeInfo) -> bool:
    return all(item.rank == 2 for item in info.in_types) and info.in_types[0].shape[0] == 1


def _is_matrix(info: NodeInfo) -> bool:
    return all(item.rank > 1 for item in info.in_types)


def _matmul_expand(e: Emitter, item: Node) -> Values | None:
    """Vectors become matrices; a batch that only the left side has becomes rows."""
    left, right = item.inputs
    shape = item.output.type.shape
    if left.type.rank == 1 or right.type.rank == 1:
        left = left if left.type.rank > 1 else e.emit("Reshape", left, shape=(1, *left.type.shape))
        right = right if right.type.rank > 1 else e.emit("Reshape", right, shape=(*right.type.shape, 1))
        return (e.emit("Reshape", e.emit("MatMul", left, right, **item.attrs), shape=shape),)
    if left.type.rank == right.type.rank == 2:
        return None
    rows, inner = left.type.shape[-2:]
    right_batch, left_batch = right.type.shape[:-2], left.type.size // max(rows * inner, 1)
    if any(extent != 1 for extent in right_batch):
        return None
    flat = e.emit("Reshape", left, shape=(left_batch * rows, inner))
    matrix = e.emit("Reshape", right, shape=right.type.shape[-2:])
    return (e.emit("Reshape", e.emit("MatMul", flat, matrix, **item.attrs), shape=shape),)


def _matmul_flops(info: NodeInfo) -> int:
    return 2 * info.out_types[0].size * info.in_types[0].shape[-1]


MATMUL = Op(
    "MatMul", Kind.ANCHOR, _matmul_infer, _matmul_reference, (2, 2), (Signature(1),),
    forms={"gemv": Form(_gemv_form, _is_one_row), "matmul": Form(_matmul_form, _is_matrix)},
    expand=_matmul_expand, flops=_matmul_flops, multiplies=True,
)  # fmt: skip


def _gemm_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    kind = same_dtype(types)
    if types[0].rank != 2 or types[1].rank != 2:
        raise InvalidError(f"Gemm of {types[0]} and {types[1]}, expected matrices")
    left = types[0].shape[::-1] if attrs.flag("transA") else types[0].shape
    right = types[1].shape[::-1] if attrs.flag("transB") else types[1].shape
    shape = product_shape(left, right)
    if len(types) > 2 and broadcast_shape(types[2].shape, shape) != shape:
        raise InvalidError(f"C of Gemm is {types[2]} and does not broadcast to {list(shape)}")
    return (TensorType(kind, shape),)


@rounded_once
def _gemm_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    a, b, *rest = arrays
    found = (a.T if attrs.flag("transA") else a) @ (b.T if attrs.flag("transB") else b)
    found = found * a.dtype.type(attrs.number("alpha"))
    return np.asarray(found + rest[0] * a.dtype.type(attrs.number("beta")) if rest else found)


def _gemm_expand(e: Emitter, item: Node) -> Values:
    """MatMul and Add; the factors go to what is known, so that they cost nothing."""
    a, b, *rest = item.inputs
    alpha, beta = item.attrs.number("alpha"), item.attrs.number("beta")
    a = e.emit("Transpose", a, perm=(1, 0)) if item.attrs.flag("transA") else a
    b = e.emit("Transpose", b, perm=(1, 0)) if item.attrs.flag("transB") else b
    if alpha != 1:
        b = e.emit("Mul", b, emit_scalar(e, alpha, b))
    result = e.emit("MatMul", a, b)
    if not rest or beta == 0:
        return (result,)
    c = rest[0] if beta == 1 else e.emit("Mul", rest[0], emit_scalar(e, beta, rest[0]))
    return (e.emit("Add", result, c),)


def _gemm_flops(info: NodeInfo) -> int:
    inner = info.in_types[0].shape[0 if info.attrs.flag("transA") else 1]
    return 2 * info.out_types[0].size * inner


GEMM = Op(
    "Gemm", Kind.ANCHOR, _gemm_infer, _gemm_reference, (2, 3),
    (
        Signature(
            7,
            {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
            optional=frozenset({2}),
        ),
    ),
    expand=_gemm_expand, flops=_gemm_flops,
)  # fmt: skip

OPS = (CONV, MATMUL, GEMM)
