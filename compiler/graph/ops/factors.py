"""Factors of sums of products that are rounded to fewer bits, as `--precision` asks: sums stay f32.

The rewrite `lower_precision` sets the attribute; no ONNX operator has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.core.types import F32, DType
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import NodeInfo
from compiler.graph.op import InvalidError, Reference, Types, rounded_once, same_dtype
from compiler.graph.ops.elementwise import narrow, widen
from compiler.loops.ir import Expr

FACTORS = "factors"
"""Attribute of sums of products, ours: the type to which both factors are rounded; sum and result are f32.

A factor is f32 or lies in memory in that type.
"""


def _factors(attrs: Attrs) -> DType | None:
    return attrs.dtype(FACTORS) if FACTORS in attrs else None


def product_dtype(types: Types, attrs: Attrs) -> DType:
    """The element type of a sum of products of the first two operands; raises InvalidError."""
    kind = _factors(attrs)
    if kind is None:
        return same_dtype(types)
    if any(item.dtype not in (F32, kind) for item in types[:2]) or any(t.dtype != F32 for t in types[2:]):
        found = ", ".join(str(item.dtype) for item in types)
        raise InvalidError(f"factors in {kind} and sums in f32 cannot be made of {found}")
    return F32


def factor(element: Expr, info: NodeInfo) -> Expr:
    """A factor in the type in which it is multiplied."""
    kind = _factors(info.attrs)
    return widen(element if kind is None else narrow(element, kind))


def with_factors(compute: Callable[[Sequence[Array], Attrs], Array]) -> Reference:
    """A reference whose first two operands are rounded where the attribute says so."""
    plain = rounded_once(compute)

    def reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
        kind = _factors(attrs)
        if kind is None:
            return plain(arrays, attrs)
        with np.errstate(over="ignore"):
            rounded = [array.astype(to_numpy(kind)).astype(np.float32) for array in arrays[:2]]
        return plain([*rounded, *arrays[2:]], attrs)

    return reference


def is_f32(info: NodeInfo) -> bool:
    """Whether factors and sums are f32, none of them rounded."""
    return info.out_types[0].dtype == F32 and FACTORS not in info.attrs
