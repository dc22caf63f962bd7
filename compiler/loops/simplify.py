"""Simplification of index arithmetic, in expressions and in whole programs.

The rules are in `arith`. Use one :class:`Simplifier` for many questions under the same bounds: it remembers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.arith import Bounds, Interval, Simplifier
from compiler.loops.ir import (
    Block,
    Const,
    Expr,
    For,
    ForKind,
    If,
    Seq,
    Stmt,
    Var,
    const,
)
from compiler.loops.linear import Linear
from compiler.loops.names import fresh
from compiler.loops.regions import variables_of
from compiler.loops.walk import N, Rewriter, Scope, is_empty, with_own_buffers

__all__ = [
    "Bounds",
    "Interval",
    "Linear",
    "Simplifier",
    "renamed",
    "simplify",
    "simplify_stmt",
    "substitute",
]


# ---------------------------------------------------------------- questions about one expression


def simplify(expr: Expr, bounds: Bounds | None = None) -> Expr:
    """The canonical form of an expression, given the ranges of its variables."""
    return Simplifier(bounds).simplify(expr)


def substitute(root: N, values: Mapping[str, Expr]) -> N:
    """Replace variables by expressions.

    Where a replaced variable is declared (a loop, an iteration variable, a let), its replacement has to be a
    variable too: that renames the declaration.
    """
    if not values:
        return root
    return rewrite_nodes(root, lambda item: values.get(item.name) if isinstance(item, Var) else None)


def renamed(body: Stmt, taken: set[str]) -> Stmt:
    """A copy whose loops, lets, buffers and blocks have names of their own; `taken` grows by them."""
    bound = [var for item in body.walk() for var in variables_of(item)]
    own = with_own_buffers(body, taken)
    done = substitute(own, {var.name: Var(fresh(var.name, taken), var.type) for var in bound})

    def step(item: IRNode) -> IRNode | None:
        return item.replace(name=fresh(item.name, taken)) if isinstance(item, Block) else None

    return rewrite_nodes(done, step)


# ---------------------------------------------------------------- statements


def simplify_stmt(
    stmt: Stmt, bounds: Bounds | Simplifier | None = None, *, drop_unit_loops: bool = False
) -> Stmt:
    """Simplify every expression below a statement with the bounds of the loops around it.

    Branches with known conditions and blocks that never run are dropped; an empty `Seq` is what is left
    of a program that does nothing. With `drop_unit_loops`, serial loops of one iteration go, too.
    """
    known = bounds if isinstance(bounds, Simplifier) else Simplifier(bounds)
    return _Statements(drop_unit_loops, scope=Scope((), known)).visit(stmt)


@dataclass(eq=False)
class _Statements(Rewriter):
    drop_unit_loops: bool

    uses_conditions = True

    def part(self, item: N) -> N:
        if not isinstance(item, Expr):
            return item.map_parts(self.part)
        done = self.known.simplify(item)
        return item if done == item else cast(N, done)

    def visit_for(self, item: For) -> Stmt:
        extent = self.known.simplify(item.extent)
        if isinstance(extent, Const) and extent.value <= 0:
            return Seq(())
        if self.drop_unit_loops and extent == const(1) and item.kind is ForKind.SERIAL:
            return self.visit(substitute(item.body, {item.var.name: const(0)}))
        done = self.parts(item)
        return done.body if is_empty(done.body) else done

    def visit_block(self, item: Block) -> Stmt:
        holds = None if item.predicate is None else self.known.prove(item.predicate)
        if holds is False:
            return Seq(())
        return self.parts(item.replace(predicate=None) if holds else item)

    def visit_if(self, item: If) -> Stmt:
        holds = self.known.prove(item.cond)
        if holds is None:
            return self.parts(item)
        chosen = item.then if holds else item.orelse
        return Seq(()) if chosen is None else self.visit(chosen)
