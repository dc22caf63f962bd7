"""The rule for all of attention in one launch, part by part of the keys: online softmax.

    blockIdx.y (batches), blockIdx.x (rows)
      threads: largest[row] = none; total[row] = 0; tile[row, column] = 0                     in registers
      for part of the keys
        scores[row, key] = queries x keys                                  a tile after the other, shared
        threads: part's largest[row], part's total[row]                                           shared
        threads: kept[row], added[row]: what to multiply by what there was, and by what comes     shared
        part's tile[row, column] = exp(scores - part's largest) x values                          shared
        threads: tile[row, column] = tile * kept[row] + part's tile * added[row]
      threads: output[...] = epilogue(tile / total)

What a block has of shared memory depends on the part, not on the number of keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from compiler.core.target import TargetFacts
from compiler.loops.ir import REGISTER, SHARED
from compiler.loops.matrix_units import MatrixUnit
from compiler.loops.queries import extent_of
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives.online import Rounds
from compiler.schedule.rules.common import fuse_all
from compiler.schedule.rules.options import Named
from compiler.schedule.rules.threads.axes import find_axes
from compiler.schedule.rules.threads.matrix_tile import MatrixTile, matrix_options
from compiler.schedule.rules.threads.scores import (
    OnThreads,
    OnUnits,
    Pairs,
    ScoresOnThreads,
    ScoresOnUnits,
)
from compiler.schedule.rules.threads.tile import (
    GemmProblem,
    ThreadTile,
    thread_tiles,
)
from compiler.schedule.schedule import Schedule

_PARTS = (128, 256, 512, 1024)
"""Keys that a block looks at together."""

_WIDE = 4
"""Neighbouring products that a thread adds up."""


def parts_of_keys(keys: int) -> list[int]:
    """Numbers of keys that may be a part."""
    return [number for number in _PARTS if number < keys]


# ---------------------------------------------------------------- the rule


Ways = dict[int, tuple["Pairs[MatrixTile] | Pairs[ThreadTile]", list[Option]]]
"""Tiles of both products and those of the second one, by the number of the unit, 0 for threads alone."""


def ways_of_parts(
    scores: GemmProblem, values: GemmProblem, units: Sequence[MatrixUnit], facts: TargetFacts, part: int
) -> Ways:
    """What a block that looks at so many keys at a time may do; nothing where no tile fits."""
    count = math.ceil(scores.columns / part)
    first, second = replace(scores, columns=part), replace(values, inner=part, steps=part, plain=False)
    on_threads = Pairs(OnThreads(facts), first, second, facts, count)
    found: Ways = {0: (on_threads, on_threads.options(thread_tiles(second, facts)))}
    for number, unit in enumerate(units):
        on_unit = Pairs(OnUnits(unit, facts), first, second, facts, count)
        found[number + 1] = on_unit, on_unit.options(matrix_options(unit, second, facts))
    return {number: (pairs, options) for number, (pairs, options) in found.items() if options}


class OnlineAttention:
    """The steps of the rule, in the order in which they are applied.

    scores, product: the blocks of both products. sums: those of largest elements and totals.
    """

    def __init__(
        self, scores: str, sums: Sequence[str], product: str, facts: TargetFacts, chooser: Chooser
    ) -> None:
        self.scores, self.sums, self.product = scores, sums, product
        self.facts, self.chooser = facts, chooser

    def run(self, schedule: Schedule, part: int, ways: Ways) -> None:
        """Schedule all of it by the unit and the tiles that are chosen."""
        best = [Option((number,), min(o.cost for o in options)) for number, (_, options) in ways.items()]
        pairs, options = ways[self.chooser.choose("online.unit", best)[0]]
        used = self.chooser.choose(f"online.{self.product}.tile", options)
        made = self.chooser.choose(f"online.{self.scores}.tile", pairs.score_options(used))
        self.arrange(schedule, part, pairs.way.tile_of(made), pairs.way.tile_of(used))

    def arrange(
        self, s: Schedule, part: int, made: MatrixTile | ThreadTile, used: MatrixTile | ThreadTile
    ) -> None:
        """Put everything into the loop over parts, by tiles of both products."""
        self.s, self.tile = s, used
        largest, total = self.sums
        rounds = Rounds(*s.online_softmax(self.product, largest, total, part, used.rows))
        self.bind_grid(rounds)  # while it shows that tiles have nothing to do with each other
        self.scores_in, self.values_in = self.nested(self.scores, made), self.nested(self.product, used)
        for nested in (self.scores_in, self.values_in):
            nested.begin(s)
        self.keep(rounds)
        end = self.end_at(rounds)
        _cut_in(self.values_in, s, rounds.round, used)
        for name in reversed(self.sums):
            self.values_in.place_sum(name, rounds.round)
        _cut_in(self.scores_in, s, rounds.round, made)
        for loop in (rounds.first_row, rounds.row):
            self.values_in.bind_threads(loop, used)
        for block, loop in ((rounds.begin, rounds.tile), (rounds.add, rounds.round), (end, rounds.tile)):
            self.spread(block, loop)

    def nested(self, name: str, tile: MatrixTile | ThreadTile) -> ScoresOnUnits | ScoresOnThreads:
        """The rule for one of the products."""
        block = self.s.site(name)
        axes = find_axes(block)
        if axes is None:
            raise ScheduleError(f"block {name} is no sum of products over rows and columns")
        kind = ScoresOnUnits if isinstance(tile, MatrixTile) else ScoresOnThreads
        return kind(name, block, axes, self.facts, Named(self.chooser, "online"))

    def keep(self, rounds: Rounds) -> None:
        """What there is so far lies in the registers of who adds to it, or where all see it."""
        targets = [site.target for site in self.s.program.sites.values() if site.under(rounds.row)]
        for target, scope in zip(targets, (REGISTER, SHARED, SHARED, SHARED, REGISTER), strict=True):
            self.s.set_scope(target, scope)
        self.s.set_scope(self.s.site(rounds.add).target, REGISTER)

    def end_at(self, rounds: Rounds) -> str:
        """Put what reads the result behind the rounds, with the quotient; gives its block."""
        end = rounds.quotient
        target = self.s.site(end).target
        readers = self.s.program.readers(target)
        if len(readers) == 1 and not readers[0].reduce and target not in self.s.program.outputs:
            self.s.compute_inline(end)
            end = readers[0].name
        self.s.reverse_compute_at(end, rounds.tile)
        return end

    def spread(self, name: str, around: str) -> None:
        """Give products of rows to threads, each some neighbours of some rows."""
        inside = self.s.loops(name)[self.s.loops(name).index(around) + 1 :]
        row, *columns = inside
        column = fuse_all(self.s, columns)
        count = extent_of(self.s.loop(column).extent)
        wide = math.gcd(count, _WIDE)
        along = 1
        while 2 * along <= self.tile.threads and along * wide < count:
            along *= 2
        row_own, row_thread = self.s.split(row, (None, self.tile.threads // along))
        own, thread, neighbour = self.s.split(column, (None, along, wide))
        self.s.reorder(row_thread, thread, row_own, own, neighbour)
        self.values_in.bind_threads(self.s.fuse(row_thread, thread), self.tile)
        for loop in (row_own, own, neighbour):
            self.s.unroll(loop)

    def bind_grid(self, rounds: Rounds) -> None:
        """Give tiles of rows, and what is outside of them, to blocks."""
        loops = self.s.loops(rounds.begin)
        outer = loops[: loops.index(rounds.tile)]
        self.s.bind(rounds.tile, "blockIdx.x")
        if outer:
            self.s.bind(fuse_all(self.s, list(outer)), "blockIdx.y")


def _cut_in(
    nested: ScoresOnUnits | ScoresOnThreads, s: Schedule, loop: str, tile: MatrixTile | ThreadTile
) -> None:
    if isinstance(nested, ScoresOnUnits):
        assert isinstance(tile, MatrixTile)
        nested.cut_in(s, loop, tile)
    else:
        assert isinstance(tile, ThreadTile)
        nested.cut_in(s, loop, tile)
