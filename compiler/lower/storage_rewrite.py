"""Liveness and stack colouring: thread-private buffers that are not alive at the same time share memory.

Buffers that are allocated together (one `Alloc` directly inside the other) over a sequence of statements live
from the first statement that uses them to the last. They are placed in one arena, largest first, each at
the lowest offset that is free for its whole life. A buffer may begin where another one ends, in the same
statement, when that statement reads each element of the one only to write the same element of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.node import IRNode
from compiler.core.target import TargetFacts
from compiler.core.types import U8
from compiler.loops.ir import (
    SCRATCH,
    Alloc,
    Buffer,
    Expr,
    Func,
    Indexed,
    Load,
    Seq,
    Stmt,
    Store,
    const,
)
from compiler.loops.queries import int_of
from compiler.loops.walk import Rewriter, allocated, allocating, replace_buffers, with_body

_ALIGNMENT = 64


def storage_rewrite(func: Func, facts: TargetFacts) -> Func:
    """Share the memory of scratch buffers wherever they do not fit on the stack side by side."""
    names = {item.name for item in func.body.walk() if isinstance(item, Buffer)}
    return with_body(func, _Share(names, facts.limit("stack_bytes") or 0).visit(func.body))


@dataclass(frozen=True, slots=True)
class _Life:
    buffer: Buffer
    bytes: int
    first: int
    last: int


@dataclass(eq=False)
class _Share(Rewriter):
    names: set[str]
    stack_bytes: int

    def visit_alloc(self, item: Alloc) -> Stmt:
        buffers, body = allocated(item)
        body = self.visit(body)
        stmts = body.stmts if isinstance(body, Seq) else (body,)
        lives = [life for buffer in buffers if (life := _life(buffer, stmts)) is not None]
        needed = sum(aligned_bytes(life.bytes) for life in lives)
        if len(lives) > 1 and needed > self.stack_bytes:
            offsets = _place(lives, stmts)
            total = max(offsets[life.buffer] + aligned_bytes(life.bytes) for life in lives)
            if total < needed:
                return self._arena(buffers, body, offsets, total)
        return allocating(buffers, body)

    def _arena(self, buffers: Sequence[Buffer], body: Stmt, offsets: dict[Buffer, int], total: int) -> Stmt:
        name = "arena"
        while name in self.names:
            name += "_"
        self.names.add(name)
        arena = Buffer(name, U8, (const(total),), SCRATCH)
        moved = {
            buffer: buffer.replace(alias_of=name, offset=const(at // buffer.dtype.bytes))
            for buffer, at in offsets.items()
        }
        body = replace_buffers(body, moved)
        return allocating([arena, *(moved.get(buffer, buffer) for buffer in buffers)], body)


def _life(buffer: Buffer, stmts: Sequence[Stmt]) -> _Life | None:
    """When a scratch buffer is in use; None for a buffer that keeps a place of its own."""
    size = int_of(buffer.shape[0])
    if buffer.scope != SCRATCH or buffer.alias_of or size is None or _ALIGNMENT % buffer.dtype.bytes:
        return None
    uses = [number for number, stmt in enumerate(stmts) if any(item == buffer for item in stmt.walk())]
    return _Life(buffer, size * buffer.dtype.bytes, uses[0], uses[-1]) if uses else None


def _place(lives: Sequence[_Life], stmts: Sequence[Stmt]) -> dict[Buffer, int]:
    """Byte offsets, largest buffer first, ties in order of appearance."""
    offsets: dict[Buffer, int] = {}
    placed: list[_Life] = []
    for life in sorted(lives, key=lambda item: -item.bytes):
        taken = sorted(
            (offsets[other.buffer], offsets[other.buffer] + aligned_bytes(other.bytes))
            for other in placed
            if not _compatible(life, other, stmts)
        )
        at = 0
        for begin, end in taken:
            if at + aligned_bytes(life.bytes) <= begin:
                break
            at = max(at, end)
        offsets[life.buffer] = at
        placed.append(life)
    return offsets


def _compatible(a: _Life, b: _Life, stmts: Sequence[Stmt]) -> bool:
    """Whether two buffers may lie in the same memory."""
    if a.last < b.first or b.last < a.first:
        return True
    before, after = (a, b) if a.last == b.first else (b, a)
    return before.last == after.first and _in_place(before, after, stmts[after.first])


def _in_place(before: _Life, after: _Life, stmt: Stmt) -> bool:
    """Whether a statement turns one buffer into the other element by element."""
    if before.bytes != after.bytes or before.buffer.dtype != after.buffer.dtype:
        return False
    indices: set[tuple[Expr, ...]] = set()
    return _elementwise(stmt, before.buffer, after.buffer, indices) and len(indices) == 1


def _elementwise(item: IRNode, source: Buffer, target: Buffer, indices: set[tuple[Expr, ...]]) -> bool:
    """Reads of `source` and writes of `target` only as `target[i] = f(source[i])`; collects the indices."""
    if isinstance(item, Store) and item.buffer == target:
        indices.add(item.indices)
        loads = [part for part in item.value.walk() if isinstance(part, Load)]
        if any(load.buffer == target for load in loads):
            return False
        indices.update(load.indices for load in loads if load.buffer == source)
        return True
    if isinstance(item, Indexed) and item.buffer in (source, target):
        return False
    return all(
        _elementwise(child, source, target, indices)
        for child in item.children()
        if not isinstance(child, Buffer)
    )


def aligned_bytes(size: int) -> int:
    """Bytes up to where another buffer of the same memory may begin."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
