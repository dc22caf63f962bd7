"""What it costs that a block makes a factor itself before the rounds of its product.

Of windows each thread makes some results below each other, whose windows share lines; of a chain of
operators, which go element by element, some neighbours. It takes several such groups at once where each
waits for few elements. A tile with part of the rows makes what another one makes, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Protocol

from compiler.core.target import TargetFacts
from compiler.schedule.chooser import Option
from compiler.schedule.rules.threads.common import divisors, units
from compiler.schedule.rules.threads.tile import (
    BUSY_THREADS,
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

_BESIDE = 3.0
"""Elements beside a run in a line that come along with it: runs do not begin where sectors do."""

_LINE = 32
"""Neighbours in a launch that makes windows alone."""

_LEAST_DEPTH, _MOST_DEPTH = 4, 32
"""Terms whose weights are staged together: channels come out even, as nothing is made twice."""

_FEWEST, _MOST = 64, 512
"""Threads of a block."""

_BELOW = (4, 2, 1)
"""Results that a thread may make at a time."""


class FactorReads(Protocol):
    """What the results of a made factor are computed from."""

    def loads(self, results: int) -> int:
        """Elements that so many results have, which a thread makes at a time."""

    def operations(self) -> int:
        """Of each result."""

    def belows(self) -> list[int]:
        """Numbers of results that a thread may make at a time."""


@dataclass(frozen=True, slots=True)
class WindowReads:
    """Windows of an image.

    places: of a window's elements in memory. down: from a window to the one below. lines: windows below each
    other.
    """

    places: tuple[int, ...]
    down: int
    lines: int

    def loads(self, results: int) -> int:
        """Elements that windows of so many results below each other have."""
        return len({place + number * self.down for place in self.places for number in range(results)})

    def operations(self) -> int:
        return len(self.places)

    def belows(self) -> list[int]:
        share = self.loads(2) < 2 * len(self.places)
        return [n for n in _BELOW if n == 1 or (share and self.lines % n == 0)]


@dataclass(frozen=True, slots=True)
class ChainReads:
    """Elements of other tensors at the place of a result, and operations on them."""

    tensors: int
    each: int

    def loads(self, results: int) -> int:
        """Neighbours share nothing."""
        return results * self.tensors

    def operations(self) -> int:
        return self.each

    def belows(self) -> list[int]:
        """How many neighbours come at a time shows when the kernel has its layouts."""
        return [1]


@dataclass(frozen=True)
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


def made_tile(value: Sequence[int], terms: int) -> MadeTile:
    """The tile that a decision says."""
    return replace(MadeTile(*value), terms=terms)


def made_tiles(
    problem: GemmProblem, reads: FactorReads, below: int, facts: TargetFacts, *, few: bool = False
) -> list[Option]:
    """Tiles that fit, with the cycles that all work takes, windows included; few: those that compare ways."""
    fitting = [n for n in divisors(problem.inner) if _LEAST_DEPTH <= n <= _MOST_DEPTH]
    depths = [n for n in fitting if n % _LEAST_DEPTH == 0] or fitting
    tiles = _all_tiles(problem.steps, tuple(depths[-1:] if few else depths), below)
    return [
        Option(option.value, option.cost + _made_cycles(option, problem, reads, below, facts))
        for option in thread_tiles(problem, facts, tiles)
    ]


@cache
def _all_tiles(terms: int, depths: tuple[int, ...], below: int) -> tuple[MadeTile, ...]:
    """Tiles of a block, whose threads make whole groups of results."""
    along = product((2, 4, 8, 16, 32), (2, 4, 8, 16, 32, 64))
    pairs = [pair for pair in along if _FEWEST <= math.prod(pair) <= _MOST]
    sizes = product(pairs, (1, 2, 4, 8), (1, 2, 4, 8), depths)
    tiles = [MadeTile(*pair, rows, columns, depth, terms=terms) for pair, rows, columns, depth in sizes]
    return tuple(tile for tile in tiles if tile.columns % below == 0)


def spread(tile: MadeTile, below: int) -> tuple[int, int]:
    """Threads along a line of pixels, and for channels side by side.

    Channels come out even: a condition around them makes branches of loads, each of which waits.
    """
    along = min(tile.threads, tile.columns // below)
    return along, max(n for n in divisors(tile.terms) if n <= tile.threads // along)


def at_once(reads: FactorReads, below: int, rounds: int) -> int:
    """Of so many rounds those whose elements a thread asks for together: without a rest."""
    most = max(1, _UNDER_WAY // max(1, reads.loads(below)))
    return max(n for n in divisors(rounds) if n <= most)


def _made_cycles(
    option: Option, problem: GemmProblem, reads: FactorReads, below: int, facts: TargetFacts
) -> float:
    """Cycles until the last unit has made all parts of the factor, beside those of the products."""
    tile = made_tile(option.value, problem.steps)
    waves = waves_of(tile, problem, facts)
    resident = min(waves, occupancy(tile, facts))
    along, deep = spread(tile, below)
    rounds = math.ceil(tile.terms / deep)
    lines = math.ceil(tile.columns / (below * along))
    groups = rounds * lines * tile.threads
    waiting = lines * rounds / at_once(reads, below, rounds) * _latency(facts) / resident
    return waves * (_cycles(groups, along, reads, below, facts, resident * tile.threads) + waiting)


def _cycles(
    groups: int, along: int, reads: FactorReads, below: int, facts: TargetFacts, threads: int
) -> float:
    """Cycles of a unit for groups of results, so many of them side by side in a line, beside waiting."""
    loads = groups * reads.loads(below)
    busy = min(1.0, threads / BUSY_THREADS)
    sums = groups * below * reads.operations()
    issued = (loads * _LOAD + sums) / (facts.fma_per_cycle * facts.lanes(32) * busy)
    moved = loads * WORD * (1 + _BESIDE / along)
    return max(issued, moved * facts.hertz / (facts.bandwidth * costs_of(facts).cache))


def alone_cycles(results: int, reads: FactorReads, facts: TargetFacts) -> float:
    """Cycles of a launch that makes the factor, and stores it."""
    own = math.ceil(results / units(facts))
    below = reads.belows()[0]
    stored = own * WORD * facts.hertz / (facts.bandwidth * costs_of(facts).cache)
    return _cycles(own // below, _LINE, reads, below, facts, BUSY_THREADS) + stored + _latency(facts)


def _latency(facts: TargetFacts) -> float:
    """Cycles that threads wait for what they asked for: half of a round of a tile that waits for all."""
    return costs_of(facts).alone / 2
