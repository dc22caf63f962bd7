"""Conditions that do not change in an unrolled loop are asked once, around it; so are those of neighbours.

Each `if` that is written out may become a branch, behind which a thread waits for what it has loaded before
it asks for the next element: for each part of a sum that a cluster of blocks adds up, say. Copies that do not
wait stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from compiler.core.target import TargetFacts
from compiler.loops.ir import Alloc, AsyncCopy, For, ForKind, Func, If, Load, Seq, Stmt, seq, statements
from compiler.loops.queries import variables
from compiler.loops.walk import Rewriter, with_body


def hoist_guards(func: Func, facts: TargetFacts) -> Func:
    """Conditions of variables move out of unrolled loops and declarations; on devices that bind threads."""
    if not facts.binds_threads:
        return func
    return with_body(func, JoinGuards(frozenset({ForKind.UNROLLED}), waits=False).visit(func.body))


@dataclass(eq=False)
class JoinGuards(Rewriter):
    """One condition around what neighbours, a declaration, or all iterations of a loop do; inside out.

    kinds: of the loops. waits: also around copies that do not wait. Conditions on memory stay where they are,
    as what is between may change it.
    """

    kinds: frozenset[ForKind]
    waits: bool

    def visit_for(self, item: For) -> Stmt:
        made = self.parts(item)
        body = made.body
        if made.kind not in self.kinds or not self.guards(body) or made.var.name in variables(body.cond):
            return made
        return body.replace(then=made.replace(body=body.then))

    def visit_alloc(self, item: Alloc) -> Stmt:
        made = self.parts(item)
        body = made.body
        return body.replace(then=made.replace(body=body.then)) if self.guards(body) else made

    def visit_seq(self, item: Seq) -> Stmt:
        made = self.parts(item)
        joined: list[Stmt] = []
        for one in made.stmts:
            last = joined[-1] if joined else None
            if self.guards(one) and self.guards(last) and one.cond == last.cond:
                joined[-1] = last.replace(then=seq(last.then, one.then))
            else:
                joined.append(one)
        return seq(*joined) if len(joined) < len(made.stmts) else made

    def guards(self, item: Stmt | None) -> TypeGuard[If]:
        """Whether a statement only asks for variables, and does nothing where the condition does not hold."""
        if not isinstance(item, If) or item.orelse is not None:
            return False
        if any(isinstance(one, Load) for one in item.cond.walk()):
            return False
        return self.waits or not any(isinstance(one, AsyncCopy) for one in statements(item))
