"""Blocks of a launch beyond what a run has are not started.

Where a function's attribute EXTENTS says that a run may have a part of a result only, loops over blocks get
the annotation ENDS: how many of them have a place that there is. The runtime starts no more, so a kernel's
text says nothing of it. Places beyond within the last block are computed, as they have memory. A loop along
x in which the places of an axis come again, as for each head of an attention, becomes two, along y and x.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.loops.annotations import ENDS
from compiler.loops.ir import (
    EXTENTS,
    SAMPLES,
    Binary,
    Expr,
    For,
    ForKind,
    Func,
    Stmt,
    Var,
    binary,
    const,
    statements,
)
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import simplify_stmt, substitute
from compiler.loops.walk import Rewriter, with_body
from compiler.lower.limit_loops import ResultEnds
from compiler.lower.part_ends import Row

_X, _Y, _Z = (f"blockIdx.{axis}" for axis in "xyz")


def grid_ends(func: Func, facts: TargetFacts) -> Func:
    """Loops of launches, before blocks are taken apart -> the same with the ends of grids."""
    attrs = dict(func.attrs)
    if not attrs.get(EXTENTS):
        return func
    periods = _Periods(ResultEnds.of(func, launches=True), facts.limit("grid_y") or sys.maxsize)
    parted = with_body(func, periods.visit(func.body))
    ends = _GridEnds(ResultEnds.of(parted, launches=True), SAMPLES in attrs)
    return with_body(parted, ends.visit(parted.body))


@dataclass(eq=False)
class _Periods(Rewriter):
    """Takes loops apart in which places of an axis come again; `most`: blocks along y."""

    ends: ResultEnds
    most: int

    def visit_for(self, item: For) -> Stmt:
        if item.tag != _X:
            return self.parts(item)
        extent, period = int_of(item.extent) or 0, self._period_of(item)
        if not period or extent % period or not 1 < extent // period <= self.most:
            return item
        names = names_in(item)
        outer, inner = (Var(fresh(f"{item.var.name}_{part}", names)) for part in "oi")
        whole = binary("add", binary("mul", outer, period), inner)
        known = self.known.bind(outer.name, 0, extent // period - 1).bind(inner.name, 0, period - 1)
        body = simplify_stmt(substitute(item.body, {item.var.name: whole}), known)
        parted = item.replace(var=inner, extent=const(period), body=body)
        return For(outer, const(extent // period), parted, ForKind.BOUND, _Y)

    def _period_of(self, item: For) -> int | None:
        """That of all places, where no other loop is along y."""
        inside = [one for one in statements(item.body) if isinstance(one, For)]
        if any(one.tag == _Y for one in (*self.scope.loops, *inside)):
            return None
        found = {_period(item, first) for first, _ in self.ends.in_loop(item)} - {None}
        return found.pop() if len(found) == 1 else None


def _period(loop: For, first: Expr) -> int | None:
    """After how many iterations places come again; None where they do not."""
    number = int_of(first.b) if isinstance(first, Binary) else None
    if not isinstance(first, Binary) or number is None or variables(first) != {loop.var.name}:
        return None
    if first.op != "floormod":
        return _period(loop, first.a) if first.op in ("mul", "floordiv") else None
    found = _steps(loop, first.a)
    return number * found[0] // found[1] if found is not None and number * found[0] % found[1] == 0 else None


@dataclass(eq=False)
class _GridEnds(Rewriter):
    """has_samples: where a block finds its sample by how many blocks each has along the last axis."""

    ends: ResultEnds
    has_samples: bool

    def visit_for(self, item: For) -> Stmt:
        if not item.over_blocks or (self.has_samples and item.tag == _Z):
            return self.parts(item)
        known = self.known.bind(item.var.name, 0, (int_of(item.extent) or 1) - 1)
        rows = [_blocks(item, known.simplify(first), row) for first, row in self.ends.in_loop(item)]
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
