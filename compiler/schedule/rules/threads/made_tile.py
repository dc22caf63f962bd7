"""What it costs that a block makes a factor itself, of windows, before the rounds of its product.

Each thread makes some results below each other, whose windows share lines, and takes several such groups at
once where each waits for few elements. A tile with part of the rows makes what another one makes, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import product

from compiler.core.target import TargetFacts
from compiler.schedule.chooser import Option
from compiler.schedule.rules.threads.common import units
from compiler.schedule.rules.threads.tile import (
    WORD,
    GemmProblem,
    ThreadTile,
    costs_of,
    occupancy,
    thread_tiles,
    waves_of,
)

_UNDER_WAY = 36
"""Elements that a thread asks for at the same time."""

_LOAD = 3.0
"""Instructions for an element of a window: its place, whether it is inside, and the load."""

_BUSY_THREADS = 256
"""Threads of a unit that hide the latency of arithmetic."""

_BELOW = (4, 2, 1)
"""Results that a thread may make together."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of an image. offsets: of a window's elements. down: of the next result below. lines: results."""

    offsets: tuple[int, ...]
    down: int
    lines: int

    def loads(self, below: int) -> int:
        """Elements that windows of so many results below each other have together."""
        return len({offset + number * self.down for offset in self.offsets for number in range(below)})

    def belows(self) -> list[int]:
        """Numbers of results that a thread may make together."""
        share = self.loads(2) < 2 * len(self.offsets)
        return [n for n in _BELOW if n == 1 or (share and self.lines % n == 0)]

    def together(self, below: int) -> int:
        """Groups of results whose elements a thread asks for at once."""
        return max(1, _UNDER_WAY // self.loads(below))


@dataclass(frozen=True, slots=True)
class MadeTile(ThreadTile):
    """A tile of threads whose block makes all `terms` of the factor with the columns, and keeps them."""

    terms: int = 0

    @property
    def fetched(self) -> int:
        return self.rows

    @property
    def shared_bytes(self) -> int:
        staged = (self.rows + WORD) * self.depth * self.stages
        return (staged + self.terms * self.columns) * WORD


def made_tiles(
    problem: GemmProblem, windows: Windows, below: int, facts: TargetFacts, *, few: bool = False
) -> list[Option]:
    """Tiles that fit, with the cycles that all work takes, windows included; few: those that compare ways."""
    tiles = (tile for tile in _all_tiles(problem.steps, few) if tile.columns % below == 0)
    found = thread_tiles(problem, facts, tiles)
    return [
        Option(option.value, option.cost + _made_cycles(option, problem, windows, below, facts))
        for option in found
    ]


@cache
def _all_tiles(terms: int, few: bool) -> tuple[MadeTile, ...]:
    along = product((2, 4, 8, 16, 32), (2, 4, 8, 16, 32, 64))
    pairs = [pair for pair in along if 64 <= math.prod(pair) <= 512]
    sizes = product(pairs, (1, 2, 4, 8), (1, 2, 4, 8), (16,) if few else (8, 16, 32))
    return tuple(MadeTile(*pair, rows, columns, depth, terms=terms) for pair, rows, columns, depth in sizes)


def _made_cycles(
    option: Option, problem: GemmProblem, windows: Windows, below: int, facts: TargetFacts
) -> float:
    """Cycles until the last unit has made all parts of the factor, beside those of the products."""
    tile = MadeTile(*option.value, terms=problem.steps)
    waves = waves_of(tile, problem, facts)
    resident = min(waves, occupancy(tile, facts))
    groups = problem.steps * tile.columns // below
    rounds = math.ceil(groups / (tile.threads * windows.together(below)))
    return waves * cycles(groups, windows, below, facts, resident * tile.threads) + (
        waves / resident * rounds * _latency(facts)
    )


def cycles(groups: int, windows: Windows, below: int, facts: TargetFacts, threads: int) -> float:
    """Cycles of a unit for groups of results, beside waiting."""
    loads = groups * windows.loads(below)
    busy = min(1.0, threads / _BUSY_THREADS)
    sums = groups * below * len(windows.offsets)
    issued = (loads * _LOAD + sums) / (facts.fma_per_cycle * facts.lanes(32) * busy)
    return max(issued, loads * WORD * facts.hertz / (facts.bandwidth * costs_of(facts).cache))


def alone_cycles(results: int, windows: Windows, facts: TargetFacts) -> float:
    """Cycles of a launch that makes the factor, and stores it."""
    own = math.ceil(results / units(facts))
    below = windows.belows()[0]
    stored = own * WORD * facts.hertz / (facts.bandwidth * costs_of(facts).cache)
    return cycles(own // below, windows, below, facts, _BUSY_THREADS) + stored + _latency(facts)


def _latency(facts: TargetFacts) -> float:
    """Cycles that threads wait for what they asked for: half of a round of a tile that waits for all."""
    return costs_of(facts).alone / 2
