"""Sampling: steps that pick tile sizes, options and places; the pick is recorded as the step's decision.

What they give may be used as arguments of later steps. The trace then refers to the sampling step, so that
another decision there changes the rest.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, Self

from compiler.loops.ir import Func
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives.base import Made, Primitive, Value
from compiler.schedule.primitives.placement import ComputeAt
from compiler.schedule.program import Program, trip_count


@dataclass(frozen=True, slots=True)
class Sampling(Primitive[Made]):
    """A step that changes nothing and picks a value; the pick is recorded as the decision of the step."""

    decision: Value = field(default=None, kw_only=True)

    def sampled(self, program: Program, source: random.Random) -> Self:
        """This step with a decision drawn from `source`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SampleTile(Sampling[tuple[int, ...]]):
    """Pick the factors of a split.

    loop: the loop. parts: how many factors. largest: bound of the innermost factor of several. dividing:
    whether the product has to be the extent; if not, it covers the extent, and the outermost factor follows.
    Outputs: the factors, outermost first.
    rewrite: nothing
    TVM: sample_perfect_tile, sample_partitioned_tile.
    """

    name: ClassVar[str] = "sample_tile"

    loop: str
    parts: int
    largest: int = 64
    dividing: bool = True

    def sampled(self, program: Program, source: random.Random) -> Self:
        extent = self._extent(program)
        factors: list[int] = []
        left = extent
        for number in range(self.parts - 1):
            limit = min(left, self.largest) if number == 0 else left
            choices = [n for n in range(1, limit + 1) if not self.dividing or left % n == 0]
            factors.append(source.choice(choices))
            left = -(-left // factors[-1])
        return type(self)(
            self.loop, self.parts, self.largest, self.dividing, decision=(left, *reversed(factors))
        )

    def apply(self, program: Program) -> tuple[Func, tuple[int, ...]]:
        extent = self._extent(program)
        factors = _decided(self)
        where = f"loop {self.loop}"
        if not isinstance(factors, tuple) or not all(isinstance(n, int) and n > 0 for n in factors):
            raise self.refuse("the decision has to be positive factors", where=where, why=f"got {factors!r}")
        numbers = tuple(n for n in factors if isinstance(n, int))
        if len(numbers) != self.parts or (self.parts > 1 and numbers[-1] > self.largest):
            why = f"got {numbers}, asked for {self.parts} with the last one at most {self.largest}"
            raise self.refuse("the decision does not fit", where=where, why=why)
        product = prod(numbers)
        if product < extent or (self.dividing and product != extent):
            why = f"the product is {product}, the extent {extent}"
            raise self.refuse("the factors do not make up the loop", where=where, why=why)
        return program.func, numbers

    def _extent(self, program: Program) -> int:
        if self.parts < 1 or self.largest < 1:
            why = f"got {self.parts} and {self.largest}"
            raise self.refuse(
                "needs a positive number of factors and bound", where=f"loop {self.loop}", why=why
            )
        return trip_count(program.loop(self.loop, self.name), self.name)


@dataclass(frozen=True, slots=True)
class SampleCategorical(Sampling[int | str]):
    """Pick one of several values.

    candidates: the values. weights: how likely each is, relative to the others; all the same when empty.
    The decision is the number of the candidate.
    Outputs: the value.
    rewrite: nothing
    TVM: sample_categorical.
    """

    name: ClassVar[str] = "sample_categorical"

    candidates: tuple[int | str, ...]
    weights: tuple[float, ...] = ()

    def sampled(self, program: Program, source: random.Random) -> Self:  # noqa: ARG002 - the same for all steps
        self._check()
        weights = self.weights or (1.0,) * len(self.candidates)
        pick = source.choices(range(len(self.candidates)), weights)[0]
        return type(self)(self.candidates, self.weights, decision=pick)

    def apply(self, program: Program) -> tuple[Func, int | str]:
        self._check()
        pick = _decided(self)
        if not isinstance(pick, int) or not 0 <= pick < len(self.candidates):
            why = f"got {pick!r}, there are {len(self.candidates)} candidates"
            raise self.refuse("the decision is not the number of a candidate", why=why)
        return program.func, self.candidates[pick]

    def _check(self) -> None:
        if not self.candidates or (self.weights and len(self.weights) != len(self.candidates)):
            why = f"{len(self.candidates)} candidates, {len(self.weights)} weights"
            raise self.refuse("needs candidates, and one weight for each or none", why=why)


@dataclass(frozen=True, slots=True)
class SampleComputeLocation(Sampling[str]):
    """Pick a loop under which compute_at may put a block.

    block: the block. The decision is the name of the loop.
    Outputs: the loop.
    rewrite: nothing
    TVM: sample_compute_location.
    """

    name: ClassVar[str] = "sample_compute_location"

    block: str

    def sampled(self, program: Program, source: random.Random) -> Self:
        found = self.locations(program)
        if not found:
            raise self.refuse(
                f"no loop can take block {self.block}",
                where=f"block {self.block}",
                why="compute_at refuses everywhere",
                hint="tile the consumers first, or leave the block where it is",
            )
        return type(self)(self.block, decision=source.choice(found))

    def apply(self, program: Program) -> tuple[Func, str]:
        program.block(self.block, self.name)
        pick = _decided(self)
        found = self.locations(program)
        if not isinstance(pick, str) or pick not in found:
            why = f"got {pick!r}, possible: {', '.join(found) or 'none'}"
            raise self.refuse(
                f"block {self.block} cannot be computed there", why, where=f"block {self.block}"
            )
        return program.func, pick

    def locations(self, program: Program) -> tuple[str, ...]:
        """The loops that compute_at accepts for the block, in program order."""
        program.block(self.block, self.name)
        found = []
        for loop in program.loops:
            try:
                ComputeAt(self.block, loop).apply(program)
            except ScheduleError:
                continue
            found.append(loop)
        return tuple(found)


def _decided(step: Sampling[Any]) -> object:
    if step.decision is None:
        raise step.refuse(
            "nothing was decided",
            why="the schedule has no random source",
            hint="pass a decision, or make the Schedule with a source",
        )
    return step.decision
