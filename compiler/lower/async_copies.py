"""Asynchronous copies to shared memory (`cp.async`), where a schedule asks for them.

A block with the annotation ASYNC that only copies, or has zeros where a condition does not hold, starts
copies and goes on; other constants are stored. Copies of one round are a group. Before each barrier a thread
waits for its own groups, all but the newest ones, whose number is the value of the annotation: behind the
barrier all threads see them.

    for j in 0..4 vectorized                          if i < 7
      block t(...) where i < 7 (async = 0)     ->       async_copy t[.. +: 4] <- x[.. +: 4]
        t[...] = x[...]                               async_commit
    barrier                                           async_wait; barrier

PTX ISA, cp.async: copies have 4, 8 or 16 bytes, and groups are committed and waited for by each thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.loops.annotations import ASYNC
from compiler.loops.ir import (
    SHARED,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    Block,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Load,
    Region,
    Select,
    Seq,
    Stmt,
    Store,
    all_of,
    const,
    seq,
    statements,
)
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import substitute
from compiler.loops.walk import with_body

CP_ASYNC = "cp.async"
"""The feature of targets that have such copies."""

_BYTES = (4, 8, 16)


def async_copies(func: Func, facts: TargetFacts) -> Func:
    """Let blocks with the annotation ASYNC start copies; the others, and other targets, stay as they are."""
    if CP_ASYNC not in facts.intrinsics or not any(_rounds(item) is not None for item in func.blocks()):
        return func
    parts = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    return with_body(func, seq(*(_launch(part) for part in parts)))


def _launch(stmt: Stmt) -> Stmt:
    """One launch; without a barrier nobody would wait, so its copies are left alone."""
    if not any(isinstance(item, Barrier) for item in statements(stmt)):
        return stmt
    late = [rounds for item in statements(stmt) if (rounds := _rounds(item)) is not None]
    return _Place(min(late)).stmt(_copying(stmt)) if late else stmt


def _rounds(stmt: Stmt) -> int | None:
    """How many groups stay under way behind a barrier, where a block asks for asynchronous copies."""
    value = dict(stmt.annotations).get(ASYNC) if isinstance(stmt, Block) else None
    return value if isinstance(value, int) else None


# ---------------------------------------------------------------- copies


def _copying(stmt: Stmt) -> Stmt:
    """The statement with blocks that ask for it made copies."""
    if isinstance(stmt, For) and stmt.kind is ForKind.VECTORIZED and isinstance(stmt.body, Block):
        return _wide(stmt, stmt.body) or stmt
    if isinstance(stmt, Block):
        return stmt if _rounds(stmt) is None else _copied(stmt, 1) or stmt
    return stmt.map_bodies(_copying)


def _wide(loop: For, block: Block) -> Stmt | None:
    """A vector of elements as one copy; None where it is none."""
    lanes = int_of(loop.extent)
    if _rounds(block) is None or lanes is None:
        return None
    asked = [] if block.predicate is None else [block.predicate]
    moving = {item.var.name for item in block.iters if loop.var.name in variables(item.binding)}
    asked += [item.cond for item in block.body.walk() if isinstance(item, Select)]
    if any(variables(cond) & {loop.var.name, *moving} for cond in asked):
        return None
    copied = _copied(block, lanes)
    return None if copied is None else substitute(copied, {loop.var.name: const(0)})


def _copied(block: Block, lanes: int) -> Block | None:
    body = block.body
    if not isinstance(body, Store) or body.buffer.scope != SHARED:
        return None
    if body.buffer.dtype.bits * lanes // 8 not in _BYTES or body.buffer.dtype.bits % 8:
        return None
    made = _copy(body, body.value, lanes)
    if made is None:
        return None
    reads, writes = (tuple(_widened(box, lanes) for box in boxes) for boxes in (block.reads, block.writes))
    return block.replace(body=made, reads=reads, writes=writes)


def _copy(store: Store, value: Expr, lanes: int) -> Stmt | None:
    """What brings a value to its place: a copy, or a constant where a condition does not hold."""
    if isinstance(value, Load) and value.buffer.dtype == store.buffer.dtype:
        source = Region(value.buffer, value.indices, _row(value.indices, lanes))
        return AsyncCopy(Region(store.buffer, store.indices, _row(store.indices, lanes)), source)
    if isinstance(value, Const):
        *outer, last = store.indices
        return seq(*(Store(store.buffer, (*outer, last + lane), value) for lane in range(lanes)))
    if not isinstance(value, Select) or not isinstance(value.b, Const):
        return None
    inside = _copy(store, value.a, lanes)
    if isinstance(inside, AsyncCopy) and value.b.value == 0:
        return inside.replace(where=all_of(value.cond, inside.where))
    return None if inside is None else If(value.cond, inside, _copy(store, value.b, lanes))


def _widened(box: Region, lanes: int) -> Region:
    *outer, last = box.extent
    return box.replace(extent=(*outer, last * lanes))


def _row(indices: tuple[Expr, ...], lanes: int) -> tuple[Expr, ...]:
    return tuple(const(lanes if n == len(indices) - 1 else 1) for n in range(len(indices)))


# ---------------------------------------------------------------- groups


@dataclass(eq=False)
class _Place:
    """Closes groups of copies behind the statements that start them, and waits for them before barriers."""

    pending: int
    started: bool = False

    def stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Barrier):
            return seq(AsyncWait(0, self.pending), stmt) if self.started else stmt
        if isinstance(stmt, Seq):
            return seq(*self._seq(stmt))
        return stmt.map_bodies(self.stmt)

    def _seq(self, stmt: Seq) -> Iterator[Stmt]:
        """A group ends before what starts none, and before what fills a buffer of the group again."""
        filled: set[str] = set()
        for item in stmt.stmts:
            own = _filled(item)
            if filled and (not own or filled & own):
                yield AsyncCommit()
                filled = set()
            filled |= own
            self.started = self.started or bool(own)
            yield self.stmt(item)
        if filled:
            yield AsyncCommit()


def _filled(stmt: Stmt) -> set[str]:
    """The buffers that a statement starts to fill; none where it meets other threads meanwhile."""
    inside = list(statements(stmt))
    if any(isinstance(item, Barrier) for item in inside):
        return set()
    return {item.target.buffer.name for item in inside if isinstance(item, AsyncCopy)}
