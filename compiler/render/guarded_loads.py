"""Loads under a condition for which a language has a word of its own, without a branch."""

from __future__ import annotations

from compiler.loops.ir import CONSTANT, GLOBAL, Broadcast, Cast, Const, Expr, Load, Ramp, Select, const
from compiler.loops.queries import int_of

_MOST_BYTES = 1 << 31
"""Of a buffer whose elements have a number of 32 bits as their place."""

_SIZES = (2, 4, 8, 16)
"""Bytes of one access."""


def load_or_zero(expr: Expr) -> tuple[Expr, Load] | None:
    """Condition and load of a selection that is an element or neighbours of floats, or zero; else None.

    Also for those whose index is read from memory: that may be allowed under the condition only.
    """
    if not isinstance(expr, Select) or expr.cond.dtype.lanes > 1 or not _is_zero(expr.b):
        return None
    load = expr.a
    if not isinstance(load, Load) or load.mask is not None or load.buffer.scope not in (GLOBAL, CONSTANT):
        return None
    kind, index, size = load.dtype, load.indices[0], int_of(load.buffer.shape[0])
    if not kind.is_float or kind.lanes * kind.scalar.bytes not in _SIZES or index.dtype.lanes != kind.lanes:
        return None
    if isinstance(index, Ramp) and index.stride != const(1):
        return None
    if size is None or size * kind.scalar.bytes >= _MOST_BYTES:
        return None
    return None if any(isinstance(part, Load) for part in index.walk()) else (expr.cond, load)


def converted_last(expr: Expr) -> Expr:
    """The selection of a converted float or zero, as the conversion of a load or zero if that is one."""
    if not isinstance(expr, Select) or not isinstance(expr.a, Cast) or not _is_zero(expr.b):
        return expr
    value = expr.a.value
    if not (value.dtype.is_float and expr.a.dtype.is_float):
        return expr
    inner = converted_last(Select(expr.cond, value, _zero(value)))
    loaded = load_or_zero(inner.value if isinstance(inner, Cast) else inner)
    return expr if loaded is None else expr.a.replace(value=inner)


def _zero(like: Expr) -> Expr:
    zero = const(0.0, like.dtype.scalar)
    return zero if like.dtype.lanes == 1 else Broadcast(zero, like.dtype.lanes)


def _is_zero(expr: Expr) -> bool:
    value = expr.value if isinstance(expr, Broadcast) else expr
    return isinstance(value, Const) and str(value.value) == "0.0"
