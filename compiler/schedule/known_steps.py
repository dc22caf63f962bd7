"""Steps that were taken before: candidates of one kernel begin alike, and differ in a few of their steps."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from compiler.loops.ir import Func
from compiler.schedule.primitives.base import Made, Primitive
from compiler.schedule.program import Program

_MOST = 512
"""Steps that are kept: those of a dozen schedules. Programs share what a step did not change."""


class KnownSteps:
    """What steps made of programs, the last ones that were asked for; of what is refused nothing is kept."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._made: OrderedDict[tuple[Func, Primitive[Any]], tuple[Program, Any]] = OrderedDict()
        self.found = 0

    def apply(self, primitive: Primitive[Made], program: Program) -> tuple[Program, Made]:
        """The program that a step leads to, and the names made; raises what the step raises."""
        key = program.func, primitive
        known = self._made.get(key)
        if known is not None:
            self._made.move_to_end(key)
            self.found += 1
            return known
        func, made = primitive.apply(program)
        after = program if func is program.func else Program(func)
        self._made[key] = after, made
        if len(self._made) > self._most:
            self._made.popitem(last=False)
        return after, made
