"""Copies of constants begin before those of what earlier launches make, while a launch waits for these.

In front of a pipeline's loop the first parts of each factor are copied, factor by factor. Those of a constant
need no other launch: of the first `_PARTS` parts they move to the front, into the first group of copies.
Those of more parts would be in the way of the first part of the other factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from compiler.core.node import IRNode, rewrite_nodes
from compiler.core.target import TargetFacts
from compiler.loops.ir import (
    CONSTANT,
    AsyncCommit,
    AsyncCopy,
    For,
    ForKind,
    Func,
    If,
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
    done = [one for copies, some in runs for one in (_constants_first(some) if copies else some)]
    return None if done == list(item.stmts) else seq(*done)


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
