"""Chunks of a sum of products added up within a cluster of blocks, in the launch that makes them.

Each block of a cluster has one chunk of the same tile of results, and leaves what it comes to in its shared
memory. Then all of them take a share of the tile, read it from every block, and compute the epilogue:

    blockIdx.y (rows), blockIdx.x (columns)
      blockRank (chunks)
        threadIdx.x: tile = sum over the chunk                        the rule for sums of products
        threadIdx.x: parts[chunk, row, column] = tile                 cluster
      blockRank, threadIdx.x (shares of the tile)
        output[...] = epilogue(sum of parts[...])

CUDA C++ Programming Guide, "Thread Block Clusters" and "Distributed Shared Memory".
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.target import TargetFacts
from compiler.loops.ir import CLUSTER, RANK
from compiler.loops.queries import extent_of
from compiler.schedule.schedule import Schedule


def most_blocks(facts: TargetFacts) -> int:
    """Blocks of a cluster, at most; 1 where none pass values to each other."""
    return (facts.limit("blocks_per_cluster") or 1) if CLUSTER in facts.scopes else 1


def share_sums(schedule: Schedule, loops: Sequence[str], threads: Sequence[tuple[str, int]]) -> None:
    """Give the results of a share to threads: axes of a block with their extents."""
    own, *bound = schedule.split(schedule.fuse(*loops), (None, *(extent for _, extent in threads)))
    for loop, (tag, _) in zip(bound, threads, strict=True):
        schedule.bind(loop, tag)
    schedule.unroll(own)


def give_shares(schedule: Schedule, row: str, column: str, blocks: int) -> tuple[str, str]:
    """Give the blocks of a cluster a share of a tile each, equal ones, if any; the loops over one."""
    rows, columns = (extent_of(schedule.loop(loop).extent) for loop in (row, column))
    if rows % blocks == 0 or columns % blocks:
        rank, row = schedule.split(row, (blocks, None))
    else:
        rank, column = schedule.split(column, (blocks, None))
        schedule.reorder(rank, row, column)
    schedule.bind(rank, RANK)
    return row, column
