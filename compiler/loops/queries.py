"""Questions that every layer asks of expressions and buffers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod

from compiler.core.diagnostics import InternalError
from compiler.core.node import IRNode
from compiler.loops.ir import Block, Buffer, Const, Expr, Iter, Var


@lru_cache(maxsize=1 << 14)
def variables(node: IRNode) -> frozenset[str]:
    """Names of all variables in an expression or statement."""
    return frozenset(item.name for item in node.walk() if isinstance(item, Var))


def reduced_over(block: Block) -> set[str]:
    """Names of the variables that the reduce iterations of a block are bound to."""
    return {name for item in block.iters if item.kind == "reduce" for name in variables(item.binding)}


def int_of(expr: Expr | None) -> int | None:
    """The value of a literal integer, None for anything else."""
    return int(expr.value) if isinstance(expr, Const) else None


def buffer_bytes(buffer: Buffer) -> int:
    """Bytes of a flat buffer; 0 where its size is not known at compile time."""
    return (int_of(buffer.shape[0]) or 0) * buffer.dtype.bytes


def extent_of(expr: Expr) -> int:
    """An extent that is a literal; InternalError for a symbolic one."""
    if not isinstance(expr, Const):
        raise InternalError("an extent is not known at compile time", where=str(expr))
    return int(expr.value)


def iterations(iters: Iterable[Iter]) -> int:
    """Combinations of values of iteration variables whose extents are literals."""
    return prod(extent_of(item.extent) for item in iters)


def static_shape(buffer: Buffer) -> tuple[int, ...]:
    """The shape of a buffer whose extents are literals; InternalError for another one."""
    return tuple(extent_of(item) for item in buffer.shape)
