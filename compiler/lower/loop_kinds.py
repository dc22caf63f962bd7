"""Settle how loops run: one level of parallel loops, and no loops of a single iteration.

A parallel loop inside a parallel loop, and one over a single iteration, runs serially: the pool of threads
serves one level.
"""

from __future__ import annotations

from compiler.loops.ir import For, ForKind, Func, Stmt, const
from compiler.loops.simplify import simplify_stmt
from compiler.lower.rewriter import Rewriter, with_body


def settle_loop_kinds(func: Func) -> Func:
    """Make nested parallel loops serial and remove loops of one iteration."""
    return with_body(func, simplify_stmt(_Kinds().visit(func.body), drop_unit_loops=True))


class _Kinds(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._parallel = False

    def visit_for(self, item: For) -> Stmt:
        if item.kind is ForKind.BOUND:
            return self.loop(item)
        unit = item.extent == const(1)
        if unit or (self._parallel and item.kind is ForKind.PARALLEL):
            return self.loop(item.replace(kind=ForKind.SERIAL))
        if item.kind is not ForKind.PARALLEL:
            return self.loop(item)
        self._parallel = True
        done = self.loop(item)
        self._parallel = False
        return done
