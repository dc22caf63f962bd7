"""The rule for Winograd's convolution on threads: everything but the filters' transform in one launch.

    blockIdx.z (chunks of the input channels), blockIdx.y (output channels), blockIdx.x (tiles of the images)
      for part of the channels
        threadIdx.x (channel, tile): patch = input[...]                          16 values, in registers
        threadIdx.x: filters[position, channel, row] = ...                       shared
        threadIdx.x (channel, tile): tiles[position, channel, column] = transform of patch        shared
        threadIdx.x (position): products[position, row, column] += filters * tiles       in registers
      for part of the columns
        threadIdx.x: sums[position, row, column] = products                      shared
        threadIdx.x (row, column): output[2 x 2] = epilogue(transform of sums)

Each position is a sum of products of its own, with as many of them for each operand that is read as those of
other sums on threads; so positions are shared out to the threads first, and a last exchange brings those of a
tile together. With two stages the next patches come in registers and the next filters in shared memory while
products are added up (Yan, Wang and Chu, "Optimizing batched Winograd convolution on GPUs", 2020).
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.target import TargetFacts
from compiler.loops.annotations import ASYNC
from compiler.loops.index_map import AXES, IndexMap
from compiler.loops.ir import REGISTER, SHARED, Block, Buffer, Seq, Stmt
from compiler.loops.queries import extent_of
from compiler.schedule.chooser import Chooser
from compiler.schedule.errors import ScheduleError
from compiler.schedule.rules.common import stages
from compiler.schedule.rules.options import decide
from compiler.schedule.rules.threads.common import THREAD
from compiler.schedule.rules.threads.winograd_tile import (
    RESULTS,
    SIDE,
    WIDE,
    FusedShape,
    WinogradTile,
    filters_of,
    find_shape,
    winograd_tiles,
)
from compiler.schedule.schedule import Schedule

_WRITTEN_OUT = 128
"""Products of a thread between two jumps."""


def fused_winograd(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a convolution in the form for blocks of threads; False, and no change, for other functions.

    In several chunks of channels, the sum over these is left to other rules.
    """
    shape = find_shape(schedule.func)
    options = [] if shape is None else winograd_tiles(shape, facts)
    if shape is None or not options:
        return False
    tile = WinogradTile(*chooser.choose("winograd.tile", options))
    most = max(1, _WRITTEN_OUT // (tile.positions * tile.thread_rows * tile.thread_columns))
    written = decide(chooser, "winograd.unroll", most, (1, 2, 4))
    return schedule.attempt(lambda made: _Fused(made, shape, tile).run(written))


class _Fused:
    """The steps of the rule, in the order in which they are applied.

    `chunk` is the number of axes in front of positions: 1 where there are several chunks of channels, or 0;
    `back` the block that brings sums of padded channels to where they are read, if there is one.
    """

    def __init__(self, schedule: Schedule, shape: FusedShape, tile: WinogradTile) -> None:
        self.s, self.shape, self.tile = schedule, shape, tile
        self.chunk = 1 if shape.chunks > 1 else 0
        self.back = ""
        self.names = {stage: block.name for stage, block in stages(schedule.func).items()}

    def run(self, written: int) -> None:
        """written: channels whose products are written out one after the other."""
        filters = self._operands()
        copy = self._sums()
        for stage in ("patches", "tile_rows", "result_rows"):
            self.s.set_scope(self.s.site(self.names[stage]).target, REGISTER)
        grid, columns = self._results(copy)
        self.s.compute_at(self.names["products"], grid[-1])
        self._exchange(copy, columns)
        part = self._products(written)
        self._filters(filters, part)
        self._transforms(part)
        for axis, loop in zip("xyz", reversed(grid), strict=False):
            self.s.bind(loop, f"blockIdx.{axis}")
        if self.tile.stages > 1:  # last: it parts what fills a buffer from what reads it
            self._overlap(part, filters)

    # -- operands and sums

    def _operands(self) -> str:
        """Stage both factors in shared memory, with zeros behind the end; gives the block of the filters."""
        s, tile, name, q = self.s, self.tile, self.names["products"], self.chunk
        found = filters_of(s.block(name))
        if found is None:
            raise ScheduleError("the filters are not known when the kernel is made")
        side, load = found
        i, j, k, c = AXES[:SIDE]
        s.transform_layout(load.buffer.name, IndexMap.of(SIDE, [k // tile.rows, c, i, j, k % tile.rows]))
        position, terms = (q, q + 1), q + SIDE
        filters = s.cache_operand(name, side, (*range(q), *position, terms, q + 2), SHARED)[0]
        multiples = (*[1] * (q + 2), tile.rows, 1, tile.depth)
        iters = s.block(name).iters
        if any(extent_of(item.extent) % n for item, n in zip(iters, multiples, strict=True)):
            filters = self._pad(filters, multiples)
        s.set_scope(s.site(self.names["tiles"]).target, SHARED)
        if tile.stages > 1:
            for staged in (filters, self.names["tiles"]):
                self._count_rounds(s.site(staged).store.buffer)
        return filters

    def _count_rounds(self, buffer: Buffer) -> None:
        """Let the first dimension of what is staged count the rounds; two take turns."""
        axes, at = AXES[: len(buffer.shape)], len(buffer.shape) - 2
        depth = self.tile.depth
        outputs = [axes[at] // depth, *axes[:at], axes[at] % depth, axes[-1]]
        self.s.transform_layout(buffer.name, IndexMap.of(len(axes), outputs))

    def _pad(self, filters: str, multiples: Sequence[int]) -> str:
        """Round channels up to whole tiles; what pads a factor computes it, too."""
        s, total = self.s, self.s.site(self.names["products"]).target
        for name in s.pad_einsum(self.names["products"], tuple(multiples)):
            if s.site(name).target == total:
                self.back = name
                continue
            (source,) = {load.buffer.name for load in s.site(name).loads}
            staged = next(made for made in (filters, self.names["tiles"]) if s.site(made).target == source)
            s.compute_inline(staged)
            if staged == filters:
                filters = name
                s.set_scope(s.site(name).target, SHARED)
            else:
                self.names["tiles"] = name
        return filters

    def _sums(self) -> str:
        """Let sums grow in registers; gives the block that brings them to shared memory."""
        s, name = self.s, self.names["products"]
        target = s.site(name).target
        copy = self.back or s.cache_write(name, target, REGISTER)
        s.set_scope(s.site(name).target, REGISTER)
        s.set_scope(s.site(copy).target, SHARED)
        return copy

    # -- loops

    def _results(self, copy: str) -> tuple[list[str], str]:
        """Tile the image; gives the loops over blocks, and the one over what is exchanged at a time."""
        s, shape, tile, name = self.s, self.shape, self.tile, self.shape.result
        n, k, y, x = AXES[self.chunk : self.chunk + SIDE]
        number = n * (shape.down * shape.across) + y // RESULTS * shape.across + x // RESULTS
        roles = [*AXES[: self.chunk], k, number, y % RESULTS, x % RESULTS]
        s.transform_block_layout(name, IndexMap.of(self.chunk + SIDE, roles))
        *chunk, row, column, i, j = s.loops(name)
        rows, row = s.split(row, (None, tile.rows))
        columns, part, column = s.split(
            column, (None, tile.thread_columns // WIDE, tile.along_columns * WIDE)
        )
        s.reorder(*chunk, rows, columns, part, row, column, i, j)
        own, thread = s.split(s.fuse(row, column), (None, tile.threads))
        s.compute_at(self.names["result_rows"], thread)
        s.compute_at(copy, part)
        for loop in (*self._below(self.names["result_rows"], thread), own, part, i, j):
            s.unroll(loop)
        s.bind(thread, THREAD)
        return [*chunk, rows, columns], part

    def _exchange(self, copy: str, columns: str) -> None:
        """Each thread stores what it has of a part of the columns."""
        s, tile = self.s, self.tile
        down, across, row, column = self._below(copy, columns)
        row_thread, row = s.split(row, (tile.along_rows, tile.thread_rows))
        col_thread, column = s.split(column, (tile.along_columns, WIDE))
        self._give_threads((down, across), (row_thread, col_thread), (), (row, column))

    def _products(self, written: int) -> str:
        """Give each thread its positions, rows and columns; gives the loop over parts of the channels."""
        s, tile, name = self.s, self.tile, self.names["products"]
        down, across, row, column, terms = s.loops(name)[-SIDE - 1 :]
        row_thread, row = s.split(row, (tile.along_rows, tile.thread_rows))
        wide, col_thread, column = s.split(column, (tile.thread_columns // WIDE, tile.along_columns, WIDE))
        part, step = s.split(terms, (None, tile.depth))
        s.reorder(part, down, across, row_thread, col_thread, step, row, wide, column)
        self._give_threads((down, across), (row_thread, col_thread), (step,), (row, wide, column))
        s.decompose_reduction(name, part)
        s.unroll(s.split(step, (None, written))[1])
        return part

    def _give_threads(
        self, positions: Sequence[str], threads: Sequence[str], steps: Sequence[str], own: Sequence[str]
    ) -> None:
        """A thread for each of its positions and tiles, whose elements are written out and vectors."""
        position = self.s.fuse(*positions)
        if self.tile.positions > 1:
            position, inside = self.s.split(position, (None, self.tile.positions))
            own = (inside, *own)
        self.s.reorder(position, *threads, *steps, *own)
        self.s.bind(self.s.fuse(position, *threads), THREAD)
        for loop in own[:-1]:
            self.s.unroll(loop)
        self.s.vectorize(own[-1])

    # -- fetching

    def _filters(self, name: str, part: str) -> None:
        """All threads fetch filters, as they lie in memory: a vector of rows each, of the next position."""
        s, tile = self.s, self.tile
        s.compute_at(name, part)
        down, across, term, row = self._below(name, part)
        row, vector = s.split(row, (None, WIDE))
        deep = tile.threads * WIDE // (SIDE * SIDE * tile.rows)
        if deep:
            own, term = s.split(term, (None, deep))
            threads = [term, down, across, row]
            s.reorder(*threads, own, vector)
        else:
            own, down = s.split(down, (SIDE * SIDE * tile.rows // (tile.threads * WIDE), None))
            threads = [down, across, row]
            s.reorder(*threads, term, own, vector)
            s.unroll(term)
        s.unroll(own)
        s.vectorize(vector)
        s.bind(s.fuse(*threads), THREAD)
        if tile.stages > 1:
            s.annotate(name, ASYNC, 0)

    def _transforms(self, part: str) -> None:
        """A thread fetches and transforms a tile of one channel; neighbours take neighbouring tiles."""
        for name, inside in ((self.names["tiles"], self.names["tile_rows"]), (self.names["patches"], "")):
            self.s.compute_at(name, part)
            down, across, term, column = self._below(name, part)
            own, term = self.s.split(term, (None, self.tile.threads // self.tile.columns))
            self.s.reorder(term, column, own, down, across)
            thread = self.s.fuse(term, column)
            rows: list[str] = []
            if inside:
                self.s.compute_at(inside, own)
                rows = self._below(inside, own)
            for loop in (*rows, own, down, across):
                self.s.unroll(loop)
            self.s.bind(thread, THREAD)

    def _overlap(self, part: str, filters: str) -> None:
        """Fetch ahead: patches and filters while products are added up, transforms behind them."""
        body = self.s.loop(part).body
        held = [{b.name for b in one.walk() if isinstance(b, Block)} for one in _statements(body)]
        order = [self.names["patches"], filters, self.names["products"], self.names["tiles"]]
        places = [next(n for n, names in enumerate(held) if name in names) for name in order]
        behind = [int(self.names["products"] in names) for names in held]
        self.s.software_pipeline(part, tuple(behind), tuple(places), guarded=True)

    # -- helpers

    def _below(self, block: str, loop: str) -> list[str]:
        """The loops of a block inside another one."""
        loops = self.s.loops(block)
        return list(loops[loops.index(loop) + 1 :])


def _statements(body: Stmt) -> tuple[Stmt, ...]:
    return body.stmts if isinstance(body, Seq) else (body,)
