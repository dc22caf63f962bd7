"""The rule for everything else that reduces: normalisations and softmax over rows, sums, arg-reductions.

All blocks that share the outer spatial axes run together under one parallel loop, so a row stays in the first-level cache
between them.
"""

from __future__ import annotations

import math

from compiler.core.target import TargetFacts
from compiler.loops.ir import Binary, Expr, Iter, Var
from compiler.schedule.analysis import BlockFacts, block_facts, extent_of
from compiler.schedule.rules.common import SMALL
from compiler.schedule.schedule import Schedule


def rows(schedule: Schedule, name: str, facts: TargetFacts) -> bool:
    """Run the outer spatial loops of one reduction block in parallel; spread lanes where memory is contiguous."""
    block = block_facts(schedule.block(name))
    if block is None:
        return False
    loops = list(schedule.loops(name))
    spatial = loops[: len(block.spatial)]
    work = math.prod(extent_of(item.extent) for item in block.block.iters)
    inner = _contiguous(block)
    if inner is not None:
        _vectorize(schedule, block, inner, loops, spatial, facts)
    outer = next((loop for loop in spatial if loop in schedule.loops(name)), None)
    if outer is not None and work >= SMALL:
        schedule.parallel(outer)
    return True


def _contiguous(block: BlockFacts) -> Iter | None:
    """The iteration along which every access that uses it moves by one element."""
    for item in reversed(block.block.iters):
        name = item.var.name
        touching = [load for load in (*block.loads, block.store) if name in load.uses]
        plain = all(load.indices and load.indices[-1] == Var(name) for load in touching)
        if touching and plain and not _computes_with(block, name):
            return item
    return None


def _computes_with(block: BlockFacts, name: str) -> bool:
    """Whether the value uses the iteration variable outside of indices (an arg-reduction does)."""

    def visit(item: Expr) -> bool:
        if isinstance(item, Var):
            return item.name == name
        if not isinstance(item, Binary):
            return False
        return visit(item.a) or visit(item.b)

    value = getattr(block.block.body, "value", None)
    return isinstance(value, Expr) and visit(value)


def _vectorize(
    schedule: Schedule,
    block: BlockFacts,
    inner: Iter,
    loops: list[str],
    spatial: list[str],
    facts: TargetFacts,
) -> None:
    lanes = facts.lanes(block.store.buffer.dtype.bits)
    extent = extent_of(inner.extent)
    order = [item.var.name for item in block.block.iters]
    loop = loops[order.index(inner.var.name)]
    if extent % lanes or extent < lanes:
        return
    outer, vector = schedule.split(loop, (None, lanes))
    if loop in spatial:
        spatial[spatial.index(loop)] = outer
        rest = [item for item in loops if item not in spatial and item != loop]
        schedule.reorder(outer, *rest, vector)
    schedule.vectorize(vector)
