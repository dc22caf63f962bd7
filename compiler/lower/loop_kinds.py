"""Loop simplification: one level of parallel loops, and no loops of a single iteration.

A parallel loop inside a parallel loop, and one over a single iteration, runs serially: the pool of threads
serves one level.
"""

from __future__ import annotations

from compiler.loops.ir import For, ForKind, Func, Stmt, const
from compiler.loops.simplify import simplify_stmt
from compiler.loops.walk import Rewriter, with_body


def settle_loop_kinds(func: Func) -> Func:
    """Make nested parallel loops serial and remove loops of one iteration."""
    return with_body(func, simplify_stmt(_Kinds().visit(func.body), drop_unit_loops=True))


class _Kinds(Rewriter):
    def visit_for(self, item: For) -> Stmt:
        nested = item.kind is ForKind.PARALLEL and any(
            loop.kind is ForKind.PARALLEL for loop in self.scope.loops
        )
        unit = item.extent == const(1) and item.kind is not ForKind.BOUND
        return self.parts(item.replace(kind=ForKind.SERIAL) if unit or nested else item)
