"""The rules for devices that bind loops to threads: each outermost loop nest becomes one launch."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.core.target import TargetFacts
from compiler.loops.layout import Layout
from compiler.schedule.chooser import Chooser
from compiler.schedule.rules.common import inline_injective
from compiler.schedule.rules.gpu.contraction import contraction
from compiler.schedule.rules.gpu.flat import flat
from compiler.schedule.rules.gpu.matrix import matrix
from compiler.schedule.rules.gpu.reduction import reduction
from compiler.schedule.rules.gpu.rows import rows
from compiler.schedule.rules.gpu.split_sum import in_chunks
from compiler.schedule.schedule import Schedule


def schedule_threads(
    schedule: Schedule,
    layouts: Mapping[str, Layout],
    facts: TargetFacts,
    chooser: Chooser,
) -> None:
    """Schedule a kernel for a device that binds threads; `layouts` as in `schedule_func`."""
    inline_injective(schedule)
    for name, layout in layouts.items():
        for index_map in layout.maps:
            schedule.transform_layout(name, index_map)
    rows(schedule, facts)
    for name, block in schedule.program.blocks.items():
        is_open = block.is_reduction and name in schedule.blocks() and not is_placed(schedule, name)
        if is_open:
            add_up(schedule, name, facts, chooser)
    for name, block in schedule.program.blocks.items():
        if not block.is_reduction and not is_placed(schedule, name):
            flat(schedule, name, facts)


def add_up(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> None:
    """Schedule a sum and what follows it, by the first rule that takes it."""
    products = (matrix, in_chunks, contraction)
    if not any(rule(schedule, name, facts, chooser) for rule in products):
        reduction(schedule, name, facts)


def is_placed(schedule: Schedule, name: str) -> bool:
    """Whether a rule has already given a block its place: under a bound loop, or beside one."""
    outer = schedule.loops(name)[:1]
    return bool(outer) and any(getattr(item, "tag", None) for item in schedule.loop(outer[0]).walk())
