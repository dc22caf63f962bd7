"""A rule of one's own: sums over rows, each row by one thread, four terms at a time."""

from __future__ import annotations

from compiler.plugin import Chooser, Option, Plugin, Schedule, ScheduleRule, TargetFacts


def sum_rows(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a kernel that is one sum over its last axis; leave all others to the built-in rules."""
    blocks = schedule.blocks()
    if facts.binds_threads or len(blocks) != 1:
        return False
    site = schedule.site(blocks[0])
    if len(site.reduce) != 1 or not site.spatial:
        return False
    *rows, terms = schedule.loops(blocks[0])
    unroll = [Option((factor,), cost=1 / factor) for factor in (1, 2, 4)]
    (factor,) = chooser.choose("sum_rows.unroll", unroll)
    _, lanes = schedule.split(terms, (None, factor))
    schedule.unroll(lanes)
    schedule.parallel(rows[0])
    return True


PLUGIN = Plugin(rules=(ScheduleRule("sum_rows", sum_rows),))
