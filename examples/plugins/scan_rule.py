"""A rule of one's own that search decides about: running sums of float32 down the columns of a matrix."""

from __future__ import annotations

from compiler.plugin import Chooser, Const, Option, Plugin, Schedule, ScheduleRule, TargetFacts


def scan_columns(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Take several neighbouring columns of a scan at a time, in vectors; how many is open."""
    if facts.binds_threads or len(schedule.blocks()) != 1:
        return False
    (block,) = schedule.blocks()
    loops, lanes = schedule.loops(block), facts.vector_bits // 32
    if not block.startswith("scan_row") or len(loops) != 1:
        return False
    columns = schedule.loop(loops[0]).extent
    if not isinstance(columns, Const):
        return False
    wide = [Option((count,), cost=2.0) for count in (1, 2, 4) if columns.value % (count * lanes) == 0]
    # The built-in rules are the first guess: only what was measured to be faster takes their place.
    (vectors,) = chooser.choose("scan_columns.vectors", [Option((0,), cost=1.0), *wide])
    if vectors == 0:
        return False
    group, column = schedule.split(loops[0], (None, vectors * lanes))
    if vectors > 1:
        vector, column = schedule.split(column, (None, lanes))
        schedule.unroll(vector)
    schedule.vectorize(column)
    schedule.parallel(group)
    return True


PLUGIN = Plugin(rules=(ScheduleRule("scan_columns", scan_columns),))
