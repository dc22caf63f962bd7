"""Register promotion (mem2reg): private buffers whose places are constant once loops are unrolled.

A buffer that was scheduled into registers and cannot be there becomes thread-private memory; a small buffer
in thread-private memory that can be in registers goes there.
"""

from __future__ import annotations

from compiler.core.target import TargetFacts
from compiler.loops.ir import (
    REGISTER,
    SCRATCH,
    Alloc,
    Buffer,
    Const,
    Expr,
    ForKind,
    Func,
    Indexed,
    Load,
    Stmt,
    Store,
)
from compiler.loops.queries import int_of, variables
from compiler.loops.walk import Scope, replace_buffers, scoped, with_body

_MOST_REGISTERS = 128
_MOST_FROM_SCRATCH = 32


def assign_registers(func: Func, facts: TargetFacts) -> Func:
    """Set the scope of every private buffer to `register` or `scratch`."""
    if REGISTER not in facts.scopes:
        return func
    changes = {
        buffer: buffer.replace(scope=REGISTER if named else SCRATCH)
        for buffer, named in _private(func.body).items()
        if buffer.scope != (REGISTER if named else SCRATCH)
    }
    return with_body(func, replace_buffers(func.body, changes))


def _private(body: Stmt) -> dict[Buffer, bool]:
    """For each private buffer whether all its accesses are at constant places."""
    found: dict[Buffer, bool] = {}
    for item, scope in scoped(body):
        if isinstance(item, Alloc) and item.buffer.scope in (REGISTER, SCRATCH):
            found[item.buffer] = _small(item.buffer)
        if isinstance(item, Indexed) and item.buffer in found:
            named = isinstance(item, Load | Store) and _constant(item.indices[0], scope)
            found[item.buffer] = found[item.buffer] and named
    return found


def _small(buffer: Buffer) -> bool:
    size = int_of(buffer.shape[0])
    limit = _MOST_REGISTERS if buffer.scope == REGISTER else _MOST_FROM_SCRATCH
    return size is not None and size <= limit and buffer.alias_of is None


def _constant(index: Expr, scope: Scope) -> bool:
    """Whether only variables of unrolled loops occur in a scalar index."""
    unrolled = {
        loop.var.name
        for loop in scope.loops
        if loop.kind is ForKind.UNROLLED and isinstance(loop.extent, Const)
    }
    plain = index.dtype.lanes == 1 and not any(isinstance(item, Load) for item in index.walk())
    return plain and variables(index) <= unrolled
