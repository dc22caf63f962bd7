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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Generic, Protocol, TypeVar

from compiler.core.target import TargetFacts
from compiler.loops.ir import SHARED
from compiler.loops.matrix_units import MatrixUnit
from compiler.schedule.chooser import Option
from compiler.schedule.program import Program
from compiler.schedule.rules.threads.common import BANKS
from compiler.schedule.rules.threads.matrix import MatrixGemm
from compiler.schedule.rules.threads.matrix_tile import (
    MOST_REGISTERS,
    MatrixTile,
    matrix_tile_cycles,
    unit_costs,
)
from compiler.schedule.rules.threads.row_sums import UNDER_WAY, RowSums
from compiler.schedule.rules.threads.tile import (
    BUSY_THREADS,
    WORD,
    BlockTile,
    GemmProblem,
    ThreadTile,
    costs_of,
    has_room,
    occupancy,
    tile_cycles,
    waves_of,
)
from compiler.schedule.schedule import Schedule

_APART = 8
"""Rows of scores lie eight banks apart, so that four of them are read and written together."""

_PARTS = 128
"""Of sums over rows, at most, in shared memory: those of threads, and what they come to."""

_WEIGHED = 30.0
"""Instructions for a score beside products: the largest one, two exponentials, the total, a weight."""

_PASSES = 3
"""Times that a thread asks for scores."""

_KEPT, _ADDED = 5, 6.0
"""Where keys are looked at part by part: numbers kept for a row; instructions to add what a part makes."""

_BUSY = 1024
"""Threads of a unit that are busy where keys are looked at part by part: they meet six times in each part."""

_MOST_TILES, _AS_LONG = 8, 1.25
"""Tiles of scores for blocks of a shape; how much more than the best pair one of its tiles may take alone."""

_STORED = 6.0
"""Cycles to finish a score and store it to shared memory, of a thread; that no memory is waited for."""

_ALONG, _OWN, _DEPTHS = (1, 2, 4), (1, 2, 4, 8), (16, 32, 64)
"""Sub-groups along rows and keys, products of each, and terms that are staged together, on matrix units."""

_THREADS, _FEW_DEPTHS = ((2, 4, 8, 16), (4, 8, 16, 32)), (8, 16, 32)
"""Threads along rows and keys, and terms that are staged together, without."""


AnyTile = TypeVar("AnyTile", MatrixTile, ThreadTile)


class Tiling(Protocol[AnyTile]):
    """Tiles of one way to multiply."""

    def tile_of(self, value: Sequence[int]) -> AnyTile: ...
    def scores(self, problem: GemmProblem) -> Iterable[AnyTile]: ...
    def cycles(self, tile: AnyTile, problem: GemmProblem, *, near: bool) -> float: ...


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


class NestedProduct(RowSums):
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
        schedule.storage_align(scores.name, len(scores.shape) - 2, BANKS, _APART)
        *_, row, column = schedule.compute_at(self.last, loop, preserve_unit_loops=True)
        self.at, column = schedule.split(column, (None, columns))
        schedule.reorder(self.at, row, column)
        schedule.compute_at(self.name, self.at, preserve_unit_loops=True)

    def own_loops(self, block: str) -> tuple[str, ...]:
        loops = self.s.loops(block)
        return tuple(loops[loops.index(self.at) + 1 :])

    def follow_tile(self, last: str, tile: str) -> Sequence[str]:  # noqa: ARG002
        """It is there already."""
        return self.own_loops(last)

    def bind_grid(self, grid: Sequence[str]) -> None:
        """The product around this one has the grid."""


class ScoresOnUnits(MatrixGemm, NestedProduct):
    """Scores by a matrix unit."""

    def alternate(self, tile: MatrixTile, end: str) -> int:  # noqa: ARG002
        """Nothing that reads scores wants more than two neighbours of a lane."""
        return 1

    def run_in(self, schedule: Schedule, loop: str, unit: MatrixUnit, options: Sequence[Option]) -> None:
        """Schedule it in a loop of the product around it, by a unit and one of some tiles."""
        self.cut_in(schedule, loop, MatrixTile(unit, *self.chooser.choose(f"{self.name}.tile", options)))

    def cut_in(self, schedule: Schedule, loop: str, tile: MatrixTile) -> None:
        """The same by a tile that was chosen."""
        self.s, self.unit, self.tile = schedule, tile.unit, tile
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
        self.cut_in(schedule, loop, ThreadTile(*self.chooser.choose(f"{self.name}.tile", options)))

    def cut_in(self, schedule: Schedule, loop: str, tile: ThreadTile) -> None:
        """The same by a tile that was chosen."""
        self.s, self.tile = schedule, tile
        stages = self.pad(tile, self.stage())
        self.place_in(schedule, loop, tile.columns)
        self.arrange(tile, stages, self.last, math.gcd(self.problem.lanes, tile.thread_columns))


# ---------------------------------------------------------------- what it costs


@dataclass(frozen=True, slots=True)
class OnUnits:
    """Tiles of a matrix unit for both products of an attention."""

    unit: MatrixUnit
    facts: TargetFacts

    def tile_of(self, value: Sequence[int]) -> MatrixTile:
        """The tile that a decision says."""
        return MatrixTile(self.unit, *value)

    def scores(self, problem: GemmProblem) -> Iterator[MatrixTile]:
        """Tiles of scores, a part of the sum staged after the other."""
        depths = [n for n in _DEPTHS if n % self.unit.steps == 0 and n < 2 * max(problem.inner, _DEPTHS[0])]
        for sizes in product(_ALONG, _ALONG, _OWN, _OWN, depths):
            tile = self.tile_of(sizes)
            if tile.registers <= MOST_REGISTERS:
                yield tile

    def cycles(self, tile: MatrixTile, problem: GemmProblem, *, near: bool) -> float:
        """Cycles of a product, whose results stay in shared memory if they are near."""
        costs = unit_costs(self.facts)
        costs = replace(costs, stored=min(_STORED, costs.stored)) if near else costs
        return matrix_tile_cycles(tile, problem, self.facts, costs)


@dataclass(frozen=True, slots=True)
class OnThreads:
    """Tiles of threads alone for both products of an attention."""

    facts: TargetFacts

    def tile_of(self, value: Sequence[int]) -> ThreadTile:
        """The tile that a decision says."""
        return ThreadTile(*value)

    def scores(self, problem: GemmProblem) -> Iterator[ThreadTile]:
        """Tiles of scores, a part of the sum staged after the other."""
        depths = [n for n in _FEW_DEPTHS if n <= max(_FEW_DEPTHS[0], problem.inner)]
        for sizes in product(*_THREADS, _OWN, _OWN, depths):
            tile = self.tile_of(sizes)
            if tile.thread_columns % problem.lanes == 0:
                yield tile

    def cycles(self, tile: ThreadTile, problem: GemmProblem, *, near: bool) -> float:  # noqa: ARG002
        """Cycles of a product; to store a result is a small part of them, wherever it is."""
        return tile_cycles(tile, problem, self.facts)


class Pairs(Generic[AnyTile]):
    """Tiles for blocks that make scores and multiply by values, with what both products take.

    A block has whole tiles of scores, but for the last one of several. count: parts of the keys that a block
    looks at one after the other; both problems are those of one part.
    """

    way: Tiling[AnyTile]

    def __init__(
        self,
        way: Tiling[AnyTile],
        scores: GemmProblem,
        values: GemmProblem,
        facts: TargetFacts,
        count: int = 1,
    ) -> None:
        self.way, self.first, self.second, self.facts = way, scores, values, facts
        self.count = count
        kept = values.columns + BANKS + _KEPT if count > 1 else 0
        self.row_bytes = (scores.columns + BANKS + _PARTS + kept) * WORD
        self.by_block: dict[tuple[int, int], list[AnyTile]] = {}
        fit = (one for one in way.scores(scores) if one.rows <= scores.rows and one.columns <= scores.columns)
        for tile in sorted(fit, key=self._score_cycles):
            found = self.by_block.setdefault((tile.rows, tile.threads), [])
            if len(found) < _MOST_TILES:
                found.append(tile)

    def options(self, found: Iterable[Option]) -> list[Option]:
        """Of tiles of the product with values those that fit, with the cycles of both products.

        What takes as long by itself as others together is not looked at.
        """
        options, least = list[Option](), math.inf
        for option in sorted(found, key=lambda one: one.cost):
            if option.cost * self.count > _AS_LONG * least:
                break
            scores = self.score_options(option.value)
            if scores:
                options.append(Option(option.value, min(item.cost for item in scores)))
                least = min(least, options[-1].cost)
        return options

    def score_options(self, value: Sequence[int]) -> list[Option]:
        """Tiles of scores beside one of the product with values, with the cycles of both."""
        tile, options = self.way.tile_of(value), list[Option]()
        if tile.columns < self.second.columns:
            return []
        kept = tile.rows * self.row_bytes
        for one in self.by_block.get((tile.rows, tile.threads), ()):
            made = replace(one, other_bytes=kept + tile.shared_bytes)
            used = replace(tile, other_bytes=kept + one.shared_bytes)
            if has_room(made, self.facts) and has_room(used, self.facts):
                options.append(Option(one.value, self._cycles(made, used)))
        return options

    def _cycles(self, made: AnyTile, used: AnyTile) -> float:
        scores = self._score_cycles(made)
        values = self.way.cycles(used, self.second, near=self.count > 1)
        if self.count == 1:
            return scores + values + softmax_cycles(used, self.second, self.facts, far=False)
        softmax = softmax_cycles(used, self.second, self.facts, far=False, busy_threads=_BUSY)
        return self.count * (scores + values + softmax + self._added(used))

    def _score_cycles(self, made: AnyTile) -> float:
        """Cycles until the scores of all keys are there."""
        parts = -(-self.first.columns // made.columns)
        return parts * self.way.cycles(made, replace(self.first, columns=made.columns), near=True)

    def _added(self, used: AnyTile) -> float:
        """Cycles to add the products of a part to what there is."""
        lanes = self.facts.fma_per_cycle * self.facts.lanes(32)
        return waves_of(used, self.second, self.facts) * used.rows * used.columns * _ADDED / lanes


def softmax_cycles(
    tile: BlockTile, problem: GemmProblem, facts: TargetFacts, *, far: bool, busy_threads: int = BUSY_THREADS
) -> float:
    """Cycles until the last unit has gone through its scores three times and made weights of them.

    problem: the product of weights and values. far: scores are in global memory, and threads wait for them.
    busy_threads: of a unit, that hide how long scores take from shared memory, one behind the other.
    """
    waves = waves_of(tile, problem, facts)
    resident = min(waves, occupancy(tile, facts))
    scores = tile.rows * problem.steps
    busy = min(1.0, resident * tile.threads / busy_threads)
    issued = scores * _WEIGHED / (facts.fma_per_cycle * facts.lanes(32) * busy)
    asked = _PASSES * scores / tile.threads / UNDER_WAY if far else 0.0
    return waves * (issued + asked * costs_of(facts).alone / 2 / resident)
