"""Conditions that do not change in an unrolled loop are asked once, around it; so are those of neighbours.

Each `if` that is written out may become a branch, behind which a thread waits for what it has loaded before
it asks for the next element: for each part of a sum that a cluster of blocks adds up, say. Copies that do not
wait stay as they are.
"""

from __future__ import annotations

from itertools import groupby
from typing import TypeGuard

from compiler.core.target import TargetFacts
from compiler.loops.ir import Alloc, AsyncCopy, Expr, For, ForKind, Func, If, Load, Seq, Stmt, seq, statements
from compiler.loops.queries import variables
from compiler.loops.walk import Rewriter, with_body


def hoist_guards(func: Func, facts: TargetFacts) -> Func:
    """Conditions of variables move out of unrolled loops and declarations; on devices that bind threads."""
    return with_body(func, _Hoist().visit(func.body)) if facts.binds_threads else func


class _Hoist(Rewriter):
    def visit_for(self, item: For) -> Stmt:
        made = self.parts(item)
        body = made.body
        if made.kind is not ForKind.UNROLLED or not _is_guard(body) or made.var.name in variables(body.cond):
            return made
        return body.replace(then=made.replace(body=body.then))

    def visit_alloc(self, item: Alloc) -> Stmt:
        made = self.parts(item)
        body = made.body
        return body.replace(then=made.replace(body=body.then)) if _is_guard(body) else made

    def visit_seq(self, item: Seq) -> Stmt:
        runs = [(cond, list(some)) for cond, some in groupby(self.parts(item).stmts, _condition)]
        return seq(*(one for cond, some in runs for one in ([_merged(cond, some)] if cond else some)))


def _is_guard(item: Stmt) -> TypeGuard[If]:
    """Whether a statement only asks for variables, and does nothing where the condition does not hold."""
    if not isinstance(item, If) or item.orelse is not None:
        return False
    return not any(isinstance(one, Load) for one in item.cond.walk()) and not any(
        isinstance(one, AsyncCopy) for one in statements(item)
    )


def _condition(item: Stmt) -> Expr | None:
    return item.cond if _is_guard(item) else None


def _merged(cond: Expr, some: list[Stmt]) -> Stmt:
    return If(cond, seq(*(one.then for one in some if isinstance(one, If))))
