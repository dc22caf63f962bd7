"""Vectors of bool: integers of 0 or -1, as wide as what was compared."""

from __future__ import annotations

from compiler.core.types import DType, dtype
from compiler.loops.ir import Binary, Call, Cast, Expr, Load, Select, Shuffle, Unary
from compiler.render.vocabulary import computed, memory_type


def held_type(expr: Expr) -> DType:
    """The type of a variable that holds a value: a vector of bool consists of integers."""
    return dtype(f"i{mask_bits(expr)}", expr.dtype.lanes) if expr.dtype.is_bool else expr.dtype


def mask_bits(expr: Expr) -> int:
    """Width of the integers that a vector of bool consists of: that of what was compared."""
    if isinstance(expr, Binary) and not expr.a.dtype.is_bool:
        return computed(expr.a.dtype).bits
    if isinstance(expr, Binary | Select):
        return max(mask_bits(expr.a), mask_bits(expr.b))
    if isinstance(expr, Unary):
        return mask_bits(expr.a)
    if isinstance(expr, Shuffle):
        return max(map(mask_bits, expr.vectors))
    if isinstance(expr, Call):
        return computed(expr.args[0].dtype).bits
    if isinstance(expr, Cast):
        return mask_bits(expr.value) if expr.value.dtype.is_bool else computed(expr.value.dtype).bits
    return memory_type(expr.dtype).bits if isinstance(expr, Load) else 32
