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
from math import prod

from compiler.core.capabilities import LAST_BLOCK
from compiler.core.target import TargetFacts
from compiler.loops.index_map import AXES, IndexMap
from compiler.loops.ir import REGISTER
from compiler.loops.queries import extent_of
from compiler.schedule.rules.threads.common import divisors
from compiler.schedule.schedule import Schedule

_UNDER_WAY = 128
"""Elements for which a thread asks before it adds them up: compilers keep them all in registers."""


def has_last_block(facts: TargetFacts) -> bool:
    """Whether the last of several blocks can go on with what they made."""
    return LAST_BLOCK in facts.intrinsics


def add_up_tile(
    schedule: Schedule, name: str, tile: str, threads: Sequence[tuple[str, int]], lanes: int
) -> None:
    """Place block `name` behind the products of a tile, for all threads of the last block.

    tile: the loop over tiles. threads: axes of a block with their extents. lanes: neighbours along columns
    that are one access. A thread adds up its results of some rows, then stores them, then goes on.
    """
    total = schedule.site(name).target
    (last,) = (one.name for one in schedule.program.readers(total))
    schedule.set_scope(total, REGISTER)
    row, column, chunk = schedule.reverse_compute_at(name, tile, preserve_unit_loops=True)
    rows, columns, chunks = (extent_of(schedule.loop(loop).extent) for loop in (row, column, chunk))
    count = prod(extent for _, extent in threads)

    def rounds(along: int) -> tuple[int, int]:
        return -(-columns // (along * lanes)), -(-rows // (count // along))

    def cost(along: int) -> tuple[int, int, int]:
        """What goes beyond the registers that there are, then rounds, then those beside each other."""
        beside, below = rounds(along)
        return max(_UNDER_WAY, beside * lanes * chunks), beside * below, beside

    along = min(divisors(count), key=cost)
    down = count // along
    beside, below = rounds(along)
    below = min(below, max(1, _UNDER_WAY // (chunks * beside * lanes)))
    some, row = schedule.split(row, (None, below * down))
    *_, end_row, end_column = schedule.reverse_compute_at(last, some, preserve_unit_loops=True)
    for one, other, inner in ((row, column, [chunk]), (end_row, end_column, [])):
        own_row, thread_row = schedule.split(one, (None, down))
        own_column, thread_column, lane = schedule.split(other, (None, along, lanes))
        schedule.reorder(thread_row, thread_column, own_column, own_row, *inner, lane)
        _bind(schedule, schedule.fuse(thread_row, thread_column), threads)
        for loop in (own_row, own_column, *inner):
            schedule.unroll(loop)
        (schedule.vectorize if lanes > 1 else schedule.unroll)(lane)
    schedule.decompose_reduction(name, chunk)
    by_thread = [AXES[0] // down, AXES[0] % down, AXES[1] // (along * lanes), AXES[1] % (along * lanes)]
    schedule.transform_layout(total, IndexMap.of(2, by_thread))


def _bind(schedule: Schedule, loop: str, threads: Sequence[tuple[str, int]]) -> None:
    """Give the iterations of a loop to all threads of a block."""
    loops = schedule.split(loop, tuple(extent for _, extent in threads)) if len(threads) > 1 else (loop,)
    for one, (tag, _) in zip(loops, threads, strict=True):
        schedule.bind(one, tag)
