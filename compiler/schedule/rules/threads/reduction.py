"""The rule for sums without reuse on threads.

Many results, or short sums: each thread has its own result, and follows it to the end of the epilogue.

    blockIdx.x, threadIdx.x (spatial axes)
      total = 0; for reduce...: total += ...
      output[...] = epilogue(total)

Few results of long sums: a block of threads for each, as in the rule for rows.
"""

from __future__ import annotations

from compiler.core.target import TargetFacts
from compiler.loops.queries import extent_of
from compiler.schedule.chooser import Chooser
from compiler.schedule.rules.common import fuse_all
from compiler.schedule.rules.threads.common import bind_grid, most_threads
from compiler.schedule.rules.threads.rows import fuse_reductions, is_long, parts_of, take_result
from compiler.schedule.schedule import Schedule


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
    """A thread for each result."""
    last = take_result(schedule, name, follow=follow)
    spatial, reduce = parts_of(schedule, name)
    if spatial:
        loop = fuse_all(schedule, spatial)
        schedule.reverse_compute_at(last, loop)
        bind_grid(schedule, loop, name, facts, chooser)
    schedule.decompose_reduction(name, reduce[0])


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
