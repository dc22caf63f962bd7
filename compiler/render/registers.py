"""Which private buffers can be variables: those whose indices are numbers once loops are unrolled."""

from __future__ import annotations

from compiler.core.node import Node
from compiler.core.target import TargetFacts
from compiler.loops.ir import (
    REGISTER,
    AddressOf,
    Alloc,
    AtomicUpdate,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    Load,
    Ramp,
    Store,
    Var,
)

_REGISTER_VALUES = 128
_SCRATCH_VALUES = 32


def register_buffers(func: Func, facts: TargetFacts) -> frozenset[Buffer]:
    """Private buffers to print as variables; a buffer of scope `register` may have more of them."""
    if facts.vector_bits == 0 and REGISTER not in facts.scopes:
        return frozenset()
    found: dict[Buffer, bool] = {}

    def visit(item: Node, unrolled: frozenset[str]) -> None:
        if isinstance(item, Alloc):
            found[item.buffer] = _small(item.buffer)
        if isinstance(item, Load | Store | AtomicUpdate | AddressOf) and item.buffer in found:
            named = not isinstance(item, AddressOf | AtomicUpdate) and _constant(item.indices[0], unrolled)
            found[item.buffer] = found[item.buffer] and named
        if isinstance(item, For) and item.kind is ForKind.UNROLLED and isinstance(item.extent, Const):
            unrolled |= {item.var.name}
        for child in item.children():
            if not isinstance(child, Buffer):
                visit(child, unrolled)

    visit(func.body, frozenset())
    return frozenset(item for item, named in found.items() if named)


def _small(buffer: Buffer) -> bool:
    size = buffer.shape[0]
    limit = _REGISTER_VALUES if buffer.scope == REGISTER else _SCRATCH_VALUES
    return isinstance(size, Const) and size.value <= limit and buffer.alias_of is None


def _constant(index: Expr, unrolled: frozenset[str]) -> bool:
    """Whether only variables of unrolled loops occur in a scalar index."""
    if isinstance(index, Ramp):
        return False
    return all(item.name in unrolled for item in index.walk() if isinstance(item, Var)) and not any(
        isinstance(item, Load) for item in index.walk()
    )
