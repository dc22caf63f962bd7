"""Operators of `com.microsoft` that onnxruntime's optimiser and Olive write: products, activations, norms.

Source: onnxruntime's page of contributed operators (docs/ContribOperators.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.core.types import I32, U8
from compiler.frontend.composites.writer import BodyWriter, Write
from compiler.graph.ir import TensorType
from compiler.graph.op import InvalidError, UnsupportedError

_I32, _U8 = TensorType(I32, ()), TensorType(U8, ())

# ---------------------------------------------------------------- activations


def _gelu(w: BodyWriter) -> tuple[str, ...]:
    return (w.emit("Gelu", w.input(0)),)


def _bias_gelu(w: BodyWriter) -> tuple[str, ...]:
    return (w.emit("Gelu", w.emit("Add", w.input(0), w.input(1))),)


def _fast_gelu(w: BodyWriter) -> tuple[str, ...]:
    return (w.emit("Gelu", w.sum(w.input(0), w.input(1)), approximate="tanh"),)


def _quick_gelu(w: BodyWriter) -> tuple[str, ...]:
    return (w.emit("Swish", w.input(0), alpha=w.attribute("alpha", 1.702)),)


_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
}  # fmt: skip


def _activated(w: BodyWriter, value: str, name: str, numbers: Sequence[float]) -> str:
    if name == "Clip" and len(numbers) == 2:
        return w.emit("Clip", value, *(w.constant(number, w.type(0)) for number in numbers))
    if name not in _PARAMETERS:
        raise UnsupportedError(f"activation {name} is not supported")
    given: dict[str, Any] = dict(zip(_PARAMETERS[name], map(float, numbers), strict=False))
    return w.emit(name, value, **given)


# ---------------------------------------------------------------- products


def _fused_conv(w: BodyWriter) -> tuple[str, ...]:
    return (_conv(w, w.input(0), w.input(3)),)


def _conv(w: BodyWriter, x: str, added: str) -> str:
    """A convolution, a tensor that is added to it, and an activation, where the node has them."""
    how = w.given("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    operands = [name for name in (x, w.input(1), w.input(2)) if name]
    made = w.sum(w.emit("Conv", *operands, **how), added)
    name, numbers = w.attribute("activation", ""), w.attribute("activation_params", ())
    return _activated(w, made, name, numbers) if name else made


def _nhwc_conv(w: BodyWriter) -> tuple[str, ...]:
    """Image and result with channels last, weights as in Conv."""
    rank = w.type(0).rank
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    x, added = (w.emit("Transpose", name, perm=first) if name else "" for name in (w.input(0), w.input(3)))
    return (w.emit("Transpose", _conv(w, x, added), perm=last),)


def _fused_matmul(w: BodyWriter) -> tuple[str, ...]:
    w.refuse(transBatchA=0, transBatchB=0)
    a, b = (_turned(w, at, w.attribute(name, 0)) for at, name in enumerate(("transA", "transB")))
    return (w.scaled(w.emit("MatMul", a, b), w.attribute("alpha", 1.0), w.type(0)),)


def _turned(w: BodyWriter, at: int, transposed: int) -> str:
    rank = w.type(at).rank
    if not transposed or rank < 2:
        return w.input(at)
    return w.emit("Transpose", w.input(at), perm=[*range(rank - 2), rank - 1, rank - 2])


def _fused_gemm(w: BodyWriter) -> tuple[str, ...]:
    operands = [name for name in w.inputs if name]
    made = w.emit("Gemm", *operands, **w.given("alpha", "beta", "transA", "transB"))
    numbers = w.given("activation_alpha", "activation_beta", "activation_gamma")
    return (_activated(w, made, w.attribute("activation"), list(numbers.values())),)


def _matmul_nbits(w: BodyWriter) -> tuple[str, ...]:
    """A product with weights of few bits: blocks of a column share a scale and a zero point."""
    w.given("accuracy_level", "weight_prepacked")
    columns, terms = w.attribute("N"), w.attribute("K")
    size, bits = w.attribute("block_size"), w.attribute("bits", 4)
    if bits not in (4, 8):
        raise UnsupportedError(f"weights of {bits} bits are not supported, only of 4 and 8")
    if w.input(4):
        raise UnsupportedError("weights in an order of their own (g_idx) are not supported")
    kind, blocks = w.type(0), math.ceil(terms / size)
    number = w.emit("Reshape", _unpacked(w, w.input(1), bits), w.constant([columns, blocks, size]))
    distance = w.emit("Sub", w.cast(number, kind), _zero_points(w, columns, blocks, bits))
    scales = w.emit("Reshape", w.cast(w.input(2), kind), w.constant([columns, blocks, 1]))
    padded = w.emit("Reshape", w.emit("Mul", distance, scales), w.constant([columns, blocks * size]))
    weights = w.emit("Slice", padded, w.constant([0]), w.constant([terms]), w.constant([1]))
    return (w.sum(w.emit("MatMul", w.input(0), w.emit("Transpose", weights)), w.input(5)),)


def _unpacked(w: BodyWriter, packed: str, bits: int) -> str:
    """The numbers in bytes, the low half of each first, along a further axis."""
    if bits == 8:
        return packed
    low = w.emit("BitwiseAnd", packed, w.constant(15, _U8))
    high = w.emit("BitShift", packed, w.constant(4, _U8), direction="RIGHT")
    halves = [w.emit("Unsqueeze", half, w.constant([-1])) for half in (low, high)]
    return w.emit("Concat", *halves, axis=-1)


def _zero_points(w: BodyWriter, columns: int, blocks: int, bits: int) -> str:
    """One for each block, or the middle of the range for all."""
    kind = w.type(0)
    if not w.has(3):
        return w.constant(1 << (bits - 1), kind)
    points = w.input(3)
    if not w.type(3).dtype.is_float:
        points = w.emit("Reshape", _unpacked(w, points, bits), w.constant([columns, -1]))
        points = w.emit("Slice", points, w.constant([0]), w.constant([blocks]), w.constant([1]))
    return w.emit("Reshape", w.cast(points, kind), w.constant([columns, blocks, 1]))


# ---------------------------------------------------------------- norms


def _simplified_norm(w: BodyWriter) -> tuple[str, ...]:
    return (w.emit("RMSNormalization", w.input(0), w.input(1), **w.given("axis", "epsilon", "stash_type")),)


def _skip_norm(norm: str, factors: int) -> Write:
    """A norm of a sum, which is output 3; inputs: two terms, `factors` of the norm, one more term."""

    def write(w: BodyWriter) -> tuple[str, ...]:
        total = w.sum(w.sum(w.input(0), w.input(1)), w.input(2 + factors))
        given = [w.input(2 + at) for at in range(factors) if w.has(2 + at)]
        return w.emit(norm, total, *given, axis=-1, epsilon=w.attribute("epsilon", 1e-12)), "", "", total

    return write


def _embed_norm(w: BodyWriter) -> tuple[str, ...]:
    """Embeddings of words, of positions and of segments, added up and normalised; how long each row is."""
    words, segments, table, positions, kinds, gamma, beta, mask, places = (w.input(at) for at in range(9))
    rows, length = w.type(0).shape
    if length > w.type(3).shape[0] and not places:
        raise InvalidError(f"{length} words, but {w.type(3).shape[0]} positions")
    total = w.emit("Gather", table, words)
    at = places or w.constant([list(range(length))])
    total = w.emit("Add", total, w.emit("Gather", positions, at))
    if kinds:
        total = w.emit("Add", total, w.emit("Gather", kinds, segments))
    epsilon = w.attribute("epsilon", 1e-12)
    made = w.emit("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
    w.refuse(mask_index_type=0)
    found = w.emit("ReduceSum", mask, w.constant([1]), keepdims=0) if mask else w.constant([0] * rows, _I32)
    return made, found, total


_DOMAIN = "com.microsoft"
_BY_NAME: Mapping[str, Write] = {
    "BiasGelu": _bias_gelu,
    "EmbedLayerNormalization": _embed_norm,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "MatMulNBits": _matmul_nbits,
    "NhwcConv": _nhwc_conv,
    "NhwcFusedConv": _nhwc_conv,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _simplified_norm,
    "SkipLayerNormalization": _skip_norm("LayerNormalization", 2),
    "SkipSimplifiedLayerNormalization": _skip_norm("RMSNormalization", 1),
}

BODIES: Mapping[tuple[str, str], Write] = {
    **{(_DOMAIN, name): write for name, write in _BY_NAME.items()},
    ("", "SimplifiedLayerNormalization"): _simplified_norm,  # where onnxruntime has it
}
