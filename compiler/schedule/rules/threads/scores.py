"""The product of queries and keys, made by the block of threads that goes on with its rows.

    for part of the keys
      for part of the sum, as in the rules for products
        all threads: left[row, step] = queries; right[key, step] = keys              shared
        tile[row, key] += left[row, step] * right[key, step]
      scores[row, key] = f(tile[row, key], mask)                                     shared

A block has all keys of its rows. What scores take of shared memory is the same for each of them, whatever the
tile; beside it there has to be room for what both products stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

from compiler.core.target import TargetFacts
from compiler.loops.ir import SHARED
from compiler.loops.matrix_units import MatrixUnit
from compiler.loops.queries import extent_of
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.program import Program, Site
from compiler.schedule.rules.threads.axes import Axes
from compiler.schedule.rules.threads.common import divisors
from compiler.schedule.rules.threads.gemm import ImplicitGemm
from compiler.schedule.rules.threads.matrix import MatrixGemm
from compiler.schedule.rules.threads.matrix_tile import MOST_REGISTERS, MatrixTile, matrix_tile_cycles
from compiler.schedule.rules.threads.tile import (
    WORD,
    BlockTile,
    GemmProblem,
    ThreadTile,
    has_room,
    tile_cycles,
)
from compiler.schedule.schedule import Schedule

_BANKS, _APART = 32, 8
"""Rows of scores lie eight banks apart, so that four of them are read and written together."""

_PARTS = 128
"""Of sums over rows, at most, in shared memory: those of threads, and what they come to."""

_ALONG, _OWN, _DEPTHS = (1, 2, 4), (1, 2, 4, 8), (16, 32, 64)
"""Sub-groups along rows and keys, products of each, and terms that are staged together, on matrix units."""

_THREADS, _FEW_DEPTHS = ((2, 4, 8, 16), (4, 8, 16, 32)), (8, 16, 32)
"""Threads along rows and keys, and terms that are staged together, without."""


@dataclass(frozen=True, slots=True)
class ScoresTile:
    """A tile as an option, with the shared memory of scores and of what it stages, in bytes."""

    option: Option
    shared_bytes: int


Tile = TypeVar("Tile", MatrixTile, ThreadTile)
Cycles = Callable[[Tile, GemmProblem, TargetFacts], float]

Tiles = dict[tuple[int, int], list[ScoresTile]]
"""Tiles of scores by the rows and threads of a block."""


def last_of_scores(program: Program) -> str:
    """The block that finishes the scores of an attention, read by its softmax; empty for other functions.

    What is between it and the product is read once, element by element.
    """
    sums = [site for site in program.sites.values() if site.is_store and site.reduce]
    if len(sums) != 4:
        return ""
    last = sums[0]
    while len(readers := program.readers(last.target)) == 1:
        (last,) = readers
        if last.reduce or not last.is_store or len(last.spatial) != len(sums[0].spatial):
            return ""
    read_by = {site.name for site in readers}
    return last.name if last is not sums[0] and sums[1].name in read_by else ""


class NestedProduct(ImplicitGemm):
    """A product whose tiles a loop of another one goes through: what both ways to multiply share."""

    at: str
    last: str
    problem: GemmProblem

    def begin(self, schedule: Schedule) -> None:
        """Lay out the product and what follows it for tiles; before the product around it is placed."""
        self.last, self.problem = self.prepare(schedule, follow=True)

    def place_in(self, schedule: Schedule, loop: str, columns: int) -> None:
        """Put what finishes scores under a loop, in parts of so many columns, and the product into that."""
        self.s = schedule
        scores = schedule.site(self.last).store.buffer
        schedule.set_scope(scores.name, SHARED)
        schedule.storage_align(scores.name, len(scores.shape) - 2, _BANKS, _APART)
        *_, row, column = schedule.compute_at(self.last, loop, preserve_unit_loops=True)
        self.at, column = schedule.split(column, (None, columns))
        schedule.reorder(self.at, row, column)
        schedule.compute_at(self.name, self.at, preserve_unit_loops=True)

    def own_loops(self, block: str) -> tuple[str, ...]:
        loops = self.s.loops(block)
        return tuple(loops[loops.index(self.at) + 1 :])

    def follow_tile(self, last: str, tile: str) -> Sequence[str]:
        """It is there already."""
        return self.own_loops(last)

    def bind_grid(self, grid: Sequence[str]) -> None:
        """The product around this one has the grid."""


class ScoresOnUnits(MatrixGemm, NestedProduct):
    """Scores by a matrix unit."""

    def alternate(self, tile: MatrixTile, end: str) -> int:
        """Nothing that reads scores wants more than two neighbours of a lane."""
        return 1

    def run_in(self, schedule: Schedule, loop: str, unit: MatrixUnit, options: Sequence[Option]) -> None:
        """Schedule it in a loop of the product around it, by a unit and one of some tiles."""
        self.s, self.unit = schedule, unit
        tile = MatrixTile(unit, *self.chooser.choose(f"{self.name}.tile", options))
        self.nest = (loop, tile.columns)
        self.spread(tile, self.last, self.problem.lanes)

    def place(self, tile: MatrixTile, stages: Sequence[str], last: str, lanes: int) -> None:
        self.place_in(self.s, *self.nest)
        super().place(tile, stages, last, lanes)

    def order_of(self, tiles: Sequence[str], lanes: Sequence[str], registers: Sequence[str]) -> list[str]:
        """A lane stores all that it holds, one after the other: nobody waits between."""
        return [*lanes, *tiles, *registers]


class ScoresOnThreads(NestedProduct):
    """Scores by threads alone."""

    def run_in(self, schedule: Schedule, loop: str, options: Sequence[Option]) -> None:
        """Schedule it in a loop of the product around it, by one of some tiles."""
        self.s = schedule
        tile = ThreadTile(*self.chooser.choose(f"{self.name}.tile", options))
        stages = self.pad(tile, self.stage())
        self.place_in(schedule, loop, tile.columns)
        self.arrange(tile, stages, self.last, self.problem.lanes)


# ---------------------------------------------------------------- what it costs


def unit_scores(unit: MatrixUnit, problem: GemmProblem, facts: TargetFacts) -> Tiles:
    """Tiles of a unit, with the cycles that all scores take by each."""
    return _by_block(problem, _unit_tiles(unit, problem), matrix_tile_cycles, facts)


def thread_scores(problem: GemmProblem, facts: TargetFacts) -> Tiles:
    """Tiles of threads, with the cycles that all scores take by each."""
    return _by_block(problem, _thread_tiles(problem), tile_cycles, facts)


def fitting(tile: BlockTile, tiles: Tiles, facts: TargetFacts) -> list[Option]:
    """Of tiles of scores those that a block with a tile of the other product has room for."""
    left = (facts.shared_limit or 0) - tile.shared_bytes - _PARTS * tile.rows * WORD
    return [one.option for one in tiles.get((tile.rows, tile.threads), ()) if one.shared_bytes <= left]


def with_scores(
    options: Sequence[Option], tile_of: Callable[..., BlockTile], tiles: Tiles, facts: TargetFacts
) -> list[Option]:
    """Tiles of the other product for blocks that make scores, too, with the cycles of both."""
    found = ((option, fitting(tile_of(*option.value), tiles, facts)) for option in options)
    return [
        Option(option.value, option.cost + min(item.cost for item in scores))
        for option, scores in found
        if scores
    ]


def _unit_tiles(unit: MatrixUnit, problem: GemmProblem) -> Iterator[MatrixTile]:
    """Tiles of a unit, a part of the sum staged after the other."""
    depths = [n for n in _DEPTHS if n % unit.steps == 0 and n < 2 * max(problem.inner, unit.steps)]
    for sizes in product(_ALONG, _ALONG, _OWN, _OWN, depths):
        tile = MatrixTile(unit, *sizes)
        if tile.registers <= MOST_REGISTERS:
            yield tile


def _thread_tiles(problem: GemmProblem) -> Iterator[ThreadTile]:
    depths = [n for n in _FEW_DEPTHS if n <= max(_FEW_DEPTHS[0], problem.inner)]
    for sizes in product(*_THREADS, _OWN, _OWN, depths):
        tile = ThreadTile(*sizes)
        if tile.thread_columns % problem.lanes == 0:
            yield tile


def _by_block(
    problem: GemmProblem, tiles: Iterable[Tile], cycles: Cycles[Tile], facts: TargetFacts
) -> Tiles:
    """Tiles that fit, with the cycles until the last unit has gone through all parts of the keys.

    Tiles are whole, but the last one of several: what is made for it covers all of a tile then.
    """
    found: Tiles = {}
    for tile in tiles:
        scores = tile.rows * (problem.columns + _BANKS) * WORD
        whole = tile.rows <= problem.rows and tile.columns <= problem.columns
        if not whole or not has_room(tile, facts, scores):
            continue
        parts = -(-problem.columns // tile.columns)
        cost = parts * cycles(tile, replace(problem, columns=tile.columns), facts)
        made = ScoresTile(Option(tile.value, cost), scores + tile.shared_bytes)
        found.setdefault((tile.rows, tile.threads), []).append(made)
    return found
