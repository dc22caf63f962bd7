"""What the machine code of a GPU's kernels says: records of loops, occupancy and a predicted time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks and sub-groups that are on a unit at a time, their part of the most, and what allows no more."""

    blocks: int
    subgroups: int
    share: float
    limited_by: str


@dataclass(frozen=True, slots=True)
class LoopCode:
    """A loop without those inside it; depth 1 is outermost.

    units: instructions of one round by the unit that executes them. divisions: of integers, by constants,
    too. spills: instructions that move registers to or from a thread's own memory. rounds: of one
    sub-group. cycles: in which all sub-groups of a partition make one round each, and what takes the longest;
    None where there is no model of the architecture.
    """

    label: str
    depth: int
    innermost: bool
    instructions: int
    units: Mapping[str, int]
    divisions: int
    spills: int
    rounds: int
    cycles: float | None = None
    limited_by: str = ""


@dataclass(frozen=True, slots=True)
class MachineCode:
    """What the machine code of a device function on one architecture says.

    executed: instructions of one sub-group by unit. traffic_bytes: between all units and L2, if requests are
    coalesced. microseconds: the predicted time, of which l2 and memory alone would take so much. certain: the
    way through the code is known. units_used: the part of the card's units that have a block. operations: of
    matrix units, as `MATRIX_RATES` names them.
    """

    instructions: int
    divisions: int
    spills: int
    occupancy: Occupancy | None
    loops: tuple[LoopCode, ...]
    executed: Mapping[str, int]
    traffic_bytes: int
    certain: bool
    units_used: float
    operations: tuple[str, ...] = ()
    microseconds: float | None = None
    l2_microseconds: float | None = None
    memory_microseconds: float | None = None
    limited_by: str = ""

    @property
    def inner_divisions(self) -> int:
        """Divisions in innermost loops."""
        return sum(one.divisions for one in self.loops if one.innermost)

    @property
    def innermost(self) -> LoopCode | None:
        """The innermost loop that takes the longest."""
        found = [one for one in self.loops if one.innermost]
        return max(found, key=lambda one: one.rounds * (one.cycles or one.instructions), default=None)
