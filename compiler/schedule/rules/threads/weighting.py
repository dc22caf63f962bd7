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

from collections.abc import Callable, Mapping, Sequence

from compiler.core.target import TargetFacts
from compiler.loops.ir import Load
from compiler.loops.matrix_units import MatrixUnit
from compiler.loops.queries import extent_of, iterations
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Site
from compiler.schedule.rules.options import Named
from compiler.schedule.rules.threads.axes import Axes, find_axes
from compiler.schedule.rules.threads.gemm import is_narrow
from compiler.schedule.rules.threads.launch_cost import LAUNCH_SECONDS
from compiler.schedule.rules.threads.matrix import MatrixGemm, usable
from compiler.schedule.rules.threads.matrix_tile import MatrixTile, matrix_options
from compiler.schedule.rules.threads.online import OnlineAttention, Ways, parts_of_keys, ways_of_parts
from compiler.schedule.rules.threads.row_sums import RowSums
from compiler.schedule.rules.threads.scores import (
    AnyTile,
    OnThreads,
    OnUnits,
    Pairs,
    ScoresOnThreads,
    ScoresOnUnits,
    Tiling,
    softmax_cycles,
)
from compiler.schedule.rules.threads.split_k import least_of, product_cycles
from compiler.schedule.rules.threads.tile import BlockTile, GemmProblem, ThreadTile, thread_tiles
from compiler.schedule.schedule import Schedule

_APART, _TOGETHER = (0,), (1,)
"""Scores in a launch of their own, or in the one that goes on with them, as decisions."""


def weighted_rows(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a softmax whose rows one product reads, with the product that makes its rows if that pays.

    False, and no change, for other functions. A product that makes the rows is left to other rules where one
    launch more is better.
    """
    sums = [site.name for site in schedule.program.sites.values() if site.is_store and site.reduce]
    if len(sums) not in (3, 4):
        return False
    *scores, largest, total, product = sums
    rows, block = (largest, total), schedule.site(product)
    axes = find_axes(block)
    if axes is None or not _weighs(schedule, rows, block, axes):
        return False
    if scores and _with_scores(schedule, scores[0], rows, product, axes, facts, chooser):
        return True
    units = usable(block, facts)
    on_units = _OnUnits(rows, product, block, axes, facts, Named(chooser, "weighed.unit"))
    if units and on_units.apply(schedule, units):
        return True
    on_threads = _OnThreads(rows, product, block, axes, facts, Named(chooser, "weighed"))
    return schedule.attempt(on_threads.run, follow=True)


def _with_scores(
    schedule: Schedule,
    name: str,
    rows: Sequence[str],
    product: str,
    axes: Axes,
    facts: TargetFacts,
    chooser: Chooser,
) -> bool:
    """Schedule all of an attention as one launch; False, and no change, where two are better."""
    first, block = schedule.site(name), schedule.site(product)
    own = find_axes(first)
    if own is None or not _are_scores(schedule, first, rows):
        return False
    units = [unit for unit in usable(first, facts) if unit in usable(block, facts)]
    if any(unit.opaque for unit in units):  # what a lane has of their sums is not known
        return False
    problems = _problem(first, own), _problem(block, axes)
    parts = {n: ways_of_parts(*problems, units, facts, n) for n in parts_of_keys(problems[0].columns)}
    ways = _ways(*problems, units, facts, {n: found for n, found in parts.items() if found})
    if not ways:
        return False
    (way,) = chooser.choose("attention.together", ways)
    if way in parts:
        online = OnlineAttention(name, rows, product, facts, chooser)
        return schedule.attempt(online.run, way, parts[way])
    if (way,) == _APART:
        return False
    on_units = _OnUnits(rows, product, block, axes, facts, Named(chooser, "weighed.unit"))
    on_units.scores = ScoresOnUnits(name, first, own, facts, Named(chooser, "scores.unit"))
    if units and on_units.apply(schedule, units):
        return True
    on_threads = _OnThreads(rows, product, block, axes, facts, Named(chooser, "weighed"))
    on_threads.scores = ScoresOnThreads(name, first, own, facts, Named(chooser, "scores"))
    return schedule.attempt(on_threads.run, follow=True)


def _are_scores(schedule: Schedule, first: Site, rows: Sequence[str]) -> bool:
    """Whether the sums over rows read what a product makes, or what follows it element by element."""
    readers = schedule.program.readers(first.target)
    made = readers[0].target if len(readers) == 1 and not readers[0].reduce else first.target
    shape = [extent_of(item.extent) for item in first.spatial]
    return all(
        made in {load.buffer.name for load in schedule.site(name).loads}
        and [extent_of(item.extent) for item in schedule.site(name).spatial] == shape[:-1]
        for name in rows
    )


def _problem(block: Site, axes: Axes) -> GemmProblem:
    terms = iterations(block.reduce)
    return GemmProblem(*axes.extents(), terms, terms, 1, plain=True, narrow=is_narrow(block))


def _ways(
    first: GemmProblem,
    second: GemmProblem,
    units: Sequence[MatrixUnit],
    facts: TargetFacts,
    parts: Mapping[int, Ways],
) -> list[Option]:
    """Whether scores may have a launch of their own, with the cycles until all is done."""
    plain = OnThreads(facts)
    tiles = thread_tiles(second, facts)
    apart = _whole(tiles, plain.tile_of, second, facts)
    together = Pairs(plain, first, second, facts).options(tiles)
    for unit in units:
        on_unit = OnUnits(unit, facts)
        tiles = matrix_options(unit, second, facts)
        apart += _whole(tiles, on_unit.tile_of, second, facts)
        together += Pairs(on_unit, first, second, facts).options(tiles)
    online = [
        Option((n,), min(min(o.cost for o in options) for _, options in found.values()))
        for n, found in parts.items()
    ]
    if not together and not online:
        return []
    two = least_of(apart) + product_cycles(first, units, facts) + LAUNCH_SECONDS * facts.hertz
    whole = [Option(_TOGETHER, least_of(together))] if together else []
    return [*whole, *online, Option(_APART, two)]


def _whole(
    options: Sequence[Option],
    tile_of: Callable[[Sequence[int]], BlockTile],
    problem: GemmProblem,
    facts: TargetFacts,
) -> list[Option]:
    """Tiles with all columns of their rows, with the cycles of a softmax of rows in memory, too."""
    found = [(option, tile_of(option.value)) for option in options]
    return [
        Option(option.value, option.cost + softmax_cycles(tile, problem, facts, far=True))
        for option, tile in found
        if tile.columns >= problem.columns
    ]


def _weighs(schedule: Schedule, rows: Sequence[str], block: Site, axes: Axes) -> bool:
    """Whether the factor with the rows is made of what the sums before come to, each of which is a row's."""
    found = factors(block.block)
    if found is None:
        return False
    read = {item.buffer.name for item in found[axes.left].walk() if isinstance(item, Load)}
    totals = {schedule.site(name).target for name in rows}
    alike = len({tuple(extent_of(i.extent) for i in schedule.site(name).spatial) for name in rows}) == 1
    return totals <= read and alike and not totals & set(schedule.program.outputs)


class _Weighted(RowSums):
    """What both ways to multiply share: tiles of all columns, and the sums over rows in front of them."""

    tile: ThreadTile | MatrixTile
    scores: ScoresOnUnits | ScoresOnThreads | None = None
    """The product that makes the rows, where this launch has it, too."""
    problem: GemmProblem

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
        way = OnThreads(self.facts)
        found = super().thread_tiles(problem)
        if self.scores is not None:
            return self.pairs(way, problem).options(found)
        return _whole(found, way.tile_of, problem, self.facts)

    def pairs(self, way: Tiling[AnyTile], problem: GemmProblem) -> Pairs[AnyTile]:
        """Tiles of both products."""
        assert self.scores is not None
        self.problem = problem
        return Pairs(way, self.scores.problem, problem, self.facts)

    def prepare(self, schedule: Schedule, *, follow: bool) -> tuple[str, GemmProblem]:
        if self.scores is not None:
            self.scores.begin(schedule)
        return super().prepare(schedule, follow=follow)

    def bind_grid(self, grid: Sequence[str]) -> None:
        """The sums over rows come first in a block, and in front of them scores."""
        for name in reversed(self.sums):
            self.place_sum(name, grid[-1])
        self.place_scores(grid[-1])
        super().bind_grid(grid)

    def place_scores(self, block_loop: str) -> None:
        """Put the product that makes the rows, if it is one of this launch, into the loop over blocks."""


class _OnThreads(_Weighted):
    """Products by threads alone."""

    tile: ThreadTile
    scores: ScoresOnThreads | None

    def arrange(self, tile: ThreadTile, stages: Sequence[str], last: str, lanes: int) -> None:
        self.tile = tile
        super().arrange(tile, stages, last, lanes)

    def place_scores(self, block_loop: str) -> None:
        if self.scores is not None:
            tiles = self.pairs(OnThreads(self.facts), self.problem).score_options(self.tile.value)
            self.scores.run_in(self.s, block_loop, tiles)


class _OnUnits(MatrixGemm, _Weighted):
    """Products by a matrix unit."""

    tile: MatrixTile
    scores: ScoresOnUnits | None

    def unit_tiles(self, unit: MatrixUnit, problem: GemmProblem) -> list[Option]:
        way = OnUnits(unit, self.facts)
        found = super().unit_tiles(unit, problem)
        if self.scores is not None:
            return self.pairs(way, problem).options(found)
        return _whole(found, way.tile_of, problem, self.facts)

    def spread(self, tile: MatrixTile, last: str, lanes: int) -> None:
        self.tile = tile
        super().spread(tile, last, lanes)

    def place_scores(self, block_loop: str) -> None:
        if self.scores is not None:
            tiles = self.pairs(OnUnits(self.unit, self.facts), self.problem).score_options(self.tile.value)
            self.scores.run_in(self.s, block_loop, self.unit, tiles)
