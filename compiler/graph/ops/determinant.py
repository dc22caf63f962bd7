"""Det: determinants of small matrices, by elimination with row pivots, written out step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.core.types import BOOL
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, accumulate_type, to_numpy
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    Emitter,
    InvalidError,
    Kind,
    Op,
    Signature,
    Types,
    UnsupportedError,
    Values,
)
from compiler.graph.ops.elementwise import FLOATS, check_kind
from compiler.graph.ops.indexing import emit_slice

_LARGEST = 32
"""Rows: each is a dozen operators of the graph."""


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    source = types[0]
    check_kind("Det", source.dtype, FLOATS)
    if source.rank < 2 or source.shape[-1] != source.shape[-2]:
        raise InvalidError(f"Det of {source}, which is no square matrix")
    if source.shape[-1] > _LARGEST:
        raise UnsupportedError(f"Det of {source} is not supported, only of up to {_LARGEST} rows")
    return (source.with_shape(source.shape[:-2]),)


def _reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    return (np.asarray(np.linalg.det(arrays[0].astype(np.float64))).astype(arrays[0].dtype),)


def _expand(e: Emitter, item: Node) -> Values:
    source, out = item.inputs[0], item.output.type
    rows = source.type.shape[-1]
    value = e.emit("Cast", source, to=accumulate_type(source.type.dtype))
    value = e.emit("Reshape", value, shape=(math.prod(out.shape), rows, rows))
    kind = to_numpy(value.type.dtype)
    found = e.constant(np.ones((math.prod(out.shape), 1, 1), kind))
    for _ in range(rows):
        value, pivot = _eliminated(e, value)
        found = e.emit("Mul", found, pivot)
    return (e.emit("Cast", e.emit("Reshape", found, shape=out.shape), to=out.dtype),)


def _eliminated(e: Emitter, value: Value) -> tuple[Value, Value]:
    """The matrices (batch, n, n) without their first column and pivot row, and the pivots with their sign."""
    _, rows, _ = value.type.shape
    kind = to_numpy(value.type.dtype)
    column = emit_slice(e, value, 2, 0, 1)
    if rows == 1:
        return value, column
    at = e.emit("ArgMax", e.emit("Abs", column), axes=(1,), keepdims=True, last=False)
    numbers = e.constant(np.arange(rows, dtype=np.int64).reshape(1, rows, 1))
    zero, one = e.constant(np.asarray(0, kind)), e.constant(np.asarray(1, kind))
    here = e.emit("Equal", numbers, at)
    row = e.emit("ReduceSum", e.emit("Where", here, value, zero), axes=(1,), keepdims=True)
    rest = e.emit(
        "Where", here, emit_slice(e, value, 1, 0, 1), value
    )  # the first row takes the pivot's place
    swapped = e.emit("Cast", at, to=BOOL)
    pivot = emit_slice(e, row, 2, 0, 1)
    signed = e.emit("Where", swapped, e.emit("Neg", pivot), pivot)
    nothing = e.emit("Equal", pivot, zero)
    divisor = e.emit("Where", nothing, one, pivot)
    below = emit_slice(e, rest, 1, 1, rows - 1)
    factors = e.emit("Div", emit_slice(e, below, 2, 0, 1), divisor)
    products = e.emit("Mul", factors, emit_slice(e, row, 2, 1, rows - 1))
    return e.emit("Sub", emit_slice(e, below, 2, 1, rows - 1), products), signed


def _flops(info: NodeInfo) -> int:
    return 2 * info.in_types[0].size * info.in_types[0].shape[-1] // 3


DET = Op("Det", Kind.REDUCTION, _infer, _reference, (1, 1), (Signature(11),), expand=_expand, flops=_flops)

OPS = (DET,)
