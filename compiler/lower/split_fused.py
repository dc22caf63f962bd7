"""Take fused loops apart where their parts are used: index arithmetic without divisions.

A loop over f in 0..n whose body speaks of `f // c` and `f % c` becomes a loop over n // c with one over c
inside. Serial loops are always split. A parallel loop keeps enough iterations to share among threads, and its
inner part becomes serial.
"""

from __future__ import annotations

from compiler.core.node import Node
from compiler.loops.ir import Binary, Const, For, ForKind, Func, Stmt, Var, binary, const
from compiler.loops.names import fresh
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Bounds, simplify_stmt, substitute
from compiler.lower.rewriter import with_body

PARALLEL_ITERATIONS = 96
"""A parallel loop is not split below so many iterations."""


def split_fused(func: Func) -> Func:
    """Split loops by the divisors of their variables."""
    names = set(variables(func.body))
    return with_body(func, _Split(names).visit(func.body, {}))


class _Split:
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit(self, stmt: Stmt, bounds: Bounds) -> Stmt:
        if not isinstance(stmt, For):
            return stmt.map_children(
                lambda item: self.visit(item, bounds) if isinstance(item, Stmt) else item
            )
        stmt = self._split(stmt, bounds)
        extent = int_of(stmt.extent)
        inner = bounds if extent is None else {**bounds, stmt.var.name: (0, extent - 1)}
        body = self.visit(stmt.body, inner)
        return stmt if body is stmt.body else stmt.replace(body=body)

    def _split(self, loop: For, bounds: Bounds) -> For:
        """The loop, or the outer one of those that it becomes."""
        extent = int_of(loop.extent)
        least = PARALLEL_ITERATIONS if loop.kind is ForKind.PARALLEL else 2
        if extent is None or loop.kind not in (ForKind.SERIAL, ForKind.PARALLEL):
            return loop
        size = min((n for n in _divisors(loop) if extent % n == 0 and extent // n >= least), default=None)
        if size is None:
            return loop
        outer, inner = (
            Var(fresh(f"{loop.var.name}_o", self._names)),
            Var(fresh(f"{loop.var.name}_i", self._names)),
        )
        value = binary("add", binary("mul", outer, size), inner)
        known = {**bounds, outer.name: (0, extent // size - 1), inner.name: (0, size - 1)}
        body = simplify_stmt(substitute(loop.body, {loop.var.name: value}), known)
        inside = For(inner, const(size), body)
        return self._split(loop.replace(var=outer, extent=const(extent // size), body=inside), bounds)


def _divisors(loop: For) -> set[int]:
    """Numbers above 1 by which the variable itself is divided."""

    def divides(item: Node) -> bool:
        return isinstance(item, Binary) and item.op in ("floordiv", "floormod") and item.a == loop.var

    return {
        int(item.b.value)
        for item in loop.body.walk()
        if divides(item) and isinstance(item, Binary) and isinstance(item.b, Const) and item.b.value > 1
    }
