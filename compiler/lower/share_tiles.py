"""Sums of opaque fragments take the place of the factors that they were made of, in shared memory.

A block stages parts of both factors, multiplies, and stores its sums where all of its threads read them: by
then nobody needs the factors. Both lie in one array, and the threads meet before the first sum is stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.types import U8
from compiler.loops.ir import CLUSTER, SHARED, Alloc, Barrier, Buffer, Call, For, Func, Seq, Stmt, const, seq
from compiler.loops.matrix_units.tile_calls import STORE, memory_of
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import buffer_bytes
from compiler.loops.walk import Rewriter, allocated, allocating, replace_buffers, with_body
from compiler.lower.storage_rewrite import aligned_bytes


def share_tiles(func: Func) -> Func:
    """Let the sums of each launch lie where its factors did."""
    return with_body(func, _Share(names_in(func.body)).visit(func.body))


class _Share(Rewriter):
    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self.names = names

    def visit_alloc(self, item: Alloc) -> Stmt:
        buffers, body = allocated(item)
        own = {buffer for buffer in buffers if buffer.scope == SHARED and buffer.alias_of is None}
        calls = [call for call in body.walk() if isinstance(call, Call)]
        moved = {(call.name == STORE, buffer) for call in calls for buffer in memory_of(call)}
        sums = [buffer for buffer in buffers if buffer in own and (True, buffer) in moved]
        staged = [buffer for buffer in buffers if buffer in own and (False, buffer) in moved]
        parted = _parted(body, set(staged), set(sums)) if sums and staged else None
        if parted is None:
            return self.parts(item)
        places = {**_behind(staged), **_behind(sums)}
        size = max(at + buffer_bytes(buffer) for buffer, at in places.items())
        arena = Buffer(fresh("tiles", self.names), U8, (const(size),), SHARED)
        there = {
            buffer: buffer.replace(alias_of=arena.name, offset=const(at // buffer.dtype.bytes))
            for buffer, at in places.items()
        }
        kept = [there.get(buffer, buffer) for buffer in buffers]
        return allocating([arena, *kept], replace_buffers(parted, there))


def _parted(stmt: Stmt, staged: set[Buffer], sums: set[Buffer]) -> Stmt | None:
    """The statement with a barrier where all is done with the factors, and nothing with the sums.

    None where there is no such place that all threads come to once.
    """
    if isinstance(stmt, Alloc) or (isinstance(stmt, For) and stmt.over_threads):
        body = _parted(stmt.body, staged, sums)
        return None if body is None else stmt.replace(body=body)
    if not isinstance(stmt, Seq):
        return None
    first = next((n for n, one in enumerate(stmt.stmts) if _uses(one, sums)), None)
    if first is None:
        return None
    before, here, after = stmt.stmts[:first], stmt.stmts[first], stmt.stmts[first + 1 :]
    if any(_uses(one, staged) for one in after):
        return None
    if not _uses(here, staged):
        met = before and isinstance(before[-1], Barrier) and before[-1].scope in (SHARED, CLUSTER)
        return stmt if met else seq(*before, Barrier(SHARED), here, *after)
    inside = _parted(here, staged, sums)
    return None if inside is None else seq(*before, inside, *after)


def _uses(stmt: Stmt, buffers: set[Buffer]) -> bool:
    return any(item in buffers for item in stmt.walk() if isinstance(item, Buffer))


def _behind(buffers: Sequence[Buffer]) -> dict[Buffer, int]:
    """Where each begins in bytes, one behind the other."""
    places, at = dict[Buffer, int](), 0
    for buffer in buffers:
        places[buffer] = at
        at += aligned_bytes(buffer_bytes(buffer))
    return places
