"""A Schedule is a Func and the trace of what was done to it."""

from __future__ import annotations

import random
from collections.abc import Mapping

from compiler.core.diagnostics import BadInputError
from compiler.loops.ir import Block, For, Func
from compiler.schedule.methods import BlockMethods, LoopMethods, SamplingMethods
from compiler.schedule.placement_methods import PlacementMethods
from compiler.schedule.primitives.base import Outputs, Primitive, Program, Sampling, Value
from compiler.schedule.trace import Ref, SampledInt, SampledName, Trace, record


class Schedule(LoopMethods, BlockMethods, PlacementMethods, SamplingMethods):
    """Rewrites a Func step by step and records each step.

    `func` is the program now, `trace` what was done. `source` is where sampling steps draw from; without one
    they need a decision.
    """

    def __init__(self, func: Func, source: random.Random | None = None) -> None:
        self.func = func
        self.trace = Trace()
        self._source = source
        self._program: Program | None = None

    def apply(self, primitive: Primitive) -> Outputs:
        """Apply any primitive; the program is unchanged when it refuses with a ScheduleError."""
        if isinstance(primitive, Sampling) and primitive.decision is None and self._source is not None:
            primitive = primitive.sampled(self.func, self._source)
        func, outputs = primitive.apply(self.func)
        self.trace = self.trace.then(record(primitive, outputs))
        if func is not self.func:
            self.func, self._program = func, None
        return self._referable(outputs) if isinstance(primitive, Sampling) else outputs

    def _referable(self, outputs: Outputs) -> Outputs:
        step = len(self.trace) - 1
        return tuple(
            SampledInt(value, Ref(step, number))
            if isinstance(value, int)
            else SampledName(value, Ref(step, number))
            for number, value in enumerate(outputs)
        )

    def copy(self) -> Schedule:
        """An independent schedule that starts from what this one did."""
        other = Schedule(self.func, self._source)
        other.trace = self.trace
        return other

    def become(self, other: Schedule) -> None:
        """Take over the program and the trace of a schedule that was copied from this one."""
        self.func, self.trace, self._program = other.func, other.trace, None

    # ------------------------------------------------------------ looking

    @property
    def program(self) -> Program:
        """The index of the current Func."""
        if self._program is None:
            self._program = Program(self.func)
        return self._program

    def loops(self, block: str) -> tuple[str, ...]:
        """Names of the loops around a block, outermost first."""
        self.block(block)
        return tuple(loop.var.name for loop in self.program.loops_around(block))

    def loop(self, name: str) -> For:
        """The loop called `name`."""
        return self.program.loop(name)

    def block(self, name: str) -> Block:
        """The block called `name`."""
        return self.program.block(name)

    def blocks(self) -> tuple[str, ...]:
        """Names of all blocks, in program order."""
        return tuple(self.program.blocks)

    def producers(self, block: str) -> tuple[str, ...]:
        """Blocks that write what `block` reads, in program order."""
        read = {region.buffer.name for region in self.block(block).reads}
        return tuple(
            item.name
            for item in self.program.blocks.values()
            if item.name != block and any(region.buffer.name in read for region in item.writes)
        )

    def consumers(self, block: str) -> tuple[str, ...]:
        """Blocks that read what `block` writes, in program order."""
        written = {region.buffer.name for region in self.block(block).writes}
        return tuple(
            item.name
            for item in self.program.blocks.values()
            if item.name != block and any(region.buffer.name in written for region in item.reads)
        )


def replay(trace: Trace, func: Func, decisions: Mapping[int, Value] | None = None) -> Schedule:
    """Apply a trace to the Func it was made for; `decisions` replaces those of sampling steps, by number.

    BadInputError when a step gives other names than were recorded although no decision was replaced: the
    trace belongs to another program.
    """
    for step, decision in (decisions or {}).items():
        trace = trace.with_decision(step, decision)
    schedule = Schedule(func)
    outputs: list[Outputs] = []
    for number, item in enumerate(trace.instructions):
        outputs.append(schedule.apply(item.primitive(outputs)))
        if not decisions and outputs[-1] != item.outputs:
            why = f"step {number} ({item.name}) gave {outputs[-1]}, recorded is {item.outputs}"
            raise BadInputError("the trace belongs to another program", why=why)
    return schedule
