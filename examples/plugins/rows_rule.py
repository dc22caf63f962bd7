"""A rule of one's own: sums over rows of float32, in several vectors that do not wait for each other."""

from __future__ import annotations

from compiler.plugin import Chooser, Option, Plugin, Schedule, ScheduleRule, TargetFacts


def sum_rows(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a kernel that is one sum over the last axis; leave all others to the built-in rules."""
    if facts.binds_threads or len(schedule.blocks()) != 1:
        return False
    (block,) = schedule.blocks()
    loops, lanes = schedule.loops(block), facts.vector_bits // 32
    if len(loops) != 2 or len(schedule.site(block).reduce) != 1:
        return False
    counts = [Option((count,), cost=1 / count) for count in (1, 2, 4, 8)]
    (vectors,) = chooser.choose("sum_rows.vectors", counts)

    _, part = schedule.split(loops[1], (None, vectors * lanes))
    sums, buffer = schedule.rfactor(block, part, axis=1)  # a sum for each lane of each vector
    schedule.set_scope(buffer, "register")
    row, rest = schedule.loops(block)  # the sum of these sums
    schedule.compute_at(sums, row)
    part, terms = schedule.loops(sums)[-2:]
    schedule.reorder(terms, part)
    start = schedule.decompose_reduction(sums, terms)
    for name in (sums, start):
        vector, lane = schedule.split(schedule.loops(name)[-1], (None, lanes))
        schedule.unroll(vector)
        schedule.vectorize(lane)
    schedule.decompose_reduction(block, rest)
    schedule.vectorize(schedule.split(rest, (None, lanes))[1])
    schedule.parallel(row)
    return True


PLUGIN = Plugin(rules=(ScheduleRule("sum_rows", sum_rows),))
