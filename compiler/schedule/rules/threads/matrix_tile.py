"""The choice of a tile for a sum of products on matrix units: what fits, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product

from compiler.core.target import TargetFacts
from compiler.loops.matrix_units import MatrixUnit
from compiler.schedule.chooser import Option
from compiler.schedule.rules.threads.tile import (
    SHARED_BYTES_A_CYCLE,
    WORD,
    GemmProblem,
    copies,
    has_room,
    k_iterations,
    occupancy,
    over_sizes,
    overlapped,
    passed_bytes,
    waves_of,
)

_OTHER_REGISTERS = 48
"""Registers of a thread beside its sums, its operands and what it fetches: addresses, counters."""

MOST_REGISTERS = 168
"""Of a thread, so that each part of a multiprocessor has room for three sub-groups."""

_WRITTEN_OUT = 256
"""Instructions of a thread between two jumps: products, and loads of their operands."""

_PARTS = 4
"""Matrix units of a multiprocessor (compute unit), each with sub-groups of its own."""

_MOST_RESIDENT = 32
"""Blocks that a unit works on at the same time at most."""

_STAGES = (2, 3, 4, 6)
"""Parts of a sum that are under way at the same time."""

_PAIR = 2
"""Neighbours of a row that lanes of NVIDIA's units hold."""

_MOST_ALTERNATING = 4
"""Tiles whose columns alternate at most: lanes hold eight neighbours then, 16 bytes of f16."""


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What a tile on matrix units takes beside its products, in cycles.

    begins: until a block multiplies. latency: from the start of a copy to its end, of which as many are
    under way as there are stages less one; alone: the same where nothing is under way. element: to find the
    place of an element, of a thread; copied: the part of it where asynchronous copies bring several at
    once; gathered: times where each term has a place of its own. cache: times the share of global memory,
    where what is fetched is in the cache. read: times the bytes that lanes read from shared memory;
    rounded: times where they round them to tf32. overlap: of what happens at the same time the powers add
    up; the higher, the more the longest hides. stored: to make and store a result, of a thread; alternating:
    the power of the tiles that alternate by which that shrinks.
    """

    begins: float
    latency: float
    alone: float
    element: float
    copied: float
    gathered: float
    cache: float
    read: float
    rounded: float
    overlap: float
    stored: float
    alternating: float

    def combined(self, *cycles: float) -> float:
        """Cycles of what happens at the same time."""
        return math.pow(sum(math.pow(item, self.overlap) for item in cycles), 1 / self.overlap)


ON_UNITS = UnitCosts(
    begins=180, latency=1200, alone=1060, element=5.7, copied=0.32, gathered=1.4, cache=1.79, read=1.47,
    rounded=1.8, overlap=1.75, stored=110, alternating=0.19,
)  # fmt: skip
"""Fitted to times on an H100 (benchmarks/gpu_fit.py) before operands came by `ldmatrix`; but `gathered`.

Written out, what is gathered takes two accesses of a sub-group to the first-level cache and a condition, as
stands here: of eight tiles that ran for 16 images of 224 x 224 it takes the fastest.
"""

UNITS_WITHOUT_COPIES = UnitCosts(
    begins=30, latency=165, alone=240, element=10.2, copied=1, gathered=1, cache=6, read=1,
    rounded=1, overlap=1.42, stored=1.5, alternating=0.19,
)  # fmt: skip
"""Where nothing copies to shared memory by itself: not measured, what machine code is predicted to take."""

_LEAST_COPY = 4
"""Bytes of the smallest asynchronous copy."""

_PADDING_BYTES = 16
"""Between rows in shared memory, so that lanes read from different banks."""


KEPT_PADDING = _PADDING_BYTES // WORD
"""Elements between rows of sums in shared memory, from where threads take them of opaque fragments."""


def padding_of(unit: MatrixUnit) -> int:
    """Elements between staged rows."""
    return _PADDING_BYTES // unit.factor.bytes


@dataclass(frozen=True)
class MatrixTile:
    """Sub-groups along rows and columns, products of each along both, and the steps staged at a time.

    stages, copied, other_bytes: as of a `ThreadTile`.
    """

    unit: MatrixUnit
    along_rows: int
    along_columns: int
    own_rows: int
    own_columns: int
    depth: int
    stages: int = 1
    copied: int = 0
    other_bytes: int = 0

    @cached_property
    def with_parts(self) -> Callable[[int, int], MatrixTile]:
        """The same with so many stages, copied or not: made once, with all that is found out about it."""
        return cache(lambda stages, copied: replace(self, stages=stages, copied=copied))

    @cached_property
    def threads(self) -> int:
        return self.along_rows * self.along_columns * self.unit.lanes

    @cached_property
    def rows(self) -> int:
        return self.along_rows * self.own_rows * self.unit.rows

    @cached_property
    def columns(self) -> int:
        return self.along_columns * self.own_columns * self.unit.columns

    @cached_property
    def value(self) -> tuple[int, ...]:
        """The tile as a decision."""
        own = self.along_rows, self.along_columns, self.own_rows, self.own_columns
        return (*own, self.depth, self.stages, self.copied)

    @cached_property
    def padding(self) -> int:
        """Elements between staged rows."""
        return padding_of(self.unit)

    @cached_property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        own = (self.rows + self.columns) * (self.depth + self.padding) * self.unit.factor.bytes
        return max(own * self.stages, self.kept_bytes) + self.other_bytes

    @cached_property
    def kept_bytes(self) -> int:
        """The sums of a block, which take the place of the factors if fragments are opaque."""
        return self.rows * (self.columns + KEPT_PADDING) * WORD if self.unit.opaque else 0

    @cached_property
    def groups(self) -> int:
        """Sub-groups of a block."""
        return self.along_rows * self.along_columns

    @cached_property
    def own(self) -> int:
        """Products of a sub-group in a step of the unit: each adds to another sum."""
        return self.own_rows * self.own_columns

    @cached_property
    def unrolled(self) -> int:
        """Steps of the unit that are written out one after the other, of those that are staged."""
        fits = max(1, _WRITTEN_OUT // (self.own + self.own_rows + self.own_columns))
        return min(self.depth // self.unit.steps, 1 << fits.bit_length() - 1)

    @cached_property
    def registers(self) -> int:
        """Registers of 32 bits that a thread needs, about; compilers fetch all of a round, then store it."""
        unit = self.unit
        step = unit.made_of or unit
        held = self.own_rows * step.a.registers + self.own_columns * step.b.registers
        fetched = 0 if self.copied else -(-(self.rows + self.columns) * self.depth // self.threads)
        held *= 2 if unit.made_of else 1
        return self.own * unit.c.registers + (held + fetched) * unit.factor.bytes // 4 + _OTHER_REGISTERS


def matrix_options(
    unit: MatrixUnit, problem: GemmProblem, facts: TargetFacts, *, few: bool = False
) -> list[Option]:
    """Tiles that fit the limits of a block, with their estimated cost in cycles of the whole device.

    few: those that are often best, to compare problems by.
    """
    sizes = problem.sizes()
    return [
        Option(staged.value, over_sizes(matrix_tile_cycles(staged, one, facts) for one in sizes))
        for tile in _all_tiles(unit, few=few)
        if _shaped(tile, problem, facts)
        for staged in (tile, *_overlapped(tile, problem, facts))
        if staged.registers <= MOST_REGISTERS and has_room(staged, facts, passed_bytes(staged, problem))
    ]


@cache
def _all_tiles(unit: MatrixUnit, *, few: bool) -> tuple[MatrixTile, ...]:
    along, own, deep = ((1, 2, 4), (1, 2, 4, 8), (16, 32, 64)) if not few else ((1, 2), (1, 2, 4), (32, 64))
    depths = [depth for depth in deep if depth % unit.steps == 0]
    return tuple(MatrixTile(unit, *sizes) for sizes in product(along, along, own, own, depths))


def _overlapped(tile: MatrixTile, problem: GemmProblem, facts: TargetFacts) -> Iterator[MatrixTile]:
    """The tile with several parts under way.

    Behind the end of a sum, narrow elements come one by one, which no copy does; in registers they are f32.
    What is gathered is written out for all of a sum, and comes through registers. No language with opaque
    fragments has both asynchronous copies and a use for them.
    """
    if problem.gathered or tile.unit.opaque:
        return
    narrow = tile.unit.factor.bytes < _LEAST_COPY
    plain = problem.plain and not (narrow and problem.inner % tile.depth)
    for stages, copied in overlapped(tile, replace(problem, plain=plain), facts, _STAGES):
        if copied or not narrow:
            yield tile.with_parts(stages, copied)


def _shaped(tile: MatrixTile, problem: GemmProblem, facts: TargetFacts) -> bool:
    unit = tile.unit
    # Half of it would be nothing; and of eight rows in a tile of sixteen, lanes do not keep what is theirs.
    too_large = tile.rows >= 2 * problem.rows or tile.columns >= 2 * problem.columns
    return (
        not too_large
        and tile.threads <= min(facts.limit("threads_per_block") or 1024, 512)
        and tile.depth < 2 * max(problem.inner, unit.steps, 16)
    )


def unit_costs(facts: TargetFacts) -> UnitCosts:
    """What tiles on matrix units take on a target."""
    return ON_UNITS if copies(facts) else UNITS_WITHOUT_COPIES


def matrix_tile_cycles(
    tile: MatrixTile, problem: GemmProblem, facts: TargetFacts, costs: UnitCosts | None = None
) -> float:
    """Cycles until the last unit is done; `costs` are by default those of the target.

    Blocks that are there at the same time work on their parts in turn, while those that follow arrive.
    """
    costs = costs or unit_costs(facts)
    waves = waves_of(tile, problem, facts)
    resident = min(waves, _MOST_RESIDENT, occupancy(tile, facts))
    # a sub-group keeps to one part: with fewer sub-groups than parts, some of them have nothing to do
    parts = min(1.0, resident * tile.groups / _PARTS)
    lanes = facts.fma_per_cycle * facts.lanes(32) * parts
    arrives = costs.latency / (tile.stages - 1) if tile.stages > 1 else costs.alone
    one_round = costs.combined(resident * _round_cycles(tile, problem, facts, costs, parts), arrives)
    stored = tile.rows * tile.columns / lanes * costs.stored / math.pow(alternating(tile), costs.alternating)
    stored += 2 * tile.kept_bytes / SHARED_BYTES_A_CYCLE  # sums of opaque fragments go there, and are read
    own = costs.begins + k_iterations(tile, problem) * one_round + resident * stored
    return waves / resident * own


def _round_cycles(
    tile: MatrixTile, problem: GemmProblem, facts: TargetFacts, costs: UnitCosts, parts: float
) -> float:
    """What a block's part of a sum takes of a multiprocessor, of which so many parts have sub-groups."""
    unit, size = tile.unit, tile.unit.factor.bytes
    elements = (tile.rows + tile.columns) * tile.depth
    products = tile.rows * tile.columns * tile.depth / dict(facts.matrix_rates)[unit.name] / parts
    held = tile.groups * (tile.own_rows * unit.rows + tile.own_columns * unit.columns)
    read = held * tile.depth * size * _conflicts(unit) / SHARED_BYTES_A_CYCLE / parts
    fetched = elements * size * facts.hertz / (facts.bandwidth * costs.cache)
    lanes = facts.fma_per_cycle * facts.lanes(32) * parts * (2 if problem.lanes > 1 else 1)
    places = elements * costs.element / lanes
    places *= costs.copied if tile.copied else costs.gathered if problem.gathered else 1.0
    read *= costs.read * (costs.rounded if unit.converts else 1.0)
    return costs.combined(products, read, fetched) + places


def alternating(tile: MatrixTile) -> int:
    """Tiles of the unit whose columns alternate, so that each lane holds so many pairs of neighbours."""
    *lanes, last = tile.unit.c.columns
    pairs = last.register == 1 and last.extent == _PAIR and len(lanes) == 1
    return math.gcd(tile.own_columns, _MOST_ALTERNATING) if pairs else 1


def _conflicts(unit: MatrixUnit) -> float:
    """How often a load of an operand waits for its bank: rows lie four banks apart, modulo all of them.

    Opaque fragments are loaded 16 bytes of a row at a time, which fill the banks: so `wmma` on sm_70 does
    where a lies by rows and b by columns (Raihan, Goli and Aamodt, "Modeling Deep Learning Accelerator
    Enabled GPUs", 2019).
    """
    if unit.opaque:
        return 1.0
    rows = math.prod(item.extent for item in unit.a.rows if item.lane)
    return max(1.0, rows * _PADDING_BYTES / SHARED_BYTES_A_CYCLE)
