"""The rule for sums without reuse on threads.

Many results, or short sums: each thread has its own result, and follows it to the end of the epilogue.

    blockIdx.x, threadIdx.x (spatial axes)
      total = 0; for reduce...: total += ...
      output[...] = epilogue(total)

Few results of long sums: a block of threads for each, as in the rule for rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.target import TargetFacts
from compiler.loops.queries import extent_of, iterations
from compiler.schedule.chooser import Chooser
from compiler.schedule.program import Site
from compiler.schedule.rules.common import fuse_all
from compiler.schedule.rules.options import decide
from compiler.schedule.rules.threads.common import bind_grid, most_threads, units
from compiler.schedule.rules.threads.rows import fuse_reductions, is_long, parts_of, take_result
from compiler.schedule.schedule import Schedule

MOST_TERMS = 49
"""Longer sums are not written out."""


def reduction(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> None:
    """Schedule a sum, and what follows it where that goes along."""
    long = is_long(schedule, name, facts)
    ways = (True, False) if long else ()
    if not any(schedule.attempt(_across, name, facts, chooser, follow=way) for way in ways):
        alone(schedule, name, facts, chooser)


def alone(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> None:
    """Schedule a sum with a thread for each result, and what follows it where that goes along."""
    if not schedule.attempt(_alone, name, facts, chooser, follow=True):
        schedule.attempt(_alone, name, facts, chooser, follow=False)


def _alone(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser, *, follow: bool) -> None:
    """A thread for each result, or for a few below each other where their windows overlap."""
    last = take_result(schedule, name, follow=follow)
    spatial, reduce = parts_of(schedule, name)
    own = _own_results(schedule, name, facts, chooser)
    below = ""
    if own > 1:
        spatial[-2], below = schedule.split(spatial[-2], (None, own))
        schedule.reorder(*spatial, *reduce, below)
    results: Sequence[str] = ()
    if spatial:
        loop = fuse_all(schedule, spatial)
        results = schedule.reverse_compute_at(last, loop)
        bind_grid(schedule, loop, name, facts, chooser)
    start = schedule.decompose_reduction(name, reduce[0])
    if below:
        for one in (*reduce, below, *results, *schedule.loops(start)[1:]):
            schedule.unroll(one)


def _own_results(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> int:
    """Results below each other that a thread has: lines that windows share are read once."""
    block = schedule.site(name)
    if len(block.spatial) < 2 or iterations(block.reduce) > MOST_TERMS or not _windows_overlap(block):
        return 1
    below, count = extent_of(block.spatial[-2].extent), iterations(block.spatial)
    fitting = [own for own in (4, 2) if below % own == 0]
    busy = [own for own in fitting if count >= own * units(facts) * most_threads(facts)]
    return decide(chooser, f"{name}.below", busy[0] if busy else 1, (1, *fitting))


def _windows_overlap(block: Site) -> bool:
    """Whether windows along the last axis but one have lines in common."""
    line = block.spatial[-2].var.name
    return any(
        _among(block.stride(load, line), block.stride(load, item.var.name), extent_of(item.extent))
        for load in block.loads
        for item in block.reduce
    )


def _among(place: int | None, step: int | None, count: int) -> bool:
    """Whether a place, not the first, is one of so many steps."""
    return bool(place and step and place in range(step, step * count, step))


def _across(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser, *, follow: bool) -> None:
    """A block of threads for each result; the parts of a sum of everything are a launch of their own."""
    last = take_result(schedule, name, follow=follow)
    if schedule.loops(last):
        fuse_reductions(schedule, [name], last, facts, chooser)
        return
    whole = fuse_all(schedule, parts_of(schedule, name)[1])
    length = extent_of(schedule.loop(whole).extent)
    part = schedule.split(whole, (None, min(most_threads(facts), length)))[1]
    block, _ = schedule.rfactor(name, part)
    _alone(schedule, block, facts, chooser, follow=False)
    schedule.decompose_reduction(name, schedule.loops(name)[0])
