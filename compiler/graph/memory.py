"""Memory planning by liveness: where all intermediates of a model lie in the arena.

Greedy by size: the largest tensors are placed first, each at the lowest offset where it does not meet
a tensor that is alive at the same time (Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference", 2020).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""


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


def plan_memory(lifetimes: Sequence[Lifetime]) -> MemoryPlan:
    """Place all tensors; two that are alive at the same step never overlap."""
    placed: list[tuple[int, int, Lifetime]] = []  # (offset, end, lifetime), by offset
    offsets: dict[Hashable, int] = {}
    total = 0
    order = sorted(enumerate(lifetimes), key=lambda item: (-item[1].bytes, item[0]))
    for _, item in order:
        size = align(item.bytes)
        offset = 0
        for begin, end, other in placed:
            if other.last < item.first or item.last < other.first:
                continue
            if begin - offset >= size:
                break
            offset = max(offset, end)
        offsets[item.key] = offset
        placed.append((offset, offset + size, item))
        placed.sort(key=lambda entry: entry[0])
        total = max(total, offset + size)
    return MemoryPlan(offsets, total)


def align(size: int) -> int:
    """`size` rounded up to the alignment; an empty tensor still has an address of its own."""
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
