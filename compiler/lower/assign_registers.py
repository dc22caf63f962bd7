"""Decide which private buffers are registers: those at constant places once unrolled loops are expanded.

A buffer that was scheduled into registers and cannot be there becomes thread-private memory; a small buffer
in thread-private memory that can be in registers goes there.
"""

from __future__ import annotations

from compiler.core.node import Node
from compiler.core.target import TargetFacts
from compiler.loops.ir import (
    REGISTER,
    SCRATCH,
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
    Store,
    Var,
)
from compiler.loops.queries import int_of
from compiler.lower.rewriter import replace_buffers, with_body

_MOST_REGISTERS = 128
_MOST_FROM_SCRATCH = 32


def assign_registers(func: Func, facts: TargetFacts) -> Func:
    """Set the scope of every private buffer to `register` or `scratch`."""
    if REGISTER not in facts.scopes:
        return func
    found: dict[Buffer, bool] = {}
    _visit(func.body, frozenset(), found)
    changes = {
        buffer: buffer.replace(scope=REGISTER if named else SCRATCH)
        for buffer, named in found.items()
        if buffer.scope != (REGISTER if named else SCRATCH)
    }
    return with_body(func, replace_buffers(func.body, changes))


def _visit(item: Node, unrolled: frozenset[str], found: dict[Buffer, bool]) -> None:
    """Note for each private buffer whether all its accesses so far are at constant places."""
    if isinstance(item, Alloc) and item.buffer.scope in (REGISTER, SCRATCH):
        found[item.buffer] = _small(item.buffer)
    if isinstance(item, Load | Store | AtomicUpdate | AddressOf) and item.buffer in found:
        named = not isinstance(item, AddressOf | AtomicUpdate) and _constant(item.indices[0], unrolled)
        found[item.buffer] = found[item.buffer] and named
    if isinstance(item, For) and item.kind is ForKind.UNROLLED and isinstance(item.extent, Const):
        unrolled |= {item.var.name}
    for child in item.children():
        if not isinstance(child, Buffer):
            _visit(child, unrolled, found)


def _small(buffer: Buffer) -> bool:
    size = int_of(buffer.shape[0])
    limit = _MOST_REGISTERS if buffer.scope == REGISTER else _MOST_FROM_SCRATCH
    return size is not None and size <= limit and buffer.alias_of is None


def _constant(index: Expr, unrolled: frozenset[str]) -> bool:
    """Whether only variables of unrolled loops occur in a scalar index."""
    if index.dtype.lanes != 1:
        return False
    return all(item.name in unrolled for item in index.walk() if isinstance(item, Var)) and not any(
        isinstance(item, Load) for item in index.walk()
    )
