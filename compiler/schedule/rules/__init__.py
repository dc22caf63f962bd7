"""The design space of a kernel: rules write its schedule, a chooser fills the open decisions.

There is no other way to a schedule: the untuned compile, the tuner and the replay of a database record differ
in the chooser only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from compiler.core.target import TargetFacts
from compiler.loops.annotations import stage_of
from compiler.loops.ir import Block, ForKind, Func
from compiler.loops.layout import Layout
from compiler.schedule.chooser import Chooser
from compiler.schedule.errors import ScheduleError
from compiler.schedule.rules.common import inline_injective
from compiler.schedule.rules.contraction import contraction
from compiler.schedule.rules.elementwise import elementwise
from compiler.schedule.rules.gpu import schedule_threads
from compiler.schedule.rules.rows import rows
from compiler.schedule.rules.window import window
from compiler.schedule.rules.winograd import winograd
from compiler.schedule.schedule import Schedule


def schedule_func(
    func: Func, layouts: Mapping[str, Layout], facts: TargetFacts, chooser: Chooser
) -> Schedule:
    """Schedule a kernel for a target; `layouts` has the layout of each parameter that is not row-major."""
    schedule = Schedule(func)
    if facts.binds_threads:
        schedule_threads(schedule, layouts, facts, chooser)
        return schedule
    inline_injective(schedule)
    for name, layout in layouts.items():
        for index_map in layout.maps:
            schedule.transform_layout(name, index_map)
    window(schedule, facts) or winograd(schedule, facts, chooser)
    for name in schedule.blocks():
        block = schedule.program.blocks.get(name)
        if block is not None and block.is_reduction and not _placed(schedule, name):
            _reduction(schedule, block, facts, chooser)
    for name, block in schedule.program.blocks.items():
        if not block.is_reduction and not _placed(schedule, name):
            elementwise(schedule, name, facts)
    return schedule


def _reduction(schedule: Schedule, block: Block, facts: TargetFacts, chooser: Chooser) -> None:
    """A contraction where the structure is one and the result is not for the next stage of a form.

    Where a primitive refuses a step (channel groups that two tensors pad differently, say), nothing of the
    contraction is kept: the rule for rows asks less of the structure.
    """
    if stage_of(block) is None:
        attempt = schedule.copy()
        with contextlib.suppress(ScheduleError):
            if contraction(attempt, block.name, facts, chooser):
                schedule.become(attempt)
                return
    rows(schedule, block.name, facts)


def _placed(schedule: Schedule, name: str) -> bool:
    """Whether a block was already moved under the loops of another one, or has loops of its own kind."""
    loops = [schedule.loop(loop) for loop in schedule.loops(name)]
    shared = {loop for other in schedule.program.blocks if other != name for loop in schedule.loops(other)}
    return any(loop.kind is not ForKind.SERIAL for loop in loops) or any(
        loop.var.name in shared for loop in loops
    )
