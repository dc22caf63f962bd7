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


def place_shares(schedule: Schedule, name: str, tile: str) -> tuple[str, str]:
    """Place block `name` behind the products of a tile: a share of it for each block of the cluster.

    tile: the loop over tiles that a cluster computes. Gives the loops over rows and columns of a share.
    """
    site = schedule.site(name)
    (parts,) = {load.buffer.name for load in site.loads if load.buffer.name != site.target}
    (last,) = (one.name for one in schedule.program.readers(site.target))
    row, column, chunk = schedule.reverse_compute_at(name, tile, preserve_unit_loops=True)
    schedule.reverse_compute_at(last, column)
    rank, row, column = _shares(schedule, row, column, extent_of(site.reduce[0].extent))
    schedule.decompose_reduction(name, chunk)
    schedule.unroll(chunk)
    schedule.bind(rank, RANK)
    schedule.set_scope(parts, CLUSTER)
    return row, column


def share_sums(schedule: Schedule, loops: Sequence[str], threads: Sequence[tuple[str, int]]) -> None:
    """Give the results of a share to threads: axes of a block with their extents.

    The last thing that is done: behind it, rows and columns of a share cannot be told from its number.
    """
    own, *bound = schedule.split(schedule.fuse(*loops), (None, *(extent for _, extent in threads)))
    for loop, (tag, _) in zip(bound, threads, strict=True):
        schedule.bind(loop, tag)
    schedule.unroll(own)


def _shares(schedule: Schedule, row: str, column: str, blocks: int) -> tuple[str, str, str]:
    """Loops over the blocks of a cluster, and rows and columns of the share of each: equal ones, if any."""
    rows, columns = (extent_of(schedule.loop(loop).extent) for loop in (row, column))
    if rows % blocks == 0 or columns % blocks:
        rank, row = schedule.split(row, (blocks, None))
        return rank, row, column
    rank, column = schedule.split(column, (blocks, None))
    schedule.reorder(rank, row, column)
    return rank, row, column
