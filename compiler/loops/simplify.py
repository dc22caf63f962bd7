"""Simplification of index arithmetic, in expressions and in whole programs.

The rules are in `arith`. Use one :class:`Simplifier` for many questions under the same bounds: it remembers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from compiler.core.node import Node, rewrite
from compiler.core.types import INDEX
from compiler.loops.arith import Bounds, Interval, Simplifier
from compiler.loops.ir import (
    Block,
    Const,
    Expr,
    For,
    ForKind,
    If,
    Let,
    Region,
    Seq,
    Stmt,
    Var,
    const,
    seq,
)
from compiler.loops.linear import Linear

__all__ = [
    "Bounds",
    "Interval",
    "Linear",
    "Simplifier",
    "equivalent",
    "interval",
    "linear_form",
    "prove",
    "simplify",
    "simplify_stmt",
    "substitute",
]


# ---------------------------------------------------------------- questions about one expression


def simplify(expr: Expr, bounds: Bounds | None = None) -> Expr:
    """The canonical form of an expression, given the ranges of its variables."""
    return Simplifier(bounds).simplify(expr)


def interval(expr: Expr, bounds: Bounds | None = None) -> Interval:
    """Smallest and largest value of an integer expression; None where nothing is known."""
    return Simplifier(bounds).interval(expr)


def prove(cond: Expr, bounds: Bounds | None = None) -> bool | None:
    """Whether a condition always (True) or never (False) holds; None when neither can be shown."""
    return Simplifier(bounds).prove(cond)


def linear_form(expr: Expr, bounds: Bounds | None = None) -> Linear:
    """The sum `coefficient * atom + constant` that an index expression is."""
    return Simplifier(bounds).linear(expr)


def equivalent(a: Node, b: Node, bounds: Bounds | None = None) -> bool:
    """Whether two expressions or statements are the same after simplification (False when not shown)."""
    if a == b:
        return True
    if isinstance(a, Expr) and isinstance(b, Expr):
        simplifier = Simplifier(bounds)
        return a.dtype == b.dtype and simplifier.simplify(a) == simplifier.simplify(b)
    if isinstance(a, Stmt) and isinstance(b, Stmt):
        return simplify_stmt(a, bounds) == simplify_stmt(b, bounds)
    return False


N = TypeVar("N", bound=Node)


def substitute(root: N, values: Mapping[str, Expr]) -> N:
    """Replace variables by expressions.

    Where a replaced variable is declared (a loop, an iteration variable, a let), its replacement has to be a
    variable too: that renames the declaration.
    """
    if not values:
        return root
    return rewrite(root, lambda item: values.get(item.name) if isinstance(item, Var) else None)


# ---------------------------------------------------------------- statements


def simplify_stmt(stmt: Stmt, bounds: Bounds | None = None, *, drop_unit_loops: bool = False) -> Stmt:
    """Simplify every expression below a statement with the bounds of the loops around it.

    Branches with known conditions and blocks that never run are dropped; an empty `Seq` is what is left
    of a program that does nothing. With `drop_unit_loops`, serial loops of one iteration go, too.
    """
    return _Statements(drop_unit_loops=drop_unit_loops).visit(stmt, Simplifier(bounds))


class _Statements:
    def __init__(self, *, drop_unit_loops: bool) -> None:
        self._drop_unit_loops = drop_unit_loops

    def visit(self, stmt: Stmt, known: Simplifier) -> Stmt:
        if isinstance(stmt, For):
            return self._loop(stmt, known)
        if isinstance(stmt, Block):
            return self._block(stmt, known)
        if isinstance(stmt, If):
            return self._branch(stmt, known)
        if isinstance(stmt, Seq):
            return self._sequence(stmt, known)
        if isinstance(stmt, Let):
            value = known.simplify(stmt.value)
            low, high = known.interval(value) if value.dtype == INDEX else (None, None)
            inner = known if low is None or high is None else known.bind(stmt.var.name, low, high)
            return _changed(stmt, value=value, body=self.visit(stmt.body, inner))
        return stmt.map_children(lambda child: self._child(child, known))

    def _child(self, child: Node, known: Simplifier) -> Node:
        if isinstance(child, Stmt):
            return self.visit(child, known)
        if isinstance(child, Expr):
            return known.simplify(child)
        return child.map_children(lambda inner: self._child(inner, known))

    def _loop(self, loop: For, known: Simplifier) -> Stmt:
        extent = known.simplify(loop.extent)
        if isinstance(extent, Const) and extent.value <= 0:
            return Seq(())
        if self._drop_unit_loops and extent == const(1) and loop.kind is ForKind.SERIAL:
            return self.visit(substitute(loop.body, {loop.var.name: const(0)}), known)
        body = self.visit(loop.body, _inside(known, loop.var.name, extent))
        return Seq(()) if body == Seq(()) else _changed(loop, extent=extent, body=body)

    def _block(self, block: Block, known: Simplifier) -> Stmt:
        predicate = None if block.predicate is None else known.simplify(block.predicate)
        if isinstance(predicate, Const):
            if not predicate.value:
                return Seq(())
            predicate = None
        iters, inner = [], known
        for item in block.iters:
            binding, extent = known.simplify(item.binding), known.simplify(item.extent)
            iters.append(_changed(item, binding=binding, extent=extent))
            inner = _inside(inner, item.var.name, extent)
        return _changed(
            block,
            iters=tuple(iters),
            reads=tuple(cast(Region, self._child(region, inner)) for region in block.reads),
            writes=tuple(cast(Region, self._child(region, inner)) for region in block.writes),
            body=self.visit(block.body, inner),
            init=None if block.init is None else self.visit(block.init, inner),
            predicate=predicate,
        )

    def _branch(self, stmt: If, known: Simplifier) -> Stmt:
        cond = known.simplify(stmt.cond)
        if isinstance(cond, Const):
            chosen = stmt.then if cond.value else stmt.orelse
            return Seq(()) if chosen is None else self.visit(chosen, known)
        orelse = None if stmt.orelse is None else self.visit(stmt.orelse, known)
        return _changed(stmt, cond=cond, then=self.visit(stmt.then, known), orelse=orelse)

    def _sequence(self, stmt: Seq, known: Simplifier) -> Stmt:
        done = [self.visit(item, known) for item in stmt.stmts]
        if all(new is old for new, old in zip(done, stmt.stmts, strict=True)):
            return stmt
        return seq(*done)


def _inside(known: Simplifier, name: str, extent: Expr) -> Simplifier:
    """What is known inside a loop or block over 0..extent."""
    longest = known.interval(extent)[1]
    return known if longest is None or longest < 1 else known.bind(name, 0, longest - 1)


def _changed(item: N, **fields: Any) -> N:
    """`item` with some fields replaced, the same object when they are equal to what it has."""
    new = {name: value for name, value in fields.items() if value != getattr(item, name)}
    return item.replace(**new) if new else item
