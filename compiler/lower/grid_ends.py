"""Blocks of a launch beyond what a run has are not started.

Where a function's attribute EXTENTS says that a run may have a part of a result only, loops over blocks get
the annotation ENDS: how many of them have a place that there is. The runtime starts no more, so a kernel's
text says nothing of it. Places beyond within the last block are computed, as they have memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.loops.annotations import ENDS
from compiler.loops.ir import EXTENTS, SAMPLES, Binary, Expr, For, Func, Stmt
from compiler.loops.queries import int_of, variables
from compiler.loops.walk import Rewriter, with_body
from compiler.lower.limit_loops import ResultEnds, Row

_LAST_AXIS = "blockIdx.z"


def grid_ends(func: Func) -> Func:
    """Loops of launches, before blocks are taken apart -> the same with the ends of grids."""
    attrs = dict(func.attrs)
    if not attrs.get(EXTENTS):
        return func
    return with_body(func, _GridEnds(ResultEnds.of(func), SAMPLES in attrs).visit(func.body))


@dataclass(eq=False)
class _GridEnds(Rewriter):
    """has_samples: where a block finds its sample by how many blocks each has along the last axis."""

    ends: ResultEnds
    has_samples: bool

    def visit_for(self, item: For) -> Stmt:
        if not item.over_blocks or (self.has_samples and item.tag == _LAST_AXIS):
            return self.parts(item)
        rows = [_blocks(item, first, row) for first, row in self.ends.in_loop(item)]
        found = tuple(row for row in rows if row is not None)
        done = self.parts(item)
        return done.replace(annotations=(*done.annotations, (ENDS, found))) if found else done


def _blocks(loop: For, first: Expr, row: Row) -> Row | None:
    """For how many values from 0 on `first` is below an end: times, step, the end; None where not these."""
    if variables(first) != {loop.var.name}:
        return None
    found = _steps(loop, first)
    return None if found is None else (*found, *row)


def _steps(loop: For, first: Expr) -> tuple[int, int] | None:
    """(times, step): `first` is below an end where the variable by `step` is below `times` the end."""
    if first == loop.var:
        return 1, 1
    if not isinstance(first, Binary):
        return None
    number, inner = int_of(first.b), _steps(loop, first.a)
    if number is None or number < 1 or inner is None:
        return None
    times, step = inner
    if first.op == "mul" and times == 1:
        return 1, step * number
    return (times * number, step) if first.op == "floordiv" else None
