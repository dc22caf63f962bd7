"""Literals of C."""

from __future__ import annotations

import struct

from compiler.core.types import DType
from compiler.loops.ir import Const


def literal(expr: Const) -> str:
    """A literal of its type."""
    kind = expr.type
    if kind.is_bool:
        return "true" if expr.value else "false"
    return _float_literal(float(expr.value), kind) if kind.is_float else _int_literal(int(expr.value), kind)


def _int_literal(value: int, kind: DType) -> str:
    if kind.name == "u64":
        return f"{value}u"
    if value == -(2**63):
        return "(-9223372036854775807 - 1)"
    return str(value) if value >= 0 else f"({value})"


def _float_literal(value: float, kind: DType) -> str:
    double = kind.name == "f64"
    text, suffix = repr(value if double else _as_f32(value)), "" if double else "f"
    if text == "nan":
        return f'__builtin_nan{suffix}("")'
    text = text.replace("inf", f"__builtin_inf{suffix}()") if "inf" in text else f"{text}{suffix}"
    return f"({text})" if text.startswith("-") else text


def _as_f32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
