"""Interval arithmetic over integer expressions, as the verifier and the interpreter need it.

Kept apart from `simplify` on purpose: what checks a program shares no code with what rewrites it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from compiler.core.types import DType
from compiler.loops.ir import (
    COMPARISONS,
    LOGICAL,
    Binary,
    Broadcast,
    Cast,
    Const,
    Expr,
    Ramp,
    Select,
    Unary,
    Var,
)
from compiler.loops.linear import times

Span = tuple[float, float]
"""Smallest and largest value, both included; infinite where nothing is known."""

EVERYTHING: Span = (-inf, inf)
BIT: Span = (0, 1)


def type_span(dtype: DType) -> Span:
    """The values that an integer or bool type holds."""
    if dtype.is_bool:
        return BIT
    if not dtype.is_int:
        return EVERYTHING
    if dtype.is_signed:
        return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
    return 0, 2**dtype.bits - 1


def span_of(expr: Expr, known: Mapping[str, Span]) -> Span:
    """Bounds of an integer expression (of all lanes of a vector) before any wrapping of its top operation."""
    rule = _SPANS.get(type(expr))
    return type_span(expr.dtype) if rule is None else rule(expr, known)


def _constant(expr: Const, _known: Mapping[str, Span]) -> Span:
    value = expr.value
    return (value, value) if value == value else EVERYTHING


def _variable(expr: Var, known: Mapping[str, Span]) -> Span:
    return known.get(expr.name) or type_span(expr.type)


def _ramp(expr: Ramp, known: Mapping[str, Span]) -> Span:
    steps = _mul(span_of(expr.stride, known), (0, expr.lanes - 1))
    return _add(span_of(expr.base, known), steps)


def _either(expr: Select, known: Mapping[str, Span]) -> Span:
    a, b = wrapped(expr.a, known), wrapped(expr.b, known)
    return min(a[0], b[0]), max(a[1], b[1])


def _unary(expr: Unary, known: Mapping[str, Span]) -> Span:
    low, high = wrapped(expr.a, known)
    if expr.op == "neg":
        return -high, -low
    if expr.op == "bitnot" and expr.dtype.is_int:
        return -high - 1, -low - 1
    return type_span(expr.dtype)


def _cast(expr: Cast, known: Mapping[str, Span]) -> Span:
    outer = type_span(expr.type)
    if expr.value.dtype.is_float:
        return outer
    inner = wrapped(expr.value, known)
    return inner if outer[0] <= inner[0] and inner[1] <= outer[1] else outer


def wrapped(expr: Expr, known: Mapping[str, Span]) -> Span:
    """Bounds of the value in its type: all of the type where the top operation may overflow."""
    low, high = span_of(expr, known)
    least, most = type_span(expr.dtype)
    return (low, high) if least <= low and high <= most else (least, most)


def _binary(expr: Binary, known: Mapping[str, Span]) -> Span:
    rule = _RULES.get(expr.op)
    if rule is None or not expr.a.dtype.is_int:
        return type_span(expr.dtype) if expr.op in _CLOSED else EVERYTHING
    return rule(wrapped(expr.a, known), wrapped(expr.b, known))


def _add(a: Span, b: Span) -> Span:
    return a[0] + b[0], a[1] + b[1]


def _sub(a: Span, b: Span) -> Span:
    return a[0] - b[1], a[1] - b[0]


def _mul(a: Span, b: Span) -> Span:
    corners = [times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _quotient(x: float, y: float) -> float:
    if abs(x) == inf:
        return x if y > 0 else -x
    return x // y if abs(y) != inf else (0 if x * y >= 0 else -1)


def _floordiv(a: Span, b: Span) -> Span:
    if b[0] <= 0:
        return EVERYTHING
    corners = [_quotient(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _floormod(a: Span, b: Span) -> Span:
    if b[0] <= 0:
        return EVERYTHING
    if a[0] >= 0 and a[1] < b[0]:
        return a
    return 0, (min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1)


def _truncdiv(a: Span, b: Span) -> Span:
    return _floordiv(a, b) if a[0] >= 0 else EVERYTHING


def _truncmod(a: Span, b: Span) -> Span:
    return _floormod(a, b) if a[0] >= 0 else EVERYTHING


def _bitand(a: Span, b: Span) -> Span:
    if a[0] >= 0 and b[0] >= 0:
        return 0, min(a[1], b[1])
    if a[0] >= 0 or b[0] >= 0:
        return 0, a[1] if a[0] >= 0 else b[1]
    return EVERYTHING


def _shr(a: Span, b: Span) -> Span:
    if b[0] < 0 or b[1] > 64 or abs(a[0]) == inf or abs(a[1]) == inf:
        return EVERYTHING
    corners = [int(x) >> int(y) for x in a for y in b]
    return min(corners), max(corners)


_CLOSED = COMPARISONS | LOGICAL | {"bitor", "bitxor"}
"""Operations whose result cannot leave the type."""

_RULES: dict[str, Callable[[Span, Span], Span]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "truncdiv": _truncdiv,
    "div": _truncdiv,
    "truncmod": _truncmod,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "bitand": _bitand,
    "shr": _shr,
}

_SPANS: dict[type, Callable[[Any, Mapping[str, Span]], Span]] = {
    Const: _constant,
    Var: _variable,
    Binary: _binary,
    Ramp: _ramp,
    Broadcast: lambda expr, known: wrapped(expr.value, known),
    Select: _either,
    Unary: _unary,
    Cast: _cast,
}
