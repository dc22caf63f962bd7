"""The rule for Winograd convolutions: transformed tiles stay in the second-level cache.

The form's stages are `tile_rows`, `tiles`, `products`, `result_rows` and the block that writes the image. Two
arrangements are on offer. By bands of tile rows, for few channels and large images:

    parallel (image, band)
      tiles = transformed input of the band                       in scratch
      for block of output channels
        products = tiles x filters, position by position          in scratch, tiled as in `contraction`
        for tile: result_rows = ... (registers); image = epilogue(...)

The filters are read once for each band. Where they are too large for that, the whole image is one band, and
the threads share out the transform of the input first, and then the blocks of output channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.loops.annotations import APART, PARTITION, PREFETCH
from compiler.loops.ir import CONSTANT, Func, Load
from compiler.loops.layout import Layout, lanes_last
from compiler.loops.queries import extent_of, variables
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.program import Program
from compiler.schedule.rules.common import (
    fuse_all,
    is_lane,
    lanes_innermost,
    part_of_steps,
    stages,
    stores_lanes,
    strip_mine,
    unroll_inside,
)
from compiler.schedule.rules.options import beyond, decide, unroll_factors
from compiler.schedule.rules.vector.register_tile import (
    ContractionProblem,
    larger_tiles,
    register_tiles,
    uneven,
)
from compiler.schedule.schedule import Schedule

Tiles = Callable[[ContractionProblem, TargetFacts], list[Option]]

WHOLE = 0
"""Decision for the band: the whole image at once."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Winograd convolution.

    m: results per tile down and across. size: positions down and across. channels, out: of input and output.
    tiles: of all images. across, down: tiles per row and column of one image. left: rows of results in the
    last row of tiles (0: all). result: the block that writes the image.
    """

    m: tuple[int, int]
    size: tuple[int, int]
    channels: int
    out: int
    tiles: int
    across: int
    down: int
    left: int
    result: str

    @property
    def positions(self) -> int:
        return self.size[0] * self.size[1]

    @property
    def images(self) -> int:
        return self.tiles // (self.across * self.down)


@dataclass(frozen=True, slots=True)
class Plan:
    """band: rows of tiles computed together, or WHOLE; vectors, rows: the register tile."""

    band: int
    vectors: int
    rows: int

    @property
    def value(self) -> tuple[int, ...]:
        """The plan as a decision."""
        return (self.band, self.vectors, self.rows)


def _find_shape(func: Func, lanes: int) -> Shape | None:
    """The sizes of a Winograd convolution; None for other functions, and where channels do not fill lanes."""
    found = stages(func)
    if not {"tile_rows", "tiles", "products", "result_rows"} <= found.keys():
        return None
    high, wide, out, tiles, channels = (extent_of(item.extent) for item in found["products"].iters)
    program = Program(func)
    last = program.readers(program.site(found["result_rows"].name).target)
    image = [extent_of(item.extent) for item in last[0].block.iters] if len(last) == 1 else []
    if len(image) != 4 or out % lanes or channels % lanes or tiles < 2:
        return None
    m = _results_of(high), _results_of(wide)
    down, across = -(-image[2] // m[0]), -(-image[3] // m[1])
    return Shape(m, (high, wide), channels, out, tiles, across, down, image[2] % m[0], last[0].name)


_TAPS = 3
"""Of filters that are transformed; of others three at most."""


def _results_of(positions: int) -> int:
    """Results of a tile along an axis: F(m, 3) has m + 2 positions, F(1, taps) its taps."""
    return positions - _TAPS + 1 if positions > _TAPS else 1


# ---------------------------------------------------------------- estimates


_TRANSFORM = 6.0
"""Instructions at the rate of multiply-adds for loads, sums and store of one vector of transformed values."""


def plans(shape: Shape, facts: TargetFacts, tiles: Tiles = register_tiles) -> list[Option]:
    """All plans with their estimated cycles on one core; `tiles` gives the register tiles of the products."""
    found = []
    bands = [n for n in range(1, shape.down + 1) if shape.down % n == 0]
    for band in (WHOLE, *(bands if shape.images > 1 else bands[:-1])):
        count = shape.tiles if band == WHOLE else band * shape.across
        if count < 2:  # no tiles to loop over
            continue
        problem = ContractionProblem(
            vectors=shape.out // facts.lanes(32),
            rows=count,
            steps=shape.channels,
            outer=shape.positions * (shape.tiles // count),
            broadcast=True,
            packed_bytes=shape.channels * shape.out * 4,
        )
        for option in tiles(problem, facts):
            vectors, rows, _ = option.value
            plan = Plan(band, vectors, rows)
            if plan.vectors <= _MOST_VECTORS:
                found.append(Option(plan.value, _cost(shape, plan, count, option.cost, facts)))
    return found


_MOST_VECTORS = 4
"""More vectors of output channels at a time leave no room for the products in the second-level cache."""


def _cost(shape: Shape, plan: Plan, count: int, products: float, facts: TargetFacts) -> float:
    """Cycles for products and transforms, shared out evenly or not, and for what comes from afar."""
    vectors = (shape.channels + shape.out) / facts.lanes(32)
    transforms = shape.tiles * vectors * shape.positions * _TRANSFORM / facts.fma_per_cycle
    shares = shape.tiles // count if plan.band != WHOLE else shape.out // (plan.vectors * facts.lanes(32))
    return (products + transforms) * uneven(shares) + _traffic(shape, plan, count, facts)


def _traffic(shape: Shape, plan: Plan, count: int, facts: TargetFacts) -> float:
    """Cycles for bytes from beyond the second-level cache: filters once, and what is read again."""
    memory = facts.bandwidth / facts.hertz
    width, positions = plan.vectors * facts.lanes(32), shape.positions
    tiles = positions * count * shape.channels * 4.0
    products = positions * count * width * 4.0
    filters = positions * shape.channels * shape.out * 4.0
    room, bands, chunks = facts.l2.bytes * 0.75, shape.tiles // count, shape.out // width
    again = 0.0
    if filters + tiles > room:
        again += (bands - 1) * filters
    if tiles + products > room:
        again += (chunks + 1) * bands * tiles
    if products > room:
        again += 2 * chunks * bands * products
    near = max(filters, tiles, products) <= facts.l3.bytes / 2
    return filters / memory + again / (facts.l3.fed if near else memory)


def estimate(func: Func, layouts: Mapping[str, Layout], facts: TargetFacts) -> float | None:
    """Estimated seconds on one core; None for other functions, inf where the rule does not fit."""
    if "products" not in stages(func):
        return None
    lanes = facts.lanes(32)
    shape = _find_shape(func, lanes)
    if shape is None or not _blocked(func, layouts, lanes):
        return math.inf
    unsure = 1.0 if 1 not in shape.m else _UNSURE if 1 in shape.size else _SEARCHED
    return unsure * min((option.cost for option in plans(shape, facts)), default=math.inf) / facts.hertz


_UNSURE, _SEARCHED = 1.1, 1.25
"""How much longer transforms along one axis are taken to take, as the model was measured with both: where the
other axis has one tap, and where it has more, which only a search takes."""


def _blocked(func: Func, layouts: Mapping[str, Layout], lanes: int) -> bool:
    """Whether all image-like parameters are kept in blocks of one vector of channels."""
    images = [item for item in func.params if item.scope != CONSTANT and len(item.shape) == 4]
    known = [layouts.get(item.name) for item in images]
    return all(item is not None and item.lanes == lanes and not item.group for item in known)


# ---------------------------------------------------------------- the rule


def schedule_winograd(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a Winograd convolution; False when the function is none, or does not fit the rule."""
    lanes = facts.lanes(32)
    shape = _find_shape(schedule.func, lanes)
    if shape is None or not _lanes_innermost(schedule, shape, lanes):
        return False
    options = plans(shape, facts)
    if not options:
        return False
    larger = plans(shape, facts, larger_tiles)
    plan = Plan(*chooser.choose("winograd.plan", beyond(options, larger)))
    _Winograd(schedule, shape, plan, facts, chooser).run()
    return True


def _lanes_innermost(schedule: Schedule, shape: Shape, lanes: int) -> bool:
    """Whether the image is read and written in blocks of channels."""
    first = stages(schedule.func)["tile_rows"]
    loads = [item for item in first.body.walk() if isinstance(item, Load)]
    inside = all(is_lane(item.indices[-1], first.iters[2], lanes) for item in loads)
    return inside and stores_lanes(schedule.block(shape.result), 1, lanes)


_BESIDE = 5
"""Registers that a pair of rows of results needs beside the rows: the two parts that it is the sum and the
difference of, a factor, and what comes after: a bias, a limit."""


class _Winograd:
    """The steps of the rule, in the order in which they are applied."""

    def __init__(
        self, schedule: Schedule, shape: Shape, plan: Plan, facts: TargetFacts, chooser: Chooser
    ) -> None:
        self.s, self.shape, self.plan, self.chooser = schedule, shape, plan, chooser
        self.lanes, self.registers = facts.lanes(32), facts.vector_registers
        self.names = {stage: block.name for stage, block in stages(schedule.func).items()}

    def run(self) -> None:
        copy = self._layouts()
        for name in (*self.names.values(), copy):
            strip_mine(self.s, name, 2, self.lanes)
        strip_mine(self.s, self.shape.result, 1, self.lanes)
        outer, chunk, across, pair = self._image_loops()
        self.s.compute_at(self.names["result_rows"], pair)
        self.s.compute_at(copy, chunk)
        self.s.compute_at(self.names["products"], chunk)
        if self.plan.band != WHOLE:
            self.s.compute_at(self.names["tiles"], outer[-1])
        self._products(copy)
        self._tiles(outer[-1] if self.plan.band != WHOLE else None)
        self._columns_first(self.names["result_rows"])
        for block in (self.names["result_rows"], self.shape.result):
            unroll_inside(self.s, block, across)
        self.s.parallel(fuse_all(self.s, outer) if self.plan.band != WHOLE else chunk)

    def _layouts(self) -> str:
        """Channels of all stages innermost; rows in registers; returns the block that stores the products."""
        s, width = self.s, self.plan.vectors * self.lanes
        products = s.block(self.names["products"])
        loads = [item for item in products.body.walk() if isinstance(item, Load)]
        filters = next(item for item in loads if item.buffer.scope == CONSTANT)
        self.filters = filters.buffer.name
        s.transform_layout(self.filters, lanes_last(4, 2, width))
        for name in self.names.values():
            s.transform_layout(s.site(name).target, lanes_last(4, 2, self.lanes))
        for name in ("tile_rows", "result_rows"):
            s.set_scope(s.site(self.names[name]).target, "register")
        last = s.site(self.shape.result)
        lanes_innermost(s, last, last.block.iters[1].var, self.lanes)
        return s.cache_write(self.names["products"], s.site(products.name).target, "register")

    def _image_loops(self) -> tuple[list[str], str, str, str]:
        """Tile the image: loops around bands, over blocks of channels, over tiles, over pairs of rows."""
        s = self.s
        n, channels, y, x, lane = s.loops(self.shape.result)
        down, i = s.split(y, (None, self.shape.m[0]))
        across, j = s.split(x, (None, self.shape.m[1]))
        pair, i = s.split(i, (None, 2 if self._pairs() else 1))
        s.annotate(pair, APART, 1)
        s.annotate(across, PARTITION, 1)
        chunk, vector = s.split(channels, (None, self.plan.vectors))
        if self.plan.band == WHOLE:
            s.reorder(chunk, n, vector, down, across, pair, i, j, lane)
            return [], chunk, across, pair
        band, down = s.split(down, (None, self.plan.band))
        s.reorder(n, band, chunk, vector, down, across, pair, i, j, lane)
        return [n, band], chunk, across, pair

    def _pairs(self) -> bool:
        """Whether rows p and -p of results are made together: of a pair, all is needed or nothing."""
        fits = 2 * self.shape.size[1] + _BESIDE <= self.registers
        if self.shape.left % 2 or self.shape.m[0] == 1:
            return False
        return bool(decide(self.chooser, "winograd.pairs", int(fits), (0, 1)))

    def _products(self, copy: str) -> None:
        """Register tiles of `rows` tiles of the image and `vectors` vectors of output channels."""
        s, name = self.s, self.names["products"]
        i, j, vectors, t, lane, c = (self._loops_of(name, axis) for axis in range(6))
        rows = self.plan.rows
        tail = "guard" if extent_of(s.loop(t[0]).extent) % rows == 0 else "shift"
        outer, inner = s.split(t[0], (None, rows), tail=tail)
        c_outer, c_inner = s.split(c[0], (None, self.lanes))
        factor = decide(self.chooser, "winograd.unroll", 1, unroll_factors([self.lanes]))
        (c_inner,), steps = part_of_steps(s, [c_inner], factor)
        s.reorder(*i, *j, outer, c_outer, c_inner, *steps, inner, *vectors, *lane)
        if decide(self.chooser, "winograd.fetch", 1, (0, 1)):
            s.annotate((*i, *j)[-1], PREFETCH, self.filters)
        s.reverse_compute_at(copy, outer)
        init = s.decompose_reduction(name, c_outer)
        for block in (init, name, copy):
            unroll_inside(s, block, outer, skip=(c_outer, c_inner))

    def _tiles(self, band: str | None) -> None:
        """Transform tile by tile; the rows of p and -p together."""
        s, name = self.s, self.names["tiles"]
        i, j, blocks, t, lane = (self._loops_of(name, axis) for axis in range(5))
        down, across = s.split(t[0], (None, self.shape.across))
        pair, halves = across, list[str]()
        if i:
            pair, half = s.split(i[0], (None, 2 if self.shape.m[0] > 1 else 1))
            s.annotate(pair, APART, 1)
            halves = [pair, half]
        around = [*blocks, down]
        s.reorder(*around, across, *halves, *j, *lane)
        s.compute_at(self.names["tile_rows"], pair)
        self._columns_first(self.names["tile_rows"])
        for block in (self.names["tile_rows"], name):
            unroll_inside(s, block, across)
        if band is None:
            s.parallel(fuse_all(s, around))

    def _columns_first(self, rows: str) -> None:
        """Go through the rows inside of a column, so that what is loaded is used up at once."""
        i, j, _, _, lane = (self._loops_of(rows, axis) for axis in range(5))
        self.s.reorder(*j, *i, *lane)

    # ------------------------------------------------------------ helpers

    def _loops_of(self, block: str, axis: int) -> tuple[str, ...]:
        """The loop of its own that an iteration variable runs with; empty where it stands still."""
        used = variables(self.s.block(block).iters[axis].binding)
        others = {name for other in self.s.blocks() if other != block for name in self.s.loops(other)}
        return tuple(loop for loop in self.s.loops(block) if loop in used and loop not in others)
