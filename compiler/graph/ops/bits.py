"""Operators on the bits of integers: and, or, exclusive or, not, shifts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.core.types import DType, dtype
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import TensorType
from compiler.graph.op import (
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Signature,
    Types,
    Values,
    broadcast_shape,
    same_dtype,
)
from compiler.graph.ops.elementwise import INTS, check_kind, elementwise_form, unary
from compiler.loops.ir import Binary, Expr, Select, Unary, const, maximum, minimum
from compiler.loops.ir import Cast as CastExpr


def _integers(name: str) -> Callable[[Types, Attrs], tuple[TensorType, ...]]:
    def infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
        kind = same_dtype(types)
        check_kind(name, kind, INTS)
        return (TensorType(kind, broadcast_shape(*(item.shape for item in types))),)

    return infer


def _bitwise(name: str, fn: Callable[[Array, Array], Array], op: str) -> Op:
    return Op(
        name, Kind.INJECTIVE, _integers(name), lambda x, _a: (fn(x[0], x[1]),), (2, 2), (Signature(18),),
        forms={"direct": elementwise_form(name, lambda _a, x, y: Binary(op, x, y))}, elementwise=True,
    )  # fmt: skip


# ---------------------------------------------------------------- shifts


def _shift_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    if attrs.get("direction") not in ("LEFT", "RIGHT"):
        raise InvalidError(f"BitShift has no direction {attrs.get('direction')!r}")
    return inputs, attrs


def _shift_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """What is shifted by no number of bits of the type, or by more than all, leaves the sign alone."""
    x, y = arrays
    bits = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < bits)
    amount = np.where(inside, y, y.dtype.type(bits - 1))
    if attrs.text("direction") == "LEFT":
        return (np.where(inside, x << amount, x.dtype.type(0)),)
    beyond = x >> x.dtype.type(bits - 1) if x.dtype.kind == "i" else x.dtype.type(0)
    return (np.where(inside, x >> amount, beyond),)


def _shift(attrs: Attrs, x: Expr, y: Expr) -> Expr:
    """Shifts by amounts that any language defines: of signed numbers to the left as if they had no sign."""
    kind: DType = x.dtype
    bits, left = kind.bits, attrs.text("direction") == "LEFT"
    last = const(bits - 1, kind)
    inside = y.le(last) if not kind.is_signed else Binary("and", y.ge(const(0, kind)), y.le(last))
    if not left and kind.is_signed:
        return Binary("shr", x, Select(inside, y, last))
    amount = minimum(maximum(y, const(0, kind)), last) if kind.is_signed else minimum(y, last)
    if not left:
        return Select(inside, Binary("shr", x, amount), const(0, kind))
    plain = dtype(f"u{bits}")
    moved = CastExpr(kind, Binary("shl", CastExpr(plain, x), CastExpr(plain, amount)))
    return Select(inside, moved, const(0, kind))


BIT_SHIFT = Op(
    "BitShift", Kind.INJECTIVE, _integers("BitShift"), _shift_reference, (2, 2),
    (Signature(11, {"direction": None}, adapt=_shift_import),),
    forms={"direct": elementwise_form("BitShift", _shift)}, elementwise=True,
)  # fmt: skip

OPS = (
    _bitwise("BitwiseAnd", np.bitwise_and, "bitand"),
    _bitwise("BitwiseOr", np.bitwise_or, "bitor"),
    _bitwise("BitwiseXor", np.bitwise_xor, "bitxor"),
    unary("BitwiseNot", lambda _a, x: ~x, lambda _a, x: Unary("bitnot", x), INTS, since=18),
    BIT_SHIFT,
)
