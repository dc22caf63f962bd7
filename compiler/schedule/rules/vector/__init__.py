"""The rules for processors with vectors: loops become parallel, vectorised and unrolled."""

from __future__ import annotations

from compiler.core.target import TargetFacts
from compiler.loops.annotations import stage_of
from compiler.loops.ir import Block, ForKind
from compiler.schedule.chooser import Chooser
from compiler.schedule.rules.common import consumer
from compiler.schedule.rules.im2col import lay_out_columns
from compiler.schedule.rules.vector.attention import attention
from compiler.schedule.rules.vector.contraction import contraction
from compiler.schedule.rules.vector.elementwise import elementwise
from compiler.schedule.rules.vector.row_nest import row_nest
from compiler.schedule.rules.vector.rows import rows
from compiler.schedule.rules.vector.window import window
from compiler.schedule.rules.vector.winograd import schedule_winograd
from compiler.schedule.schedule import Schedule


def schedule_vectors(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> None:
    """Schedule a kernel, whose parameters have their layouts, for a processor with vectors."""
    lay_out_columns(schedule, chooser)
    (
        window(schedule, facts, chooser)
        or schedule_winograd(schedule, facts, chooser)
        or attention(schedule, facts, chooser)
        or row_nest(schedule, facts, chooser)
    )
    for name in schedule.blocks():
        block = schedule.program.blocks.get(name)
        if block is not None and block.is_reduction and not _placed(schedule, name):
            _reduction(schedule, block, facts, chooser)
    for name, block in schedule.program.blocks.items():
        for one in (consumer(schedule, name), name) if not block.is_reduction else ():
            if not _placed(schedule, one):
                elementwise(schedule, one, facts, chooser)


def _reduction(schedule: Schedule, block: Block, facts: TargetFacts, chooser: Chooser) -> None:
    """A contraction where the structure is one and the result is not for the next stage of a form.

    Where a primitive refuses a step (channel groups that two tensors pad differently, say), nothing of the
    contraction is kept: the rule for rows asks less of the structure.
    """
    is_stage = stage_of(block) is not None
    if is_stage or not schedule.attempt(contraction, block.name, facts, chooser):
        rows(schedule, block.name, facts, chooser)


def _placed(schedule: Schedule, name: str) -> bool:
    """Whether a block was already moved under the loops of another one, or has loops of its own kind."""
    loops = [schedule.loop(loop) for loop in schedule.loops(name)]
    shared = {loop for other in schedule.program.blocks if other != name for loop in schedule.loops(other)}
    return any(loop.kind is not ForKind.SERIAL for loop in loops) or any(
        loop.var.name in shared for loop in loops
    )
