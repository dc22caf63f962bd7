"""The rules for sums without reuse on threads.

Many results: each thread has its own, and follows it to the end of the epilogue.

    blockIdx.x, threadIdx.x (spatial axes)
      total = 0; for reduce...: total += ...
      output[...] = epilogue(total)

Few results: a block of threads for each. Every thread adds up a part; the parts meet in shared memory.

    blockIdx.x (spatial axes)
      threadIdx.x: part[thread] = sum over every n-th element
      threadIdx.x: fewer[thread] = sum of part[...], where there are many
      total = sum of parts; output[...] = epilogue(total)
"""

from __future__ import annotations

import math
from contextlib import suppress

from compiler.core.target import TargetFacts
from compiler.loops.queries import extent_of, variables
from compiler.schedule.analysis import block_facts
from compiler.schedule.primitives.base import ScheduleError
from compiler.schedule.rules.common import fuse_all, is_output, readers
from compiler.schedule.rules.gpu.common import (
    BLOCK,
    REGISTER,
    SHARED,
    THREAD,
    bind_flat,
    most_threads,
    units,
)
from compiler.schedule.schedule import Schedule

_FEW_PER_UNIT = 256
"""With fewer results than so many for each unit, threads share the work of one."""

_FEW = 16
"""Parts that every thread adds up by itself in the end."""

_LONG = 64
"""Shorter sums are done by one thread."""


def reduction(schedule: Schedule, name: str, facts: TargetFacts) -> None:
    """Schedule a sum, and what follows it where that goes along."""
    steps = [_across, _alone] if _is_long(schedule, name, facts) else [_alone]
    for step in steps:
        for follow in (True, False):
            attempt = schedule.copy()
            with suppress(ScheduleError):
                step(attempt, name, facts, follow=follow)
                schedule.become(attempt)
                return


def _is_long(schedule: Schedule, name: str, facts: TargetFacts) -> bool:
    iters = schedule.block(name).iters
    results = math.prod(extent_of(item.extent) for item in iters if item.kind == "spatial")
    steps = math.prod(extent_of(item.extent) for item in iters if item.kind == "reduce")
    return steps >= _LONG and results <= _FEW_PER_UNIT * units(facts)


def take_result(schedule: Schedule, name: str, *, follow: bool) -> str:
    """Let a sum grow in a register; gives the block that reads it: its only consumer, or a copy."""
    block = block_facts(schedule.block(name))
    if block is None:
        raise ScheduleError(f"block {name} does more than one store", why="a register holds one result")
    total = block.store.buffer.name
    after = readers(schedule.func, total)
    if follow and len(after) == 1 and not is_output(schedule.func, total):
        schedule.set_scope(total, REGISTER)
        return after[0]
    return schedule.cache_write(name, total, REGISTER)


def parts_of(schedule: Schedule, name: str) -> tuple[list[str], list[str]]:
    """The spatial loops of a reduction that no rule has touched, and its reduce loops."""
    loops = list(schedule.loops(name))
    count = sum(item.kind == "spatial" for item in schedule.block(name).iters)
    return loops[:count], loops[count:]


def _alone(schedule: Schedule, name: str, facts: TargetFacts, *, follow: bool) -> None:
    """A thread for each result."""
    last = take_result(schedule, name, follow=follow)
    spatial, reduce = parts_of(schedule, name)
    if spatial:
        loop = fuse_all(schedule, spatial)
        schedule.reverse_compute_at(last, loop)
        bind_flat(schedule, loop, facts)
    schedule.decompose_reduction(name, reduce[0])


def _across(schedule: Schedule, name: str, facts: TargetFacts, *, follow: bool) -> None:
    """A block of threads for each result; the parts of a single result are a launch of their own."""
    last = take_result(schedule, name, follow=follow)
    spatial, reduce = parts_of(schedule, name)
    row = fuse_all(schedule, spatial) if spatial else None
    whole = fuse_all(schedule, reduce)
    threads = threads_along(extent_of(schedule.loop(whole).extent), facts)
    if row is None:
        part = schedule.split(whole, (None, threads))[1]
        block, _ = schedule.rfactor(name, part)
        _alone(schedule, block, facts, follow=False)
        schedule.decompose_reduction(name, schedule.loops(name)[0])
        return
    made = add_up(schedule, name, whole, threads)
    row = schedule.loops(name)[0]
    schedule.reverse_compute_at(last, row)
    for block in reversed(made):
        place_part(schedule, block, row, threads)
    schedule.bind(row, BLOCK)
    schedule.decompose_reduction(name, schedule.loops(name)[-1])


def threads_along(length: int, facts: TargetFacts) -> int:
    """Threads that share a sum of a length: a power of two."""
    threads = most_threads(facts)
    while threads > max(length, 1):
        threads //= 2
    return threads


def add_up(schedule: Schedule, name: str, loop: str, threads: int) -> list[str]:
    """Make a sum over `loop` one over parts in shared memory; gives the blocks that make parts, in order."""
    made: list[str] = []
    for size in (threads, _FEW):
        if made and threads <= 2 * _FEW:
            break
        part = schedule.split(loop, (None, size))[1]
        block, buffer = schedule.rfactor(name, part)
        schedule.set_scope(buffer, SHARED)
        made.append(block)
        loop = schedule.loops(name)[-1]
    return made


def place_part(schedule: Schedule, block: str, row: str, threads: int) -> None:
    """Compute parts of a sum inside `row`, a thread for each."""
    schedule.compute_at(block, row)
    iters = schedule.block(block).iters
    factor = [item for item in iters if item.kind == "spatial"][-1]
    inside = schedule.loops(block)[schedule.loops(block).index(row) + 1 :]
    part = next(loop for loop in inside if loop in variables(factor.binding))
    others = [loop for loop in inside if loop != part]
    schedule.reorder(part, *others)
    if extent_of(schedule.loop(part).extent) < threads:
        part = schedule.split(part, (None, threads))[1]
    schedule.bind(part, THREAD)
    if others:
        schedule.decompose_reduction(block, others[0])
