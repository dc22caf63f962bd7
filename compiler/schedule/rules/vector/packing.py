"""Products of two computed tensors: the factor that lanes read, packed where it does not lie well.

Weights are repacked at compile time; a factor that the model computes is copied while it runs. Each thread
copies the panel that its register tiles read, step after step, into scratch just before it uses it:

    parallel (batch, k_outer)
      panel[k, n] = b[k, k_outer * width + n]                  for all k, in vectors of n
      for m_outer: tile += a[m, k] * panel[k, n] ...

That pays where the lanes are not neighbours in memory (a transposed factor), where its rows push each other
out of the cache, and where the last vector of a row is not full, if there are rows enough to use the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.capabilities import MASKED_MEMORY
from compiler.core.node import IRNode
from compiler.core.target import TargetFacts
from compiler.loops.ir import CONSTANT, GLOBAL, SCRATCH, Iter, Load
from compiler.loops.layout import lanes_last
from compiler.loops.queries import extent_of, iterations, variables
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Access, Site
from compiler.schedule.rules.common import strip_mine
from compiler.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Factor:
    """The factor of a product that the lanes read.

    operand: which of the two; lane: the iteration that the lanes run along; axes: the iterations that it
    depends on, as the panel has them; along: whether its lanes are neighbours in memory.
    """

    operand: int
    lane: Iter
    axes: tuple[int, ...]
    along: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """The block that copies a factor, and its buffer: in scratch for all steps, or in registers for one."""

    block: str
    buffer: str
    whole: bool

    def axes(self, reader: Site) -> frozenset[str]:
        """The iterations of the block that reads the panel on which its content depends."""
        return next(load.uses for load in reader.loads if load.buffer.name == self.buffer)


def lanes_factor(block: Site) -> Factor | None:
    """The factor of a product of computed tensors that depends on the last axis of the result."""
    found = factors(block.block)
    last = block.store.indices[-1] if block.store.indices else None
    lane = next((item for item in block.spatial if item.var == last), None)
    if found is None or lane is None or extent_of(lane.extent) < 2:
        return None
    touching = [number for number, factor in enumerate(found) if lane.var.name in variables(factor)]
    if len(touching) != 1 or any(_is_constant(factor) for factor in found):
        return None
    used = variables(found[touching[0]])
    axes = [number for number, item in enumerate(block.block.iters) if item.var.name in used]
    own = block.block.iters.index(lane)
    if not any(block.block.iters[number].kind == "reduce" for number in axes):
        return None
    order = (*(number for number in axes if number != own), own)
    along = all(_along(block, load, lane) for load in block.loads if lane.var.name in load.uses)
    return Factor(touching[0], lane, order, along)


def _is_constant(factor: IRNode) -> bool:
    return any(isinstance(item, Load) and item.buffer.scope == CONSTANT for item in factor.walk())


def _along(block: Site, load: Access, lane: Iter) -> bool:
    return block.stride(load, lane.var.name) == 1


def stride_in_place(block: Site) -> int:
    """Bytes from one step to the next of a factor that is read in place; 0 where there is no such factor."""
    factor = lanes_factor(block)
    loads = [load for load in block.loads if factor is not None and factor.lane.var.name in load.uses]
    steps = [
        block.stride(load, block.reduce[-1].var.name) or 0 for load in loads if load.buffer.scope == GLOBAL
    ]
    return max(map(abs, steps), default=0) * block.store.buffer.dtype.bytes


_COPIED, _TRANSPOSED = 1.5, 10.0
"""Cycles to copy a vector into a panel, where lanes are neighbours, and where they are not."""


def packing_cycles(block: Site, factor: Factor, facts: TargetFacts) -> float:
    """Cycles to copy the whole factor."""
    elements = iterations(block.block.iters[number] for number in factor.axes)
    vectors = elements / facts.lanes(block.store.buffer.dtype.bits)
    return vectors * (_COPIED if factor.along else _TRANSPOSED)


_PARTIAL = 1.0
"""Cycles to load the first lanes of a vector, where an instruction does that; else one for each lane."""


def partial_cycles(block: Site, factor: Factor, facts: TargetFacts) -> float:
    """Cycles that the last vector of a row costs if the factor is read in place; 0 where it is full."""
    lanes = facts.lanes(block.store.buffer.dtype.bits)
    columns = extent_of(factor.lane.extent)
    each = _PARTIAL if MASKED_MEMORY in facts.intrinsics else lanes
    steps = iterations(block.block.iters) / columns / _ROWS
    return steps * each if columns % lanes else 0.0


_ROWS = 6
"""Rows that use a vector once it is loaded, about."""


def dot_cycles(block: Site, facts: TargetFacts) -> float:
    """Cycles where each result is a sum over vectors of the reduction, as if those lay side by side."""
    lanes = facts.lanes(block.store.buffer.dtype.bits)
    steps = iterations(block.reduce) / lanes
    return iterations(block.spatial) * (steps + _ACROSS)


_ACROSS = 8.0
"""Cycles to add up the lanes of a vector."""


def pack(schedule: Schedule, name: str, factor: Factor, scope: str) -> Panel:
    """Let a block read the factor from a buffer of its own."""
    block, buffer = schedule.cache_operand(name, factor.operand, factor.axes, scope)
    return Panel(block, buffer, scope == SCRATCH)


def lay_out_panel(schedule: Schedule, panel: Panel, lanes: int) -> None:
    """Let a panel, and the block that fills it, consist of whole vectors of lanes."""
    rank = len(schedule.block(panel.block).iters)
    schedule.transform_layout(panel.buffer, lanes_last(rank, rank - 1, lanes))
    strip_mine(schedule, panel.block, rank - 1, lanes)


def place_panel(schedule: Schedule, panel: Panel, tiles: str, step: str, lanes: int) -> None:
    """Fill a panel vector by vector: under the loop around all tiles that read it, or in each step.

    Where not the lanes are neighbours in memory but the elements of another loop, so many of these are taken
    together that the lowering can load them as vectors and transpose them in registers.
    """
    loops = schedule.compute_at(panel.block, tiles if panel.whole else step)
    *others, lane = loops
    beside = _loop_beside(schedule.site(panel.block), others) if panel.whole else None
    if beside is not None and extent_of(schedule.loop(beside).extent) >= lanes:
        tail = "shift" if extent_of(schedule.loop(beside).extent) % lanes else "guard"
        outer, inner = schedule.split(beside, (None, lanes), tail=tail)
        others.remove(beside)
        schedule.reorder(outer, *others, inner, lane)
        schedule.unroll(inner)
    for loop in others if not panel.whole else ():
        schedule.unroll(loop)
    schedule.vectorize(lane)


def _loop_beside(copy: Site, loops: Sequence[str]) -> str | None:
    """The loop along which what a block copies are neighbours in memory."""
    for item in copy.block.iters:
        found = [loop for loop in loops if loop in variables(item.binding)]
        if found and all(copy.stride(load, item.var.name) == 1 for load in copy.loads):
            return found[0]
    return None
