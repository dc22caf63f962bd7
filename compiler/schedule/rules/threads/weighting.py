"""The rule for the second half of attention: a softmax and the product of its rows, in one launch.

    blockIdx.z (batches), blockIdx.y (rows)
      threads: part[row, n] = largest of every n-th score; largest[row] = that of part[row, ...]     shared
      threads: part[row, n] = sum of exp(score - largest); total[row] = that of part[row, ...]       shared
      for part of the keys, as in the rules for products
        all threads: left[row, key] = exp(score - largest) / total; right[column, key] = values      shared
        tile[row, column] += left[row, key] * right[column, key]

A block has all columns of its rows, so that each row is looked through once.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.target import TargetFacts
from compiler.loops.ir import REGISTER, SHARED, Load
from compiler.loops.matrix_units import MatrixUnit
from compiler.loops.queries import extent_of, variables
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Site
from compiler.schedule.rules.common import fuse_all
from compiler.schedule.rules.options import Named
from compiler.schedule.rules.threads.axes import Axes, find_axes
from compiler.schedule.rules.threads.common import THREAD
from compiler.schedule.rules.threads.gemm import ImplicitGemm
from compiler.schedule.rules.threads.matrix import MatrixGemm, usable
from compiler.schedule.rules.threads.matrix_tile import MatrixTile
from compiler.schedule.rules.threads.rows import parts_of
from compiler.schedule.rules.threads.tile import BlockTile, GemmProblem, ThreadTile
from compiler.schedule.schedule import Schedule

_MOST_PARTS = 32
"""Parts of a row that one thread combines in the end."""


_UNDER_WAY = 16
"""Scores that a thread asks for at the same time."""


def weighted_rows(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a softmax whose rows one product reads; False, and no change, for other functions."""
    sums = [site.name for site in schedule.program.sites.values() if site.is_store and site.reduce]
    if len(sums) != 3:
        return False
    *rows, product = sums
    block = schedule.site(product)
    axes = find_axes(block)
    if axes is None or not _weighs(schedule, rows, block, axes):
        return False
    units = usable(block, facts)
    on_units = _OnUnits(rows, product, block, axes, facts, Named(chooser, "weighed.unit"))
    if units and on_units.apply(schedule, units):
        return True
    on_threads = _OnThreads(rows, product, block, axes, facts, Named(chooser, "weighed"))
    return schedule.attempt(on_threads.run, follow=True)


def _weighs(schedule: Schedule, rows: Sequence[str], block: Site, axes: Axes) -> bool:
    """Whether the factor with the rows is made of what the sums before come to, each of which is a row's."""
    found = factors(block.block)
    if found is None:
        return False
    read = {item.buffer.name for item in found[axes.left].walk() if isinstance(item, Load)}
    totals = {schedule.site(name).target for name in rows}
    alike = len({tuple(extent_of(i.extent) for i in schedule.site(name).spatial) for name in rows}) == 1
    return totals <= read and alike and not totals & set(schedule.program.outputs)


class _Weighted(ImplicitGemm):
    """What both ways to multiply share: tiles of all columns, and the sums over rows in front of them."""

    tile: BlockTile

    def __init__(
        self,
        rows: Sequence[str],
        name: str,
        block: Site,
        axes: Axes,
        facts: TargetFacts,
        chooser: Chooser,
    ) -> None:
        super().__init__(name, block, axes, facts, chooser)
        self.sums = rows

    def thread_tiles(self, problem: GemmProblem) -> list[Option]:
        tiles = ((option, ThreadTile(*option.value)) for option in super().thread_tiles(problem))
        return [option for option, tile in tiles if tile.columns >= problem.columns]

    def bind_grid(self, grid: Sequence[str]) -> None:
        """The sums over rows come first in a block."""
        for name in reversed(self.sums):
            self.place_sum(name, grid[-1])
        super().bind_grid(grid)

    def place_sum(self, name: str, block_loop: str) -> None:
        """A sum over each row of a block, by several threads, in shared memory."""
        over = fuse_all(self.s, parts_of(self.s, name)[1])
        parts = min(_MOST_PARTS, max(1, self.tile.threads // self.tile.rows))
        even = extent_of(self.s.loop(over).extent) % parts == 0
        part, buffer = self.s.rfactor(name, self.s.split(over, (None, parts))[1])
        for made in (buffer, self.s.site(name).target):
            self.s.set_scope(made, SHARED)
        self.place_rows(name, block_loop, registers=True)
        self.place_rows(part, block_loop, registers=even)

    def place_rows(self, name: str, block_loop: str, *, registers: bool) -> None:
        """Give rows, or parts of them, to threads; sums grow in registers, or where the others read them."""
        stored = self.s.cache_write(name, self.s.site(name).target, REGISTER) if registers else name
        self.s.compute_at(stored, block_loop)
        inside = self.s.loops(stored)[self.s.loops(stored).index(block_loop) + 1 :]
        over = {loop for item in self.s.site(stored).reduce for loop in variables(item.binding)}
        own, terms = ([loop for loop in inside if (loop in over) == inner] for inner in (False, True))
        self.s.reorder(*own, *terms)
        thread = fuse_all(self.s, own)
        if registers:
            self.s.compute_at(name, thread)
            few = min(_UNDER_WAY, extent_of(self.s.loop(self.s.loops(name)[-1]).extent))
            terms = [*self.s.split(self.s.loops(name)[-1], (None, few))]
            self.s.unroll(terms[1])
        self.s.decompose_reduction(name, terms[0])
        self.bind_threads(thread, self.tile)

    def bind_threads(self, loop: str, tile: BlockTile) -> None:
        if extent_of(self.s.loop(loop).extent) != tile.threads:
            loop = self.s.split(loop, (None, tile.threads))[1]
        self.s.bind(loop, THREAD)


class _OnThreads(_Weighted):
    """Products by threads alone."""

    def arrange(self, tile: ThreadTile, stages: Sequence[str], last: str, lanes: int) -> None:
        self.tile = tile
        super().arrange(tile, stages, last, lanes)


class _OnUnits(MatrixGemm, _Weighted):
    """Products by a matrix unit."""

    def unit_tiles(self, unit: MatrixUnit, problem: GemmProblem) -> list[Option]:
        tiles = ((option, MatrixTile(unit, *option.value)) for option in super().unit_tiles(unit, problem))
        return [option for option, tile in tiles if tile.columns >= problem.columns]

    def spread(self, tile: MatrixTile, last: str, lanes: int) -> None:
        self.tile = tile
        super().spread(tile, last, lanes)
