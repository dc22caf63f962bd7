"""Chunks of a sum of products added up by the last of the blocks that make them.

Each block leaves what its chunk comes to in global memory and comes to a counter of its tile. The one that
comes last reads all of them, adds them up in their order, and computes the epilogue:

    blockIdx.y (rows), blockIdx.x (columns)
      blockPart (chunks)
        threadIdx.x: tile = sum over the chunk                        the rule for sums of products
        threadIdx.x: parts[chunk, row, column] = tile                 global memory
      threadIdx.x: output[...] = epilogue(sum of parts[...])          one block of each tile

CUDA C++ Programming Guide, "Memory Fence Functions": its sample adds an array up so.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.target import TargetFacts
from compiler.loops.queries import extent_of
from compiler.schedule.rules.threads.common import divisors
from compiler.schedule.schedule import Schedule

LAST_BLOCK = "last_block"
"""What targets have whose blocks see which of them comes last to a counter, and what the others wrote."""

_UNDER_WAY = 32
"""Parts that a thread asks for before it adds them up."""


def has_last_block(facts: TargetFacts) -> bool:
    """Whether the last of several blocks can go on with what they made."""
    return LAST_BLOCK in facts.intrinsics


def add_up_tile(
    schedule: Schedule, loops: Sequence[str], threads: Sequence[tuple[str, int]], chunks: int
) -> None:
    """Give the results of a tile, rows and columns of it, to threads: axes of a block with their extents."""
    own, *bound = schedule.split(schedule.fuse(*loops), (None, *(extent for _, extent in threads)))
    for loop, (tag, _) in zip(bound, threads, strict=True):
        schedule.bind(loop, tag)
    count = extent_of(schedule.loop(own).extent)
    at_once = max(n for n in divisors(count) if n * chunks <= max(_UNDER_WAY, chunks))
    schedule.unroll(schedule.split(own, (None, at_once))[1])
