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
of tf32 each, only where it was asked for. Units with opaque fragments: `opaque.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from compiler.core.target import TargetFacts
from compiler.core.types import TF32, DType
from compiler.loops.index_map import AXES, IndexMap
from compiler.loops.ir import Load
from compiler.loops.matrix_units import RECORDS, UNITS, MatrixUnit, Mode, Modes
from compiler.loops.queries import extent_of, iterations
from compiler.schedule import matrix_intrinsics
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Site
from compiler.schedule.rules.threads.adding import Adder
from compiler.schedule.rules.threads.axes import extent_of_parts, find_axes
from compiler.schedule.rules.threads.common import THREAD
from compiler.schedule.rules.threads.fetch import by_k_iterations
from compiler.schedule.rules.threads.matrix_tile import MatrixTile, alternating, matrix_options
from compiler.schedule.rules.threads.opaque import OpaqueGemm
from compiler.schedule.rules.threads.tile import GemmProblem
from compiler.schedule.rules.threads.unit_gemm import GROUP, LEAST
from compiler.schedule.schedule import Schedule

assert matrix_intrinsics.MATRIX_INTRINSICS.keys() == UNITS.keys()

_PLAIN = (0,)
"""The decision for threads without a matrix unit."""

_DOUBT = 1.1
"""Threads have to be so much better by estimate where terms are gathered: for tf32 both estimates come close,
where machine code is predicted to take 11.4 us on threads and 4.9 on units (a stem, sm_90)."""


def matrix_gemm(
    schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser, adder: Adder | None = None
) -> bool:
    """Schedule a sum of products and its epilogue; False where threads alone do better, or nothing fits.

    adder: as for `implicit_gemm`.
    """
    block = schedule.site(name)
    axes = find_axes(block) if block.is_store else None
    if axes is None:
        return False
    # what a lane has of sums in opaque fragments is not known, so that nothing adds them up on the spot
    units = [unit for unit in usable(block, facts) if adder is None or not unit.opaque]
    sizes = (extent_of_parts(axes.rows), extent_of_parts(axes.columns))
    if not units or min(*sizes, iterations(block.reduce)) < LEAST:
        return False
    return MatrixGemm(name, block, axes, facts, chooser, adder).apply(schedule, units)


def usable(block: Site, facts: TargetFacts) -> list[MatrixUnit]:
    """The units that the target has for the types of a sum of products, those that do most at once first."""
    found = factors(block.block)
    if found is None or found[0].dtype != found[1].dtype:
        return []
    return units_for_types(found[0].dtype, block.store.buffer.dtype, facts)


def units_for_types(kind: DType, total: DType, facts: TargetFacts) -> list[MatrixUnit]:
    """The units that the target has for factors and sums of these types, those that do most at once first."""
    rated = [RECORDS[name] for name, _ in facts.matrix_rates]
    asked = [unit for unit in rated if unit.precision in ("", facts.precision)]
    units = [unit for unit in asked if unit.staged == kind and unit.total == total]
    return sorted(units, key=lambda unit: -unit.rows * unit.columns * unit.steps)


class MatrixGemm(OpaqueGemm):
    """The steps of the rule, in the order in which they are applied."""

    alternating: int
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
        if self.unit.opaque:
            self.spread_opaque(tile, last, lanes)
            return
        kind = self.unit.factor.name if self.unit.factor == TF32 else None
        self.alternating = self.alternate(tile, last)
        stages = self.pad(tile, self.stage(terms_last=True, dtype=kind))
        self.widths = {stage: self.wide(self.s.site(stage)) for stage in stages}
        if tile.stages > 1:
            for stage in stages:
                by_k_iterations(self.s, self.stored_by(stage), self.batches, tile, terms_last=True)
        names = [axis.name for axis in AXES[: self.batches + 2]]
        places = (*names[: self.batches], *self.unit.c.tiles_at(*names[self.batches :]))
        self.s.transform_layout(self.total, f"{', '.join(names)} -> {', '.join(places)}")
        self.place(tile, stages, last, lanes)

    def alternate(self, tile: MatrixTile, end: str) -> int:
        """Let the columns of neighbouring tiles alternate, pair by pair; gives how many of them.

        A lane holds two neighbours of a row of each tile, which fill no sector of memory: of four tiles it
        then holds eight. Columns of the product and of the epilogue are renumbered, memory stays as it is.
        """
        count = 1 if self.unit.reads_columns and self.has_rows_of_columns() else alternating(tile)
        columns = extent_of(self.s.block(self.name).iters[self.batches + 1].extent)
        whole = len(self.axes.columns) == 1 and columns % (count * self.unit.columns) == 0
        if not whole or count == 1:
            return 1
        for block in (self.name, end):
            rank = len(self.s.block(block).iters)
            self.s.transform_block_layout(block, self._alternated(rank, count))
        self.s.transform_layout(self.total, self._alternated(self.batches + 2, count))
        return count

    def has_rows_of_columns(self) -> bool:
        """Whether columns lie side by side in a factor: lanes read whole rows of them, in their order."""
        site = self.s.site(self.name)
        found = factors(site.block)
        assert found is not None
        read = {item.buffer for item in found[1 - self.axes.left].walk() if isinstance(item, Load)}
        column = site.block.iters[self.batches + 1].var.name
        return any(site.stride(load, column) == 1 for load in site.loads if load.buffer in read)

    def _alternated(self, rank: int, count: int) -> IndexMap:
        """The order of columns in which pairs of so many tiles alternate."""
        axis, own, pair = self.batches + 1, self.unit.columns, self.unit.c.columns[-1].extent
        index = AXES[axis]
        tile, place = index // pair % count, index // (pair * count) % (own // pair)
        number = index // (own * count) * (own * count) + tile * own + place * pair + index % pair
        return IndexMap.of(rank, [*AXES[:axis], number, *AXES[axis + 1 : rank]])

    # -- loops

    def place(self, tile: MatrixTile, stages: Sequence[str], last: str, lanes: int) -> None:
        grid, column, rounds, groups, product, own, inside = self.cut_tiles(tile)
        part = rounds[-1]
        follow = self.follow_tile(last, grid[-1])
        threads = [(GROUP, tile.along_rows * tile.along_columns), (THREAD, tile.unit.lanes)]
        sums = self.place_sums(column, threads)
        self.s.bind(self.s.fuse(*groups), GROUP)
        if tile.stages > 1 and len(rounds) > 1:
            rounds = [self.s.fuse(*rounds)]
        for loop in (product, *own):
            self.s.unroll(loop)
        start = self.s.decompose_reduction(self.name, rounds[0])
        self.start(start, tile.unit)
        self.s.tensorize(inside, tile.unit.name)
        self.finish(tile, follow, lanes)
        self.bring(stages, rounds, part, tile)
        self.bind_grid(grid)
        if self.adder is not None:
            self.adder.share(self.s, sums, threads)
        if tile.stages > 1:  # last: it parts what fills a buffer from what reads it
            self.overlap(rounds[-1], tile)

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
        unit, count = tile.unit, self.alternating
        row, column = follow[-2:]
        row_group, rows, *row_digits = self.cut(row, (tile.along_rows, tile.own_rows), unit.c.rows)
        tiles = (tile.along_columns, tile.own_columns // count, count)
        col_group, columns, between, *col_digits = self.cut(column, tiles, unit.c.columns)
        *places, last = unit.c.columns
        modes = (*unit.c.rows, *places, Mode(count, register=unit.c.registers), last)
        digits = (*row_digits, *col_digits[:-1], between, col_digits[-1])
        pairs = list(zip(modes, digits, strict=True))
        bound, held = ([loop for mode, loop in pairs if bool(mode.lane) == lane] for lane in (True, False))
        self.s.reorder(row_group, col_group, *self.order_of((rows, columns), bound, held))
        registers = self.spread_lanes(modes, digits)
        self.s.bind(self.s.fuse(row_group, col_group), GROUP)
        along = last.register == 1 and lanes % last.extent == 0
        if along and lanes > last.extent:
            registers[-2:] = [self.s.fuse(*registers[-2:])]
        for loop in (rows, columns, *registers):
            (self.s.vectorize if along and loop == registers[-1] else self.s.unroll)(loop)

    def order_of(self, tiles: Sequence[str], lanes: Sequence[str], registers: Sequence[str]) -> list[str]:
        """The order of loops over tiles of the unit, lanes and registers of one in the epilogue."""
        return [*tiles, *lanes, *registers]
