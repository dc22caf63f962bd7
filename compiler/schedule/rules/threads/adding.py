"""Who adds up what the chunks of a sum of products come to, in the launch that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.loops.index_map import IndexMap
from compiler.loops.ir import PART, RANK, Expr
from compiler.schedule.rules.threads.axes import read_by
from compiler.schedule.rules.threads.cluster import place_shares, share_sums
from compiler.schedule.rules.threads.last_block import add_up_tile
from compiler.schedule.rules.threads.rows import take_result
from compiler.schedule.rules.threads.tile import AddsUp
from compiler.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Adder:
    """Block `name` adds `chunks` chunks up: the blocks of a cluster share it, or the last one does it."""

    name: str
    chunks: int
    way: AddsUp

    @property
    def tag(self) -> str:
        """Of the loop over chunks."""
        return RANK if self.way == AddsUp.CLUSTER else PART

    def lay_out_parts(self, schedule: Schedule, parts: str, roles: Sequence[Expr]) -> None:
        """Let `parts`, and the block that adds them up, run over rows and columns.

        roles: chunk, row and column of an element of `parts`, by its axes. Raises ScheduleError where the
        block reads it in another order.
        """
        site = schedule.site(self.name)
        (shape,) = {load.buffer.shape for load in site.loads if load.buffer.name == parts}
        chunk, *results = read_by(site, parts, roles)
        last = take_result(schedule, self.name, follow=True)
        total, rank = schedule.site(self.name).target, len(site.spatial)
        ends = read_by(schedule.site(last), total, results)
        count = len(schedule.site(last).spatial)
        schedule.transform_block_layout(self.name, IndexMap.of(len(site.block.iters), [*results, chunk]))
        schedule.transform_layout(total, IndexMap.of(rank, results))
        schedule.transform_block_layout(last, IndexMap.of(count, ends))
        schedule.transform_layout(parts, IndexMap.of(len(shape), roles))

    def place(
        self, schedule: Schedule, tile: str, threads: Sequence[tuple[str, int]], lanes: int
    ) -> tuple[str, ...]:
        """Place the block behind the products of a tile: the loop over tiles.

        threads: axes of a block with their extents. lanes: neighbours along columns that are one access.
        Gives loops for `share`.
        """
        if self.way != AddsUp.CLUSTER:
            add_up_tile(schedule, self.name, tile, threads, lanes)
            return ()
        return place_shares(schedule, self.name, tile)

    def share(self, schedule: Schedule, loops: Sequence[str], threads: Sequence[tuple[str, int]]) -> None:
        """Give what is left to threads; the last thing that is done with the tile."""
        if self.way == AddsUp.CLUSTER:
            share_sums(schedule, loops, threads)
