"""What all rules for matrix units share: both factors staged in shared memory, for sub-groups to read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from compiler.loops.ir import CONSTANT, REGISTER
from compiler.loops.matrix_units import MatrixUnit, Modes
from compiler.loops.queries import extent_of
from compiler.loops.simplify import Simplifier
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Site
from compiler.schedule.rules.threads.axes import Part
from compiler.schedule.rules.threads.common import THREAD
from compiler.schedule.rules.threads.elementwise import aligned_run, asks, widest
from compiler.schedule.rules.threads.fetch import LEAST_BITS, is_plain
from compiler.schedule.rules.threads.gemm import ImplicitGemm, runs_along
from compiler.schedule.rules.threads.matrix_tile import MatrixTile, padding_of
from compiler.schedule.rules.threads.tile import BlockTile, StagedTile

GROUP = "threadIdx.y"
"""Numbers the sub-groups of a block."""

LEAST = 8
"""Fewer rows, columns or terms of the sum than this leave most of a tile empty."""

_BANK_ELEMENTS = 32
"""Rows in shared memory keep their distance modulo so many elements."""

_ROWS_APART = 16, 8
"""Eight rows of 16 bytes begin in different banks at odd multiples of eight elements of 16 bits."""

_ACCESS_BYTES = 16
"""Of the widest access of a thread."""

_SECTOR_BYTES = 32
"""Neighbouring rows that lanes take fill a sector; the steps of the others are in other banks."""


class TileLoops(NamedTuple):
    """The loops of a product on matrix units, outermost first.

    grid: over blocks; tile: the one of them over columns. rounds: taps, and parts of the sum. groups:
    sub-groups along rows and columns. product: those that are written out. own: tiles of a sub-group along
    rows and columns. unit: the outermost one of what the unit computes at once.
    """

    grid: list[str]
    tile: str
    rounds: list[str]
    groups: tuple[str, str]
    product: str
    own: tuple[str, str]
    unit: str


class UnitGemm(ImplicitGemm):
    """The steps of the rules for matrix units that bring factors into shared memory."""

    unit: MatrixUnit
    widths: dict[str, int]
    """Neighbouring terms that a thread may take at once of each staged factor."""

    def is_copied(self) -> bool:
        """Whether asynchronous copies can bring both factors: narrow elements only in runs along the sum."""
        site = self.s.site(self.name)
        terms, known = site.block.iters[-1], Simplifier(site.bounds)
        narrow = [load for load in site.loads if load.buffer.dtype.bits < LEAST_BITS]
        if narrow and asks(site, terms.var.name):
            return False
        return all(is_plain(factor, least=1) for factor in factors(site.block) or ()) and all(
            aligned_run(load, terms.var, LEAST, known) for load in narrow
        )

    def stored(self, own: Sequence[Part]) -> tuple[Part, ...]:
        """The order of a factor in memory: batch, taps, rows or columns, terms of the sum side by side."""
        return (*self.axes.batch, *self.outer, *own, *self.inner)

    def cut(self, loop: str, tiles: tuple[int | None, ...], digits: Modes) -> tuple[str, ...]:
        """A loop over rows or columns as loops over tiles, and the digits of the innermost ones."""
        return self.s.split(loop, (*tiles, *(item.extent for item in digits)))

    def cut_tiles(self, tile: MatrixTile) -> TileLoops:
        """Cut rows and columns of the product into tiles, and its sum into parts."""
        unit = tile.unit
        inside = self.own_loops(self.name)
        *batch, row, column = inside[: self.batches + 2]
        *taps, terms = inside[self.batches + 2 :]
        row_block, row_group, rows, *row_digits = self.cut(
            row, (None, tile.along_rows, tile.own_rows), unit.c.rows
        )
        col_block, col_group, columns, *col_digits = self.cut(
            column, (None, tile.along_columns, tile.own_columns), unit.c.columns
        )
        most = tile.depth // unit.steps
        unrolled = self.decide("unroll", tile.unrolled, [n for n in (1, 2, 4) if most % n == 0])
        part, more, product, step = self.s.split(terms, (None, most // unrolled, unrolled, unit.steps))
        grid, rounds = self.grid(batch, row_block, col_block), [*taps, part]
        own = [rows, columns, *row_digits, *col_digits]
        self.s.reorder(*grid, *rounds, row_group, col_group, more, product, *own, step)
        return TileLoops(
            grid, col_block, rounds, (row_group, col_group), product, (rows, columns), row_digits[0]
        )

    def bring(self, stages: Sequence[str], rounds: Sequence[str], part: str, tile: MatrixTile) -> None:
        """Fetch both factors in every round; those whose terms have no order in memory one by one."""
        gathered = [name for name in stages if self.gathered and not self.is_constant(name)]
        for name in gathered:
            self.fetch_gathered(name, part, tile)
        self.fetch_all([name for name in stages if name not in gathered], rounds[-1], tile)
        if gathered:
            self.s.unroll(part)

    def count_rounds(self, stage: str, tile: StagedTile) -> None:
        """It is done before the unit's instruction reads the factor."""

    def fetch(self, names: Sequence[str], tile: StagedTile) -> None:
        """All threads fetch a part of a factor: neighbours take what lies side by side where it is read."""
        block = self.s.site(names[0])
        # fused pixels run along the rows, too
        sideways = not (runs_along(block, block.spatial[-1]) or self.gathered)
        wide = self.neighbours(block) if sideways and self.unit.reads_columns and tile.stages == 1 else 1
        if wide > 1:
            self.fetch_columns(names[-1], tile, wide)
            return
        for name in names:
            self.fetch_rows(name, tile, 0 if sideways else self.widths[names[0]])
        self.align(names[-1], tile)

    def neighbours(self, block: Site) -> int:
        """Rows or columns that lie side by side where a block reads them, for a thread to take at once."""
        item, known = block.spatial[-2], Simplifier(block.bounds)
        lanes = 1 if asks(block, item.var.name) else widest(block.loads, self.facts)
        while lanes > 1 and not (
            extent_of(item.extent) % lanes == 0
            and all(aligned_run(load, item.var, lanes, known) for load in block.loads)
        ):
            lanes //= 2
        return lanes

    def fetch_columns(self, name: str, tile: StagedTile, wide: int) -> None:
        """Fetch a factor as it lies in memory: rows or columns side by side in shared memory, too.

        The unit's lanes read it by columns.
        """
        own, step = self.s.loops(name)[-2:]
        rows = extent_of(self.s.loop(own).extent)
        lanes = math.gcd(rows, wide)
        along = min(tile.threads, rows // lanes)
        more, fast, vector = self.s.split(own, (None, along, lanes))
        rounds, slow = self.s.split(step, (None, max(1, tile.threads // along)))
        self.s.reorder(slow, fast, rounds, more, vector)
        self.bind_threads(self.s.fuse(slow, fast), tile)
        for loop in (rounds, more):
            self.s.unroll(loop)
        (self.s.vectorize if lanes > 1 else self.s.unroll)(vector)
        buffer = self.stored_by(name)
        last = len(buffer.shape) - 1
        self.s.storage_align(buffer.name, last, *_ROWS_APART, dense=last - 1)

    def align(self, stage: str, tile: StagedTile) -> None:
        """Let rows of a staged factor begin in different banks of shared memory."""
        buffer = self.stored_by(stage)
        offset = (tile.depth + padding_of(self.unit)) % _BANK_ELEMENTS
        self.s.storage_align(buffer.name, len(buffer.shape) - 2, _BANK_ELEMENTS, offset)

    def fetch_gathered(self, stage: str, part: str, tile: MatrixTile) -> None:
        """Fetch a factor whose terms have no order in memory.

        Each thread keeps to a row and takes its terms one after the other, all written out: the place of a
        term is a constant then. Registers are on the way, from where neighbours reach shared memory at once.
        """
        stored = self.s.cache_write(stage, self.stored_by(stage).name, REGISTER)
        for block in (stored, stage):
            self.s.compute_at(block, part)
        for block in (stage, stored):
            self.fetch_own(block, tile, vectors=block == stored)
        self.align(stored, tile)

    def is_constant(self, stage: str) -> bool:
        """Whether a staged factor is read from what lies in memory as it is fetched."""
        return all(load.buffer.scope == CONSTANT for load in self.s.site(stage).loads)

    def fetch_own(self, name: str, tile: MatrixTile, *, vectors: bool) -> None:
        """One step of it; threads that are more than rows share the terms of a row."""
        own, step = self.s.loops(name)[-2:]
        rows, steps = (extent_of(self.s.loop(loop).extent) for loop in (own, step))
        along = min(tile.threads, rows)
        wide = math.gcd(steps, _ACCESS_BYTES // self.unit.factor.bytes)
        deep = min(tile.threads // along, steps // wide)
        rounds, thread = self.s.split(own, (None, along))
        slow, more, vector = self.s.split(step, (deep, None, wide))
        self.s.reorder(slow, thread, rounds, more, vector)
        self.bind_threads(self.s.fuse(slow, thread), tile)
        self.s.unroll(rounds)
        self.s.unroll(more)
        (self.s.vectorize if vectors else self.s.unroll)(vector)

    def fetch_rows(self, name: str, tile: StagedTile, wide: int) -> None:
        """One step of it; wide: neighbouring terms that a thread takes at once, 0 if rows are neighbours."""
        own, step = self.s.loops(name)[-2:]
        rows, steps = (extent_of(self.s.loop(loop).extent) for loop in (own, step))
        lanes, vector, far = 1, None, list[str]()
        if wide == 0:
            along = min(tile.threads, rows, _SECTOR_BYTES // self.unit.factor.bytes)
            deep = min(tile.threads // along, steps)
            left = min(tile.threads // (along * deep), -(-rows // along))
            rounds, *far, fast = self.s.split(own, (None, left, along))
            more, slow = self.s.split(step, (None, deep))
        else:
            lanes = math.gcd(steps, wide)
            along = min(tile.threads, steps // lanes)
            deep = min(tile.threads // along, rows)
            more, fast, vector = self.s.split(step, (None, along, lanes))
            rounds, slow = self.s.split(own, (None, deep))
        self.s.reorder(*far, slow, fast, rounds, more, *([vector] if vector else []))
        self.bind_threads(self.s.fuse(*far, slow, fast), tile)
        self.s.unroll(rounds)
        self.s.unroll(more)
        if vector:
            (self.s.vectorize if lanes > 1 else self.s.unroll)(vector)

    def bind_threads(self, loop: str, tile: BlockTile) -> None:
        """Give the iterations of a loop to lanes, and to sub-groups where there are more.

        Of as many sub-groups as the block has, the last ones may have nothing to do.
        """
        count, lanes = extent_of(self.s.loop(loop).extent), self.unit.lanes
        if count <= lanes:
            self.s.bind(loop if count == lanes else self.s.split(loop, (None, lanes))[1], THREAD)
            return
        if count < tile.threads:
            loop = self.s.split(loop, (None, tile.threads))[1]
        group, lane = self.s.split(loop, (None, lanes))
        self.s.bind(group, GROUP)
        self.s.bind(lane, THREAD)
