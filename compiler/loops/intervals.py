"""Interval arithmetic over integer expressions, as the verifier and the interpreter need it.

Kept apart from `simplify` on purpose: what checks a program shares no code with what rewrites it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from compiler.core.types import DType
from compiler.loops.ir import (
    COMPARISONS,
    LOGICAL,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
)

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
    if isinstance(expr, Const):
        return (expr.value, expr.value) if expr.value == expr.value else EVERYTHING  # noqa: PLR0124
    if isinstance(expr, Var):
        return known.get(expr.name) or type_span(expr.type)
    if isinstance(expr, Binary):
        return _binary(expr, known)
    if isinstance(expr, Ramp):
        a, step = span_of(expr.base, known), span_of(expr.stride, known)
        return _add(a, _mul(step, (0, expr.lanes - 1)))
    if isinstance(expr, Broadcast):
        return span_of(expr.value, known)
    if isinstance(expr, Select):
        a, b = span_of(expr.a, known), span_of(expr.b, known)
        return min(a[0], b[0]), max(a[1], b[1])
    if isinstance(expr, Unary) and expr.op == "neg":
        low, high = span_of(expr.a, known)
        return -high, -low
    if isinstance(expr, Unary) and expr.op == "bitnot" and expr.dtype.is_int:
        low, high = wrapped(expr.a, known)
        return -high - 1, -low - 1
    if isinstance(expr, Cast) and not expr.value.dtype.is_float:
        inner, outer = wrapped(expr.value, known), type_span(expr.type)
        return inner if outer[0] <= inner[0] and inner[1] <= outer[1] else outer
    if isinstance(expr, Load | Call | Cast):
        return type_span(expr.dtype)
    return type_span(expr.dtype)


def wrapped(expr: Expr, known: Mapping[str, Span]) -> Span:
    """Bounds of the value of an expression in its type: all of the type where the top operation may overflow."""
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


def _product(x: float, y: float) -> float:
    return 0 if x == 0 or y == 0 else x * y


def _mul(a: Span, b: Span) -> Span:
    corners = [_product(x, y) for x in a for y in b]
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
