"""Blocks of a launch that a unit works on at once: compilers would save registers for more of them."""

from __future__ import annotations

from math import prod

from compiler.core.target import TargetFacts
from compiler.loops.ir import CLUSTER, SHARED, Alloc, LastBlock, Stmt, statements
from compiler.loops.queries import buffer_bytes
from compiler.render.vocabulary import Dim3

_OTHER_REGISTERS = 40
"""Registers of a thread beside the arrays that lie in them: places, operands, counters."""


def resident_blocks(nest: Stmt, grid: Dim3, block: Dim3, facts: TargetFacts) -> int:
    """How many there are where they leave half of a unit's threads free; else 0.

    No more than there are registers for: those that find none are spilled.
    """
    units, most = facts.limit("units"), facts.limit("threads_per_unit")
    registers = facts.limit("registers_per_unit")
    if not (units and most and registers):
        return 0
    blocks = -(-prod(grid) // units)
    if 2 * blocks * prod(block) > most:
        return 0
    return max(1, min(blocks, registers // (prod(block) * _registers_of(nest))))


def waves_at_once(nest: Stmt, resident: int, block: Dim3, facts: TargetFacts) -> tuple[int, int] | None:
    """Sub-groups of one block and of all that a part of a unit has; None where no last block reads much."""
    lanes = max(facts.subgroup_sizes, default=0)
    if not resident or not lanes or not any(isinstance(item, LastBlock) for item in statements(nest)):
        return None
    waves, parts = -(-prod(block) // lanes), _PARTS.get(lanes, 1)
    return -(-waves // parts), -(-resident * waves // parts)


_PARTS = {64: 4, 32: 2}
"""Of a unit, by its sub-groups: each starts instructions of its own (AMD's compute units)."""


def _registers_of(nest: Stmt) -> int:
    """Registers of 32 bits that a thread needs, about: its own arrays, and a few others."""
    arrays = [item.buffer for item in statements(nest) if isinstance(item, Alloc)]
    own = [item for item in arrays if item.scope not in (SHARED, CLUSTER) and item.alias_of is None]
    return sum(-(-buffer_bytes(item) // 4) for item in own) + _OTHER_REGISTERS
