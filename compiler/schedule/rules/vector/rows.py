"""The rule for everything else that reduces: normalisations and softmax over rows, sums, arg-reductions.

All blocks that share the outer spatial axes run together under one parallel loop, so a row stays in the
first-level cache between them.
"""

from __future__ import annotations

from compiler.core.target import TargetFacts
from compiler.loops.ir import Binary, Expr, Iter, Var
from compiler.loops.queries import extent_of, iterations
from compiler.schedule.chooser import Chooser
from compiler.schedule.program import Site
from compiler.schedule.rules.common import SMALL, blocks_below, fuse_all, part_of_steps
from compiler.schedule.rules.options import decide, takes_threads, unroll_factors
from compiler.schedule.schedule import Schedule

_MOST_VECTORS = 8
"""Vectors of a row that search may take at a time."""


def rows(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> bool:
    """Run the outer spatial loops of one reduction in parallel; spread lanes where memory is contiguous."""
    block = schedule.site(name)
    if not block.is_store:
        return False
    loops = list(schedule.loops(name))
    spatial, reduce = loops[: len(block.spatial)], loops[len(block.spatial) :]
    lanes = facts.lanes(block.store.buffer.dtype.bits)
    inner = _contiguous(block)
    if inner is not None and inner.kind == "reduce":
        schedule.decompose_reduction(name, reduce[0])
        _spread(schedule, name, reduce, reduce[block.reduce.index(inner)], lanes, chooser)
    elif inner is not None:
        _spread(schedule, name, [*spatial, *reduce], spatial[block.spatial.index(inner)], lanes, chooser)
    outer = [loop for loop in spatial if loop in schedule.loops(name)]
    if outer and takes_threads(chooser, f"{name}.rows", guess=iterations(block.block.iters) >= SMALL):
        schedule.parallel(_widest(schedule, name, outer))
    return True


def _widest(schedule: Schedule, name: str, outer: list[str]) -> str:
    """The outer loops that follow each other from the outside, fused."""
    around = schedule.loops(name)
    leading = [loop for loop, actual in zip(outer, around, strict=False) if loop == actual]
    alone = [loop for loop in leading if len(blocks_below(schedule, loop)) == 1]
    return fuse_all(schedule, alone) if alone else leading[0]


def _spread(schedule: Schedule, name: str, loops: list[str], loop: str, lanes: int, chooser: Chooser) -> None:
    """Move one loop innermost, split into vectors, where it is long enough; perhaps several of them."""
    extent = extent_of(schedule.loop(loop).extent)
    if extent < lanes:
        return
    outer, vector = schedule.split(loop, (None, lanes), tail="guard" if extent % lanes == 0 else "mask")
    factors = unroll_factors([extent_of(schedule.loop(outer).extent)], _MOST_VECTORS)
    (outer,), parts = part_of_steps(schedule, [outer], decide(chooser, f"{name}.vectors", 1, factors))
    at = loops.index(loop)
    if loops[at + 1 :]:
        schedule.reorder(*loops[:at], outer, *loops[at + 1 :], *parts, vector)
    for part in parts:
        schedule.unroll(part)
    schedule.vectorize(vector)


def _contiguous(block: Site) -> Iter | None:
    """The iteration along which every access that uses it moves by one element."""
    for item in reversed(block.block.iters):
        name = item.var.name
        touching = [load for load in (*block.loads, block.store) if name in load.uses]
        plain = all(load.indices and load.indices[-1] == Var(name) for load in touching)
        if touching and plain and not _computes_with(block.body.value, name):
            return item
    return None


def _computes_with(item: Expr, name: str) -> bool:
    """Whether a value uses an iteration variable outside of indices (an arg-reduction does)."""
    if isinstance(item, Binary):
        return _computes_with(item.a, name) or _computes_with(item.b, name)
    return item == Var(name)
