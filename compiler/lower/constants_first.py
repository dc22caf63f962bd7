"""Copies of constants begin before those of what earlier launches make, while a launch waits for these.

In front of a pipeline's loop the first parts of each factor are copied, factor by factor. Those of a constant
need no other launch: of the first `_PARTS` parts they move to the front, into the first group of copies.
Those of more parts would be in the way of the first part of the other factor. Where a block makes the other
factor itself, all of them come before that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from compiler.core.node import IRNode, rewrite_nodes
from compiler.core.target import TargetFacts
from compiler.loops.ir import (
    CONSTANT,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    For,
    ForKind,
    Func,
    If,
    Indexed,
    Seq,
    Stmt,
    seq,
    statements,
)
from compiler.loops.walk import with_body
from compiler.lower.async_copies import CP_ASYNC

_PARTS = 2
"""Parts of a pipeline whose constants come first."""


def constants_first(func: Func, facts: TargetFacts) -> Func:
    """Runs of copies in front of loops -> the same, those of constants first."""
    if CP_ASYNC not in facts.intrinsics:
        return func

    def step(item: IRNode) -> IRNode | None:
        return _ordered(item) if isinstance(item, Seq) else None

    return with_body(func, rewrite_nodes(func.body, step))


def _ordered(item: Seq) -> Stmt | None:
    """Statements with each run of copies ordered; None where all stay."""
    runs = [(copies, list(some)) for copies, some in groupby(item.stmts, _only_copies)]
    done: list[Stmt] = []
    for copies, some in runs:
        if copies and all(_of_constants(one) or isinstance(one, AsyncCommit) for one in some):
            at = _front(done, some)
            done[at:at] = some
        else:
            done += _constants_first(some) if copies else some
    return None if done == list(item.stmts) else seq(*done)


def _front(before: Sequence[Stmt], run: Sequence[Stmt]) -> int:
    """Where a run of copies may begin: statements behind that place neither wait nor use what it writes."""
    written = {
        one.target.buffer.name for item in run for one in statements(item) if isinstance(one, AsyncCopy)
    }
    at = len(before)
    while at and _is_quiet(before[at - 1], written):
        at -= 1
    return at


def _is_quiet(item: Stmt, written: Collection[str]) -> bool:
    waits = (Barrier, AsyncCopy, AsyncCommit, AsyncWait)
    return not any(isinstance(one, waits) for one in statements(item)) and not any(
        isinstance(one, Indexed) and one.buffer.name in written for one in item.walk()
    )


def _constants_first(run: Sequence[Stmt]) -> list[Stmt]:
    ends = [n for n, one in enumerate(run) if isinstance(one, AsyncCommit)]
    if len(ends) < 2:  # one group: what goes on in a loop
        return list(run)
    movable = ends[min(_PARTS, len(ends)) - 1]
    first = [n for n in range(movable) if _of_constants(run[n])]
    return [run[n] for n in (*first, *(n for n in range(len(run)) if n not in first))]


def _only_copies(item: Stmt) -> bool:
    """Whether a statement starts copies, or ends a group of them, and does nothing else."""
    inner = (For, If, Seq, AsyncCopy, AsyncCommit)
    return all(
        isinstance(one, inner) and not (isinstance(one, For) and one.kind is not ForKind.UNROLLED)
        for one in statements(item)
    )


def _of_constants(item: Stmt) -> bool:
    copies = [one for one in statements(item) if isinstance(one, AsyncCopy)]
    return bool(copies) and all(one.source.buffer.scope == CONSTANT for one in copies)
