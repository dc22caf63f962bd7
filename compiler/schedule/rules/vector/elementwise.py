"""The rule for blocks without a reduction: one pass over the output, whole vectors at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from compiler.core.target import TargetFacts
from compiler.loops.ir import REGISTER, Binary, Const, Expr, Var
from compiler.loops.queries import extent_of, int_of, iterations, variables
from compiler.schedule.chooser import Chooser
from compiler.schedule.errors import ScheduleError
from compiler.schedule.program import Site
from compiler.schedule.rules.common import (
    SMALL,
    fuse_all,
    intermediates,
    part_of_steps,
    split_iteration,
    strip_mine,
)
from compiler.schedule.rules.options import decide, takes_threads, unroll_factors
from compiler.schedule.schedule import Schedule

MOST_COPIES = 1024
"""Statements that unrolling may make of one."""

_MOST_WRITTEN_OUT = 8
"""Iterations of the innermost loop that search may write out."""


def elementwise(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> bool:
    """Vectorise the innermost axis of the output and run the outer ones in parallel."""
    block = schedule.site(name)
    if block.reduce:
        return False
    if not block.is_store:
        return _rows_in_order(schedule, block, chooser)
    lanes = facts.lanes(block.store.buffer.dtype.bits)
    blocked, shared = _blocked_axis(block), intermediates(schedule, name)
    loops = _in_blocks(schedule, name, *blocked) if blocked is not None else None
    if loops is None:
        loops = list(schedule.loops(name))
        if shared and len(loops) == 1 and (extent := extent_of(block.spatial[-1].extent)) <= lanes:
            loops = list(schedule.split(loops[0], (None, extent)))  # a loop around the only vector
        _vectorize_inner(schedule, block, loops, lanes)
    once = shared if loops else []
    if loops and not shared:
        loops[-1] = _write_out(schedule, name, loops[-1], chooser)
    large = iterations(block.spatial) >= SMALL
    is_large = bool(loops) and takes_threads(chooser, name, guess=large)
    # What is read where is not always understood: then what is shared keeps loops of its own.
    if not (once and schedule.attempt(_finish, loops, once, is_large=is_large)):
        _finish(schedule, loops, (), is_large=is_large)
    return True


def _write_out(schedule: Schedule, name: str, loop: str, chooser: Chooser) -> str:
    """Several iterations of the innermost loop, one after the other in the text; gives the loop around."""
    factors = unroll_factors([extent_of(schedule.loop(loop).extent)], _MOST_WRITTEN_OUT)
    factor = decide(chooser, f"{name}.vectors", 1, factors)
    outside, inside = part_of_steps(schedule, [loop], factor)
    for part in inside:
        schedule.unroll(part)
    return outside[0]


def _rows_in_order(schedule: Schedule, block: Site, chooser: Chooser) -> bool:
    """A block of many statements: its iterations may run at the same time, each in order."""
    touched = [region.extent for region in (*block.block.reads, *block.block.writes)]
    most = max((prod(int_of(extent) or 1 for extent in extents) for extents in touched), default=1)
    rows = iterations(block.spatial)
    if rows == 1 or not takes_threads(chooser, block.name, guess=rows * most >= SMALL):
        return False
    return schedule.attempt(_parallel_rows, block.name)


def _parallel_rows(schedule: Schedule, name: str) -> None:
    schedule.parallel(fuse_all(schedule, schedule.loops(name)))


def _finish(schedule: Schedule, loops: Sequence[str], once: Sequence[str], *, is_large: bool) -> None:
    """Compute the blocks of `once` inside of the loops that feed on them, and run the loops in parallel."""
    for other in reversed(once):
        schedule.attempt(_compute_once, other, loops[-1])
    if is_large:
        schedule.parallel(fuse_all(schedule, loops))


def _compute_once(schedule: Schedule, name: str, loop: str) -> None:
    """A value that is read several times is made once for each vector, and stays in a register."""
    own = schedule.compute_at(name, loop)
    schedule.set_scope(schedule.site(name).target, REGISTER)
    if own:
        schedule.vectorize(own[-1])


def _in_blocks(schedule: Schedule, name: str, axis: int, size: int, group: int) -> list[str] | None:
    """Let the lanes of channel blocks be innermost, as vectors; returns the loops around them.

    None, and nothing is changed, where the channels do not fill whole groups, so that a step is refused.
    """
    attempt = schedule.copy()
    try:
        if group:
            split_iteration(attempt, name, axis, group)
        strip_mine(attempt, name, axis + 1 if group else axis, size)
        loops = list(attempt.loops(name))
        if _scattered(attempt, name):
            _unroll_channels(attempt, loops, axis + 1 if group else axis)
        else:
            attempt.vectorize(loops.pop())
    except ScheduleError:
        return None
    schedule.adopt(attempt)
    return loops


def _blocked_axis(block: Site) -> tuple[int, int, int] | None:
    """(number of the iteration, lanes, group size) of a store into channel blocks; None for others."""
    last = block.store.indices[-1] if block.store.indices else None
    if not isinstance(last, Binary) or last.op != "floormod" or not isinstance(last.b, Const):
        return None
    lanes = int(last.b.value)
    inner: Expr = last.a
    group = 0
    if isinstance(inner, Binary) and inner.op == "floormod" and isinstance(inner.b, Const):
        group, inner = int(inner.b.value), inner.a
    order = [item.var for item in block.block.iters]
    return (order.index(inner), lanes, group) if isinstance(inner, Var) and inner in order else None


def _scattered(schedule: Schedule, name: str) -> bool:
    """Whether the lanes of some operand lie at no regular distance (another blocking of the channels)."""
    block = schedule.site(name)
    lane = block.spatial[-1].var.name
    return any(block.stride(load, lane) is None for load in block.loads)


def _unroll_channels(schedule: Schedule, loops: list[str], axis: int) -> None:
    """Unroll channel blocks and lanes inside of space: every channel's place is a number then."""
    lane = loops.pop()
    blocks = loops[axis]
    copies = extent_of(schedule.loop(lane).extent) * extent_of(schedule.loop(blocks).extent)
    if copies <= MOST_COPIES:
        loops.remove(blocks)
        schedule.reorder(*loops, blocks, lane)
        schedule.unroll(blocks)
    schedule.unroll(lane)


def _vectorize_inner(schedule: Schedule, block: Site, loops: list[str], lanes: int) -> None:
    """Split the innermost loop into vectors where the store is contiguous and the axis long enough."""
    if not loops:
        return
    last = block.store.indices[-1]
    inner = block.spatial[-1]
    extent = extent_of(inner.extent)
    contiguous = block.stride(block.store, inner.var.name) == 1 and inner.var.name in variables(last)
    if not contiguous or extent < lanes // 2:
        return
    if extent <= lanes:
        schedule.vectorize(loops.pop())
        return
    tail = "guard" if extent % lanes == 0 else "mask"
    outer, vector = schedule.split(loops[-1], (None, lanes), tail=tail)
    loops[-1] = outer
    schedule.vectorize(vector)
