"""Loads under a condition for which a language has a word of its own, without a branch."""

from __future__ import annotations

from compiler.core.types import F32
from compiler.loops.ir import CONSTANT, GLOBAL, Const, Load, Select
from compiler.loops.queries import int_of

_MOST_BYTES = 1 << 31
"""Of a buffer whose elements have a number of 32 bits as their place."""


def load_or_zero(expr: Select) -> Load | None:
    """The load of a selection that is an element of f32 or zero; None for others.

    Also for those whose index is read from memory: that may be allowed under the condition only.
    """
    load, other = expr.a, expr.b
    if not isinstance(load, Load) or load.dtype != F32 or load.buffer.scope not in (GLOBAL, CONSTANT):
        return None
    size = int_of(load.buffer.shape[0])
    if size is None or size * F32.bytes >= _MOST_BYTES:
        return None
    if not isinstance(other, Const) or str(other.value) != "0.0":
        return None
    return None if any(isinstance(part, Load) for part in load.indices[0].walk()) else load
