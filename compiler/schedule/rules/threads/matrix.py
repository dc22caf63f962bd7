"""The rule for sums of products on matrix units (tensor cores, matrix cores).

As the rule for threads, with sub-groups in the place of threads: each holds a tile of the result in the
registers of its lanes, as the instruction spreads it, and the epilogue works on what each lane holds.

    blockIdx.z (batches), blockIdx.y (rows), blockIdx.x (columns)
      threadIdx.y (sub-groups), threadIdx.x (lanes): tile = 0                              in registers
      for taps..., for part of the sum, some of them under way ahead of the products
        all threads: left[row, step] = ...; right[column, step] = ...                      shared
        threadIdx.y: for step: tile[row, column] += left[row, step] * right[column, step]  by the unit
      threadIdx.y, threadIdx.x: output[...] = epilogue(tile)

Used by itself where the result is as exact as the plain one: factors of 16 bits with sums of 32, bytes with
sums of 32 bits, f32 where the unit multiplies f32. Factors of f32 are rounded to tf32, or taken as two parts
of tf32 each, only where it was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from compiler.core.target import TargetFacts
from compiler.core.types import TF32, DType
from compiler.loops.index_map import AXES, IndexMap
from compiler.loops.ir import CONSTANT, REGISTER
from compiler.loops.matrix_units import UNITS, MatrixUnit, Mode, Modes
from compiler.loops.queries import extent_of, iterations
from compiler.loops.simplify import Simplifier
from compiler.schedule import matrix_intrinsics
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Site
from compiler.schedule.rules.threads.axes import Part, extent_of_parts, find_axes
from compiler.schedule.rules.threads.cluster import place_sums, share_sums
from compiler.schedule.rules.threads.common import THREAD
from compiler.schedule.rules.threads.elementwise import aligned_run, asks
from compiler.schedule.rules.threads.fetch import LEAST_BITS, by_k_iterations, is_plain
from compiler.schedule.rules.threads.gemm import ImplicitGemm, runs_along
from compiler.schedule.rules.threads.matrix_tile import MatrixTile, alternating, matrix_options, padding_of
from compiler.schedule.rules.threads.tile import BlockTile, GemmProblem, StagedTile
from compiler.schedule.schedule import Schedule

assert matrix_intrinsics.MATRIX_INTRINSICS.keys() == UNITS.keys()

_GROUP = "threadIdx.y"
_LEAST = 8
"""Fewer rows, columns or terms of the sum than this leave most of a tile empty."""

_BANK_ELEMENTS = 32
"""Rows in shared memory keep their distance modulo so many elements."""

_ACCESS_BYTES = 16
"""Of the widest access of a thread."""

_SECTOR_BYTES = 32
"""Neighbouring rows that lanes take fill a sector; the steps of the others are in other banks."""

_PLAIN = (0,)
"""The decision for threads without a matrix unit."""

_DOUBT = 1.1
"""Threads have to be so much better by estimate where terms are gathered: for tf32 both estimates come close,
where machine code is predicted to take 11.4 us on threads and 4.9 on units (a stem, sm_90)."""


def matrix_gemm(
    schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser, adds_up: str = ""
) -> bool:
    """Schedule a sum of products and its epilogue; False where threads alone do better, or nothing fits.

    adds_up: as for `implicit_gemm`.
    """
    block = schedule.site(name)
    axes = find_axes(block) if block.is_store else None
    if axes is None:
        return False
    units = usable(block, facts)
    sizes = (extent_of_parts(axes.rows), extent_of_parts(axes.columns))
    if not units or min(*sizes, iterations(block.reduce)) < _LEAST:
        return False
    return MatrixGemm(name, block, axes, facts, chooser, adds_up).apply(schedule, units)


def usable(block: Site, facts: TargetFacts) -> list[MatrixUnit]:
    """The units that the target has for the types of a sum of products, those that do most at once first."""
    found = factors(block.block)
    if found is None or found[0].dtype != found[1].dtype:
        return []
    return units_for_types(found[0].dtype, block.store.buffer.dtype, facts)


def units_for_types(kind: DType, total: DType, facts: TargetFacts) -> list[MatrixUnit]:
    """The units that the target has for factors and sums of these types, those that do most at once first."""
    rated = [UNITS[name] for name, _ in facts.matrix_rates]
    asked = [unit for unit in rated if unit.precision in ("", facts.precision)]
    units = [unit for unit in asked if unit.staged == kind and unit.total == total]
    return sorted(units, key=lambda unit: -unit.rows * unit.columns * unit.steps)


class MatrixGemm(ImplicitGemm):
    """The steps of the rule, in the order in which they are applied."""

    unit: MatrixUnit
    widths: dict[str, int]
    """Neighbouring terms that a thread may take at once of each staged factor."""
    beside: int
    """Tiles of the unit whose columns alternate, so that a lane holds so many times as many neighbours."""

    def apply(self, schedule: Schedule, units: Sequence[MatrixUnit]) -> bool:
        """Apply the rule; False, and no change, where threads alone do better, or nothing fits."""
        for follow in (True, False):
            attempt = schedule.copy()
            with suppress(ScheduleError):
                if not self.on_units(attempt, units, follow=follow):
                    return False
                schedule.adopt(attempt)
                return True
        return False

    def unit_tiles(self, unit: MatrixUnit, problem: GemmProblem) -> list[Option]:
        """The tiles to choose from."""
        return matrix_options(unit, problem, self.facts)

    def on_units(self, schedule: Schedule, units: Sequence[MatrixUnit], *, follow: bool) -> bool:
        """Apply the rule with the unit and the tile that are chosen; False where none is to be used."""
        last, problem = self.prepare(schedule, follow=follow)
        problem = replace(problem, plain=self.is_copied())
        tiles = [self.unit_tiles(unit, problem) for unit in units]
        plain = self.thread_tiles(problem)
        options = [
            Option((n + 1,), min(item.cost for item in found)) for n, found in enumerate(tiles) if found
        ]
        if plain:
            doubt = _DOUBT if problem.gathered else 1.0
            options.append(Option(_PLAIN, doubt * min(item.cost for item in plain)))
        if not options:
            raise ScheduleError("no tile fits the limits of a block of threads")
        number = self.chooser.choose(f"{self.name}.unit", options)
        if number == _PLAIN:
            return False
        self.unit = units[number[0] - 1]
        tile = MatrixTile(self.unit, *self.chooser.choose(f"{self.name}.tile", tiles[number[0] - 1]))
        self.spread(tile, last, problem.lanes)
        return True

    def spread(self, tile: MatrixTile, last: str, lanes: int) -> None:
        """Stage the factors and give the tiles to sub-groups."""
        kind = self.unit.factor.name if self.unit.factor == TF32 else None
        self.beside = self.alternate(tile, last)
        stages = self.pad(tile, self.stage(terms_last=True, dtype=kind))
        self.widths = {stage: self.wide(self.s.site(stage)) for stage in stages}
        if tile.stages > 1:
            for stage in stages:
                by_k_iterations(self.s, self.stored_by(stage), self.batches, tile, terms_last=True)
        names = [axis.name for axis in AXES[: self.batches + 2]]
        places = (*names[: self.batches], *self.unit.total_map(*names[self.batches :]))
        self.s.transform_layout(self.total, f"{', '.join(names)} -> {', '.join(places)}")
        self.place(tile, stages, last, lanes)

    def alternate(self, tile: MatrixTile, end: str) -> int:
        """Let the columns of neighbouring tiles alternate, pair by pair; gives how many of them.

        A lane holds two neighbours of a row of each tile, which fill no sector of memory: of four tiles it
        then holds eight. Columns of the product and of the epilogue are renumbered, memory stays as it is.
        """
        beside = alternating(tile)
        columns = extent_of(self.s.block(self.name).iters[self.batches + 1].extent)
        whole = len(self.axes.columns) == 1 and columns % (beside * self.unit.columns) == 0
        if not whole or beside == 1:
            return 1
        for block in (self.name, end):
            rank = len(self.s.block(block).iters)
            self.s.transform_block_layout(block, self._alternated(rank, beside))
        self.s.transform_layout(self.total, self._alternated(self.batches + 2, beside))
        return beside

    def _alternated(self, rank: int, beside: int) -> IndexMap:
        """The order of columns in which pairs of so many tiles alternate."""
        axis, own, pair = self.batches + 1, self.unit.columns, self.unit.c.columns[-1].extent
        index = AXES[axis]
        tile, place = index // pair % beside, index // (pair * beside) % (own // pair)
        number = index // (own * beside) * (own * beside) + tile * own + place * pair + index % pair
        return IndexMap.of(rank, [*AXES[:axis], number, *AXES[axis + 1 : rank]])

    # -- operands

    def is_copied(self) -> bool:
        """Whether asynchronous copies can bring both factors: narrow elements only in runs along the sum."""
        site = self.s.site(self.name)
        terms, known = site.block.iters[-1], Simplifier(site.bounds)
        narrow = [load for load in site.loads if load.buffer.dtype.bits < LEAST_BITS]
        if narrow and asks(site, terms.var.name):
            return False
        return all(is_plain(factor, least=1) for factor in factors(site.block) or ()) and all(
            aligned_run(load, terms.var, _LEAST, known) for load in narrow
        )

    def stored(self, own: Sequence[Part]) -> tuple[Part, ...]:
        """The order of a factor in memory: batch, taps, rows or columns, terms of the sum side by side."""
        return (*self.axes.batch, *self.outer, *own, *self.inner)

    # -- loops

    def place(self, tile: MatrixTile, stages: Sequence[str], last: str, lanes: int) -> None:
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
        deep = tile.depth // unit.steps // unrolled
        part, more, product, step = self.s.split(terms, (None, deep, unrolled, unit.steps))
        grid = self.grid(batch, row_block, col_block)
        rounds = [*taps, part]
        own = [rows, columns, *row_digits, *col_digits]
        self.s.reorder(*grid, *rounds, row_group, col_group, more, product, *own, step)
        follow = self.follow_tile(last, grid[-1])
        sums = place_sums(self.s, self.adds_up, col_block) if self.adds_up else None
        group = self.s.fuse(row_group, col_group)
        self.s.bind(group, _GROUP)
        if tile.stages > 1 and len(rounds) > 1:
            rounds = [self.s.fuse(*rounds)]
        for loop in (product, rows, columns):
            self.s.unroll(loop)
        start = self.s.decompose_reduction(self.name, rounds[0])
        self.start(start, unit)
        self.s.tensorize(row_digits[0], unit.name)
        self.finish(tile, follow, lanes)
        gathered = [name for name in stages if self.gathered and not self.is_constant(name)]
        for name in gathered:
            self.fetch_gathered(name, part, tile)
        self.fetch_all([name for name in stages if name not in gathered], rounds[-1], tile)
        if gathered:
            self.s.unroll(part)
        self.bind_grid(grid)
        if sums is not None:
            groups = tile.along_rows * tile.along_columns
            share_sums(self.s, sums, [(_GROUP, groups), (THREAD, unit.lanes)])
        if tile.stages > 1:  # last: it parts what fills a buffer from what reads it
            self.overlap(rounds[-1], tile)

    def cut(self, loop: str, tiles: tuple[int | None, ...], digits: Modes) -> tuple[str, ...]:
        """A loop over rows or columns as loops over tiles, and the digits of the innermost ones."""
        return self.s.split(loop, (*tiles, *(item.extent for item in digits)))

    def start(self, block: str, unit: MatrixUnit) -> None:
        """The sums begin in the registers of the lanes that hold them."""
        count = len(unit.c.rows)
        digits = self.s.loops(block)[-count - len(unit.c.columns) :]
        modes = (*unit.c.rows, *unit.c.columns)
        for loop in self.spread_lanes(modes, digits):
            self.s.unroll(loop)

    def spread_lanes(self, modes: Modes, loops: Sequence[str]) -> list[str]:
        """Bind the digits of rows and columns that are lanes; gives the loops over the registers of one."""
        digits = list(zip(modes, loops, strict=True))
        lanes = [loop for item, loop in sorted(digits, key=lambda one: -one[0].lane) if item.lane]
        registers = [loop for item, loop in digits if item.register]
        self.s.reorder(*lanes, *registers)
        self.s.bind(self.s.fuse(*lanes), THREAD)
        return registers

    def finish(self, tile: MatrixTile, follow: Sequence[str], lanes: int) -> None:
        """The epilogue, on the elements that each lane holds."""
        unit, beside = tile.unit, self.beside
        row, column = follow[-2:]
        row_group, rows, *row_digits = self.cut(row, (tile.along_rows, tile.own_rows), unit.c.rows)
        tiles = (tile.along_columns, tile.own_columns // beside, beside)
        col_group, columns, between, *col_digits = self.cut(column, tiles, unit.c.columns)
        *places, last = unit.c.columns
        modes = (*unit.c.rows, *places, Mode(beside, register=unit.c.registers), last)
        digits = (*row_digits, *col_digits[:-1], between, col_digits[-1])
        pairs = list(zip(modes, digits, strict=True))
        bound, held = ([loop for mode, loop in pairs if bool(mode.lane) == lane] for lane in (True, False))
        self.s.reorder(row_group, col_group, *self.order_of((rows, columns), bound, held))
        registers = self.spread_lanes(modes, digits)
        self.s.bind(self.s.fuse(row_group, col_group), _GROUP)
        along = last.register == 1 and lanes % last.extent == 0
        if along and lanes > last.extent:
            registers[-2:] = [self.s.fuse(*registers[-2:])]
        for loop in (rows, columns, *registers):
            (self.s.vectorize if along and loop == registers[-1] else self.s.unroll)(loop)

    def order_of(self, tiles: Sequence[str], lanes: Sequence[str], registers: Sequence[str]) -> list[str]:
        """The order of loops over tiles of the unit, lanes and registers of one in the epilogue."""
        return [*tiles, *lanes, *registers]

    def count_rounds(self, stage: str, tile: StagedTile) -> None:
        """It is done before the unit's instruction reads the factor."""

    def fetch(self, names: Sequence[str], tile: StagedTile) -> None:
        """All threads fetch a part of a factor: neighbours take what lies side by side where it is read."""
        block = self.s.site(names[0])
        # fused pixels run along the rows, too
        sideways = not (runs_along(block, block.spatial[-1]) or self.gathered)
        for name in names:
            self.fetch_rows(name, tile, 0 if sideways else self.widths[names[0]])
        self.align(names[-1], tile)

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
        self.s.bind(group, _GROUP)
        self.s.bind(lane, THREAD)
