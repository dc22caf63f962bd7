"""Memory planning by liveness: where all intermediates of a model lie in the arena.

Greedy by size: the largest tensors are placed first, each at the lowest offset where it does not meet
a tensor that is alive at the same time (Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.graph.branches import Branches, members
from compiler.graph.dtypes import Array

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""


SAMPLE_ALIGNMENT = 16
"""Bytes; of samples in memory on devices, whose loads of whole vectors count on it."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor that holds `bytes` from step `first` (written) to step `last` (read), both inclusive."""

    key: Hashable
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offset of each key in an arena of `bytes`."""

    offsets: Mapping[Hashable, int]
    bytes: int


NO_MEMORY = MemoryPlan({}, 0)


def plan_memory(lifetimes: Sequence[Lifetime], together: Array | None = None) -> MemoryPlan:
    """Place all tensors; two that are alive at the same step never overlap.

    together: bools that say so of each two, where steps need not come in the order of their numbers.
    """
    order = sorted(enumerate(lifetimes), key=lambda item: (-item[1].bytes, item[0]))
    offsets: dict[Hashable, int] = {}
    placed = np.empty((5, 0), np.int64)  # rows: begin, end, first, last, number; columns by begin
    total = 0
    for number, item in order:
        size = align(item.bytes)
        begins, ends, firsts, lasts, numbers = placed
        meets = (
            (firsts <= item.last) & (lasts >= item.first) if together is None else together[number, numbers]
        )
        offset = _lowest(begins[meets], ends[meets], size)
        offsets[item.key] = offset
        column = (offset, offset + size, item.first, item.last, number)
        placed = np.insert(placed, np.searchsorted(begins, offset), column, axis=1)
        total = max(total, offset + size)
    return MemoryPlan(offsets, total)


def _lowest(begins: Array, ends: Array, size: int) -> int:
    """The lowest offset with so many bytes up to the next part that is taken; parts by their begins."""
    free_from = np.maximum.accumulate(np.concatenate([[0], ends]))
    fits = begins - free_from[:-1] >= size
    return int(free_from[fits.argmax() if fits.any() else -1])


def align(size: int) -> int:
    """`size` rounded up to the alignment; an empty tensor still has an address of its own."""
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


def alive_together(uses: Sequence[int], branches: Branches) -> Array:
    """For each two tensors, of sets of steps that use them, whether some order allows both to be alive.

    They are not where all uses of one come before all of the other: an array of bools.
    """
    before = branches.before()
    common = [_before_all(one, before) for one in uses]
    found = np.ones((len(uses), len(uses)), np.bool_)
    for one in range(len(uses)):
        for other in range(one):
            apart = not (uses[one] & ~common[other] and uses[other] & ~common[one])
            found[one, other] = found[other, one] = not apart
    return found


def _before_all(uses: int, before: Sequence[int]) -> int:
    """What comes before each step of a set."""
    bits = -1
    for step in members(uses):
        bits &= before[step]
    return bits
