"""The choice of a tile for Winograd's convolution in one launch: what fits a unit, and what it costs.

A block of threads has `columns` tiles of 2 x 2 results of `rows` output channels. A thread multiplies at
`positions` of the 16 positions, for `thread_rows x thread_columns` of those pairs each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import product

from compiler.core.target import TargetFacts
from compiler.loops.ir import CONSTANT, OPERANDS, Binary, Block, Func, Load
from compiler.loops.queries import extent_of
from compiler.schedule.chooser import Option
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Program, Site
from compiler.schedule.rules.common import stages
from compiler.schedule.rules.threads.common import subgroup, units
from compiler.schedule.rules.threads.matrix import usable
from compiler.schedule.rules.threads.split_k import parts_cycles, product_cycles
from compiler.schedule.rules.threads.tile import (
    BUSY_THREADS,
    NOT_HIDDEN,
    SHARED_BYTES_A_CYCLE,
    WORD,
    GemmProblem,
    copies,
    costs_of,
    has_room,
    occupancy,
)

STAGES = ("patches", "tile_rows", "tiles", "products", "result_rows")
"""The stages of the form, in order; in several chunks the block of their images is one, too."""

SIDE, RESULTS, TAPS = 4, 2, 9
"""Positions of a tile and results of it along an axis; terms of a result per channel, computed directly."""

POSITIONS = SIDE * SIDE

WIDE = 4
"""Neighbouring tiles whose sums are stored together: tiles of a thread that are exchanged at a time."""

_OTHER_REGISTERS, _CARRIED = 40, 14
"""Registers of a thread beside sums and operands, and those for what is under way beside its values."""

_STORED = 4
"""Instructions for each sum until it is part of a result: as many as a result of other products takes."""

_ENDS = 3
"""Times that all threads wait for each other where nothing hides it: the first part, and sums exchanged."""

_MOST_THREADS = 512

_LEAST_SUMS, _LEAST_PAIRS = 32, 512
"""With fewer sums of a thread, or pairs of channel and tile in a block, fetching takes longer than sums."""


@dataclass(frozen=True, slots=True)
class FusedShape:
    """Sizes of a convolution in this form.

    chunks: of input channels, with `channels` in each. out: output channels. tiles: of all images, and some
    behind the last one. image: number of images, output channels, rows, columns of results. result: the block
    that writes them.
    """

    chunks: int
    channels: int
    out: int
    tiles: int
    image: tuple[int, int, int, int]
    result: str

    @property
    def down(self) -> int:
        """Tiles below each other in an image."""
        return -(-self.image[2] // RESULTS)

    @property
    def across(self) -> int:
        """Tiles beside each other in an image."""
        return -(-self.image[3] // RESULTS)

    @property
    def used(self) -> int:
        """Tiles of all images that have results."""
        return self.image[0] * self.down * self.across


def find_shape(func: Func) -> FusedShape | None:
    """The sizes of a convolution in this form; None for other functions, and where results go elsewhere."""
    found, program = stages(func), Program(func)
    if not set(STAGES) <= found.keys() or dict(func.attrs).get(OPERANDS):
        return None
    *chunk, _, _, out, tiles, channels = (extent_of(item.extent) for item in found["products"].iters)
    readers = program.readers(program.site(found["result_rows"].name).target)
    if len(readers) != 1 or not _keeps_order(readers[0], program.site(found["result_rows"].name).target):
        return None
    image = [extent_of(item.extent) for item in readers[0].block.iters][-4:]
    known = (image[0], image[1], image[2], image[3])
    return FusedShape(math.prod(chunk), channels, out, tiles, known, readers[0].name)


def _keeps_order(site: Site, rows: str) -> bool:
    """Whether a block runs over images, channels, rows and columns (behind chunks) of what it reads."""
    loads = [load for load in site.loads if load.buffer.name == rows]
    if not site.is_store or site.reduce or not loads:
        return False
    *_, _, channel, row, _ = (item.var for item in site.spatial)
    below = (load.indices[-4] for load in loads)
    return len(site.spatial) == len(loads[0].indices) and all(
        load.indices[-2] == channel and isinstance(at, Binary) and at.op == "floormod" and at.a == row
        for load, at in zip(loads, below, strict=True)
    )


def filters_of(block: Block) -> tuple[int, Load] | None:
    """The number of the factor that is the transformed filters, if they are constants, and the factor."""
    found = enumerate(factors(block) or ())
    return next(
        ((n, item) for n, item in found if isinstance(item, Load) and item.buffer.scope == CONSTANT), None
    )


# ---------------------------------------------------------------- tiles


@dataclass(frozen=True, slots=True)
class WinogradTile:
    """Threads along channels and tiles, what each computes at how many positions, and how it is fetched.

    depth: input channels that are staged at a time. stages: 2 where the next ones are under way meanwhile.
    """

    along_rows: int
    along_columns: int
    thread_rows: int
    thread_columns: int
    positions: int
    depth: int
    stages: int = 1

    @property
    def threads(self) -> int:
        return POSITIONS // self.positions * self.along_rows * self.along_columns

    @property
    def rows(self) -> int:
        """Output channels of a block."""
        return self.along_rows * self.thread_rows

    @property
    def columns(self) -> int:
        """Tiles of a block."""
        return self.along_columns * self.thread_columns

    @property
    def sums(self) -> int:
        """Sums of a thread."""
        return self.positions * self.thread_rows * self.thread_columns

    @property
    def patches(self) -> int:
        """Patches that a thread fetches in each round."""
        return self.depth * self.columns // self.threads

    @property
    def registers(self) -> int:
        """Registers of 32 bits that a thread needs, about."""
        own = self.sums + self.thread_rows + self.thread_columns
        carried = POSITIONS * self.patches + _CARRIED if self.stages > 1 else 0
        return own + carried + _OTHER_REGISTERS

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: what is multiplied, and sums on their way to other threads."""
        staged = self.stages * self.depth * (self.rows + self.columns)
        return (staged + self.rows * self.along_columns * WIDE) * POSITIONS * WORD

    @property
    def value(self) -> tuple[int, ...]:
        """The tile as a decision."""
        return astuple(self)


def winograd_tiles(shape: FusedShape, facts: TargetFacts) -> list[Option]:
    """Tiles that fit the limits of a block, with the cycles that all work takes."""
    return [Option(tile.value, winograd_tile_cycles(tile, shape, facts)) for tile in _tiles(shape, facts)]


def _tiles(shape: FusedShape, facts: TargetFacts) -> Iterator[WinogradTile]:
    along, own, under_way = (2, 4, 8), (4, 8), (1, 2) if copies(facts) else (1,)
    for sizes in product(along, along, own, own, (1, 2, 4), (4, 8, 16), under_way):
        tile = WinogradTile(*sizes)
        if tile.sums < _LEAST_SUMS or tile.rows * tile.columns < _LEAST_PAIRS:
            continue
        if _shaped(tile, shape, facts) and has_room(tile, facts):
            yield tile


def _shaped(tile: WinogradTile, shape: FusedShape, facts: TargetFacts) -> bool:
    """Whether a tile shares out its work evenly, and has enough of it."""
    most = min(_MOST_THREADS, facts.limit("threads_per_block") or _MOST_THREADS)
    if not subgroup(facts) <= tile.threads <= most or tile.threads % subgroup(facts):
        return False
    filled = -(-shape.used // tile.columns) * tile.columns
    if filled != shape.tiles or tile.rows >= max(2 * shape.out, 9):
        return False
    if shape.chunks > 1 and shape.channels % tile.depth:
        return False
    if tile.threads % tile.columns or tile.depth % (tile.threads // tile.columns):
        return False  # threads share out patches evenly
    vectors = SIDE * tile.rows  # of filters, for each channel
    deep = tile.threads // vectors
    fetched = deep <= tile.depth if deep else vectors // tile.threads <= SIDE
    return fetched and -(-shape.channels // tile.depth) > tile.stages


def winograd_tile_cycles(tile: WinogradTile, shape: FusedShape, facts: TargetFacts) -> float:
    """Cycles until the last unit is done, by the costs of other products on threads (`tile.py`)."""
    costs = costs_of(facts)
    grid = shape.chunks * math.ceil(shape.out / tile.rows) * (shape.tiles // tile.columns)
    waves = math.ceil(grid / units(facts))
    resident = min(waves, occupancy(tile, facts))
    rounds = math.ceil(shape.channels / tile.depth)
    values = POSITIONS * rounds * tile.depth  # positions of all channels
    lanes = facts.fma_per_cycle * facts.lanes(32)
    busy = min(1.0, resident * tile.threads / BUSY_THREADS)
    arithmetic = tile.rows * tile.columns * values / lanes / busy
    operands = tile.rows * tile.columns * (1 / tile.thread_rows + 1 / tile.thread_columns)
    copied = tile.stages > 1
    stored = tile.columns + (0 if copied else tile.rows)
    shared = values * (operands + stored) * WORD / SHARED_BYTES_A_CYCLE
    fetched = values * (tile.rows + tile.columns) * WORD * facts.hertz / (facts.bandwidth * costs.cache)
    filters = tile.rows / 2 * (costs.copied if copied else 1)  # in vectors
    issued = arithmetic + values * (tile.columns + filters) * costs.element / lanes / busy
    _, second, most = sorted((issued, shared, fetched))
    waiting = rounds * costs.waits(tile.stages, resident * most / rounds) / resident
    waiting += _ENDS * costs.alone
    sums = tile.rows * tile.columns * POSITIONS
    return waves * (most + NOT_HIDDEN * second + waiting + sums / lanes * _STORED)


# ---------------------------------------------------------------- beside the direct form

_DOUBT = 1.3
"""Winograd has to be so much better by estimate: nothing of it was measured, and short sums that the estimate
of other products has as long are predicted to take less."""

_DOUBT_OF_BOTH = 1.12
"""The same beside sums in clusters, of which nothing was measured either: 64 channels at 56 x 56 are
estimated at 0.85 of their time, and predicted at 4.3 us where they take 9.1 (sm_90)."""


def share_of_direct(func: Func, facts: TargetFacts) -> float | None:
    """What part of the direct form's time a convolution in this form takes, by the costs that tiles have.

    None for other functions; infinite where nothing fits.
    """
    if not set(STAGES) <= stages(func).keys():
        return None
    shape, block = find_shape(func), Program(func).site(stages(func)["products"].name)
    if shape is None or filters_of(block.block) is None:
        return math.inf
    best = min((option.cost for option in winograd_tiles(shape, facts)), default=math.inf)
    if math.isinf(best):
        return best
    results = math.prod(shape.image)
    if shape.chunks > 1:
        best += parts_cycles(results, shape.chunks, facts)
    lanes = math.gcd(shape.image[3], WIDE)
    terms = shape.chunks * shape.channels
    direct = GemmProblem(1, shape.out, results // shape.out, terms, TAPS * terms, lanes, plain=True)
    units_there = usable(block, facts)
    measured = product_cycles(direct, units_there, facts, measured=True)
    return max(_DOUBT * best / measured, _DOUBT_OF_BOTH * best / product_cycles(direct, units_there, facts))
