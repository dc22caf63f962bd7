"""The rule for a product one of whose factors a block makes itself, in one launch.

    blockIdx.z (chunks or groups of channels), blockIdx.y (rows: output channels), blockIdx.x (pixels)
      threads: made[channel, pixel] = f(sum over the window), or f(x[channel, pixel], ...)     shared
      for part of the channels, as in the rules for products
        all threads: left[row, channel] = weights                                              shared
        tile[row, pixel] += left[row, channel] * made[channel, pixel]

The factor is a depthwise convolution, or a chain of operators that go element by element. A block makes all
channels that it adds up of its pixels at once, before the first round: there is nothing to wait for then but
the weights. Pixels of a line are neighbours; with several results of windows below each other in a thread,
pixels are numbered so that these follow each other.

Where no copies bring the weights, or tuning says so, a chain is computed where the rules for products stage
their factors, part by part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from compiler.core.capabilities import LOAD_OR_ZERO
from compiler.core.target import TargetFacts
from compiler.core.types import F32
from compiler.loops.index_map import AXES, IndexMap
from compiler.loops.ir import REGISTER, Expr, Load, Select, Var
from compiler.loops.matrix_units import MatrixUnit
from compiler.loops.queries import extent_of, iterations, static_shape, variables
from compiler.loops.simplify import substitute
from compiler.schedule.chooser import Chooser
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Site
from compiler.schedule.rules.common import operations
from compiler.schedule.rules.options import Named, decide
from compiler.schedule.rules.threads.adding import Adder
from compiler.schedule.rules.threads.axes import Axes, Part, find_axes, number_of
from compiler.schedule.rules.threads.common import divisors, units
from compiler.schedule.rules.threads.fetch import bind_threads, is_plain
from compiler.schedule.rules.threads.gemm import ImplicitGemm
from compiler.schedule.rules.threads.launch_cost import LAUNCH_SECONDS
from compiler.schedule.rules.threads.made_tile import (
    ChainReads,
    FactorReads,
    MadeTile,
    WindowReads,
    alone_cycles,
    at_once,
    made_tile,
    made_tiles,
    spread,
)
from compiler.schedule.rules.threads.reduction import MOST_TERMS, alone
from compiler.schedule.rules.threads.split_k import (
    Best,
    Ways,
    best_of,
    chosen_chunks,
    chunk_counts,
    cut_sum,
    least_of,
    product_cycles,
    ways_to_add,
)
from compiler.schedule.rules.threads.tile import GemmProblem, StagedTile, copies
from compiler.schedule.schedule import Schedule

_LEAST_STEPS = 64
"""Of what is cut into chunks: windows count beside the products, so that shorter sums take as long."""


_TAPS = 9
"""Of a window whose elements are computed as they are read."""

_ROWS = 64
"""Of a usual tile: each one of them computes the columns' factor again."""

OPERAND = 3
"""Operations for an operand of a chain that is the same for several pixels: its place, and the load."""


def cycles_saved(
    problem: GemmProblem, reads: FactorReads, matrix_units: Sequence[MatrixUnit], facts: TargetFacts
) -> float:
    """Cycles that one launch for a product and its factor saves by estimate; below 0 where two are better."""
    without_branches = copies(facts) or (isinstance(reads, WindowReads) and LOAD_OR_ZERO in facts.intrinsics)
    ways = [*chain.from_iterable(_ways(problem, reads, facts).values())] if without_branches else []
    one = least_of(ways)
    if not ways and isinstance(reads, ChainReads):
        one = _by_rounds(problem, reads, matrix_units, facts)
    results = problem.batch * problem.steps * problem.columns
    apart = alone_cycles(results, reads, facts) + product_cycles(problem, matrix_units, facts)
    return apart + LAUNCH_SECONDS * facts.hertz - one


def windows_saved(elements: int, rows: int, reads: ChainReads, facts: TargetFacts) -> float:
    """Cycles that it saves by estimate to compute a chain wherever windows of 3 x 3 read it."""
    again = _TAPS * math.ceil(rows / _ROWS)
    computed = again * elements * reads.operations() / (facts.fma_per_cycle * facts.lanes(32) * units(facts))
    return alone_cycles(elements, reads, facts) + LAUNCH_SECONDS * facts.hertz - computed


def _ways(problem: GemmProblem, reads: FactorReads, facts: TargetFacts) -> Ways:
    """Numbers of chunks, and of results below each other in a thread, with who may add the chunks up."""

    def best(below: int) -> Callable[[GemmProblem], Best]:
        return lambda one: best_of(made_tiles(one, reads, below, facts, few=True), MadeTile)

    return {
        (chunks, below): ways_to_add(problem, chunks, facts, best(below))
        for chunks in chunk_counts(problem, facts, _LEAST_STEPS)
        for below in reads.belows()
    }


def _by_rounds(
    problem: GemmProblem, reads: ChainReads, matrix_units: Sequence[MatrixUnit], facts: TargetFacts
) -> float:
    """Cycles of the product where each part of the factor is computed as it is staged."""
    made = problem.batch * problem.steps * problem.columns * math.ceil(problem.rows / _ROWS)
    computed = made * reads.operations() / (facts.fma_per_cycle * facts.lanes(32) * units(facts))
    return product_cycles(replace(problem, plain=False), matrix_units, facts) + computed


# ---------------------------------------------------------------- the rule


def made_product(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a product that makes a factor itself; False, and no change, for other functions.

    Also False where a chain is to be made by rounds, which the rules for products do.
    """
    sums = [site for site in schedule.program.sites.values() if site.is_store and site.reduce]
    if not 1 <= len(sums) <= 2 or (len(sums) == 2 and sums[0].target in schedule.program.outputs):
        return False
    product = sums[-1]
    axes = find_axes(product)
    reads = None if axes is None else _reads(sums[:-1], product, axes)
    if axes is None or reads is None:
        return False
    terms = iterations(product.reduce)
    problem = GemmProblem(*axes.extents(), terms, terms, 1, plain=True)
    ways = _ways(problem, reads, facts)
    named = Named(chooser, "made")
    if not any(ways.values()) or not _is_at_once(product, reads, facts, named):
        return False
    first = sums[0].name if len(sums) > 1 else ""
    for (chunks, below), adder in chosen_chunks(named, product.name, ways):
        make = _Make(first, product.name, reads, chunks, below, adder)
        if chunks == 1:
            return any(schedule.attempt(make.run, facts, named, follow=follow) for follow in (True, False))
        if schedule.attempt(make.run, facts, named, follow=False):
            return True
    return False


def _reads(firsts: Sequence[Site], product: Site, axes: Axes) -> FactorReads | None:
    """What the factor with the columns is made of; None where it is not made so."""
    if not firsts:
        return _chain(product, axes)
    (first,) = firsts
    return None if _made_factor(first, product, axes) is None else _windows(first)


def _is_at_once(product: Site, reads: FactorReads, facts: TargetFacts, chooser: Chooser) -> bool:
    """Whether a block makes the factor before the first round: windows always, chains beside copies."""
    if not isinstance(reads, ChainReads):
        return True
    return copies(facts) and bool(decide(chooser, f"{product.name}.at_once", 1, (0,)))


def _chain(product: Site, axes: Axes) -> ChainReads | None:
    """What a factor of f32 computed element by element reads, without conditions; None for other factors."""
    found = factors(product.block)
    assert found is not None
    known, made = found[axes.left], found[1 - axes.left]
    parts = [*made.walk()]
    summed = [item for item in product.reduce if extent_of(item.extent) > 1]
    if len(summed) != 1 or made.dtype != F32 or not is_plain(known):
        return None
    if is_plain(made) or any(isinstance(item, Select) for item in parts):
        return None
    columns = {product.block.iters[part.number].var.name for part in axes.columns}
    loads = {item for item in parts if isinstance(item, Load)}
    images = [item for item in loads if columns & variables(item)]
    return ChainReads(len(images), operations(made) + OPERAND * (len(loads) - len(images)))


def _windows(first: Site) -> WindowReads | None:
    """What the windows of a sum read, of one image; None for other sums."""
    pixel = first.spatial[-1].var.name if len(first.spatial) > 2 else ""
    images = [load for load in first.loads if pixel in load.uses]
    if len(images) != 1 or iterations(first.reduce) > MOST_TERMS:
        return None
    (image,) = images
    places = {0}
    for item in first.reduce:
        step = first.stride(image, item.var.name)
        if step is None:
            return None
        places = {place + step * n for place in places for n in range(extent_of(item.extent))}
    line = first.spatial[-2] if len(first.spatial) > 3 else None
    down = first.stride(image, line.var.name) if line else None
    return WindowReads(tuple(sorted(places)), down or 0, extent_of(line.extent) if line and down else 1)


def _made_factor(first: Site, product: Site, axes: Axes) -> Load | None:
    """Where the factor with the columns of a product reads the sum, once; the other one is in memory."""
    found = factors(product.block)
    assert found is not None
    known, made = found[axes.left], found[1 - axes.left]
    read = {item for item in made.walk() if isinstance(item, Load) and item.buffer.name == first.target}
    summed = [item for item in product.reduce if extent_of(item.extent) > 1]
    if len(read) != 1 or len(summed) != 1 or not is_plain(known) or _uses(known, first.target):
        return None
    (load,) = read
    own = {item.var for item in product.spatial}
    sizes = zip(load.indices, static_shape(load.buffer), strict=True)
    terms = [index for index, extent in sizes if extent > 1 and index not in own]
    return load if len(terms) == 1 and len(first.spatial) == len(load.indices) else None


def _uses(value: Expr, buffer: str) -> bool:
    return any(isinstance(item, Load) and item.buffer.name == buffer for item in value.walk())


@dataclass(frozen=True, slots=True)
class _Make:
    """How one launch is to make both: chunks of the sum, and results of the window below each other.

    first: the block of the windows, if any. adder: what adds the chunks up, but for a
    launch.
    """

    first: str
    product: str
    reads: FactorReads
    chunks: int
    below: int
    adder: Adder | None

    def run(self, schedule: Schedule, facts: TargetFacts, chooser: Chooser, *, follow: bool) -> None:
        """The product with what it is made of; then what adds chunks up."""
        name = self.product
        if self.chunks > 1:
            name = cut_sum(schedule, name, schedule.site(name), self.chunks)
        block = schedule.site(name)
        axes = find_axes(block)
        if axes is None:
            raise ScheduleError(f"block {name} is no sum of products in chunks")
        kind = _WindowsGemm if self.first else _ChainGemm
        kind(self, name, block, axes, facts, chooser).run(schedule, follow=follow)
        if self.chunks > 1 and self.adder is None:
            alone(schedule, self.product, facts, chooser)


class _MadeGemm(ImplicitGemm):
    """A product one of whose factors a block makes before the first round."""

    tile: MadeTile

    def __init__(
        self, make: _Make, name: str, block: Site, axes: Axes, facts: TargetFacts, chooser: Chooser
    ) -> None:
        super().__init__(name, block, _by_lines(axes, make.below), facts, chooser, make.adder)
        self.make, self.own_pixels = make, make.below

    def run(self, schedule: Schedule, *, follow: bool) -> None:
        last, problem = self.prepare(schedule, follow=follow)
        lanes = problem.lanes
        self.number_results()
        problem = replace(problem, plain=True, lanes=1)
        options = made_tiles(problem, self.make.reads, self.own_pixels, self.facts)
        if not options:
            raise ScheduleError("no tile fits the limits of a block of threads")
        chosen = self.chooser.choose(f"{self.name}.tile", options)
        self.tile = made_tile(chosen, problem.steps)
        weights, self.made = self.pad(self.tile, self.stage())
        self.widen()
        self.arrange(self.tile, [weights], last, math.gcd(lanes, self.tile.thread_columns))

    def number_results(self) -> None:
        """Let what is made run over channels and pixels, as the product has them."""

    def widen(self) -> None:
        """Find out how many neighbours a thread makes at a time."""

    # -- loops

    def bind_grid(self, grid: Sequence[str]) -> None:
        """What the block makes comes first in it."""
        self.place_made(grid[-1])
        super().bind_grid(grid)

    def overlap(self, rounds: str, tile: StagedTile) -> None:
        if tile.copied:
            self.s.software_pipeline(rounds, (0, tile.stages - 1), guarded=True)
        else:
            self.s.software_pipeline(rounds, (0, 0, 1), (0, 2, 1), guarded=True)

    def place_made(self, at: str) -> None:
        """Give results to threads: neighbours in a line to neighbours, and channels side by side."""
        stored = self.stored_apart()
        self.s.compute_at(stored, at)
        channel, pixel = self.s.loops(stored)[-2:]
        along, deep = spread(self.tile, self.own_pixels)
        rounds = -(-self.tile.terms // deep)
        guess = at_once(self.make.reads, self.own_pixels, rounds)
        groups = self.decide("together", guess, [n for n in divisors(rounds) if n <= 2 * guess])
        around, pixel = self.s.split(pixel, (None, along * self.own_pixels))
        step, channel = self.s.split(channel, (None, groups * deep))
        self.s.reorder(around, step, channel, pixel)
        group, own = self.give_results(channel, pixel)
        self.write_out(step, group, own)

    def give_results(self, channel: str, pixel: str) -> tuple[str, str]:
        """A thread for each of these channels and pixels; gives the loops over what one has of them."""
        along, deep = spread(self.tile, self.own_pixels)
        group, channel_thread = self.s.split(channel, (None, deep))
        pixel_thread, own = self.s.split(pixel, (along, self.own_pixels))
        self.s.reorder(channel_thread, pixel_thread, group, own)
        bind_threads(self.s, (channel_thread, pixel_thread), self.tile)
        return group, own

    def stored_apart(self) -> str:
        """The block that brings what is made to shared memory."""
        return self.made

    def write_out(self, step: str, group: str, own: str) -> None:
        """Let all that a thread makes in a step be under way together."""
        raise NotImplementedError


class _WindowsGemm(_MadeGemm):
    """The factor is a sum over windows of an image, and what follows it."""

    def number_results(self) -> None:
        """Let the sum over the window run over channels and pixels, as the product has them."""
        load = _made_factor(self.s.site(self.make.first), self.block, self.axes)
        if load is None:
            raise ScheduleError(f"block {self.name} does not read what is made element by element")
        block = self.s.site(self.make.first)
        rank, spatial = len(block.block.iters), len(block.spatial)
        dims = {index: AXES[dim] for dim, index in enumerate(load.indices) if isinstance(index, Var)}
        columns = {part.number: self.block.block.iters[part.number].var for part in self.axes.columns}
        pixels = {AXES[number].name: dims[var] for number, var in columns.items()}
        sizes = static_shape(load.buffer)
        channels = [AXES[d] for d in range(spatial) if sizes[d] > 1 and AXES[d] not in pixels.values()]
        outputs = [*channels, substitute(number_of(self.axes.columns), pixels)]
        self.s.transform_block_layout(self.make.first, IndexMap.of(rank, [*outputs, *AXES[spatial:rank]]))
        self.s.transform_layout(block.target, IndexMap.of(spatial, outputs))

    def write_out(self, step: str, group: str, own: str) -> None:  # noqa: ARG002
        """The sums of a thread's results, written out; lines that windows share are read once."""
        first = self.make.first
        self.s.set_scope(self.s.site(first).target, REGISTER)
        self.s.compute_at(first, group)
        inside = self.s.loops(first)[self.s.loops(first).index(group) + 1 :]
        terms = {name for item in self.s.site(first).reduce for name in variables(item.binding)}
        own_loops, taps = ([loop for loop in inside if (loop in terms) == inner] for inner in (False, True))
        self.s.reorder(*taps, *own_loops)
        start = self.s.decompose_reduction(first, taps[0])
        begin = self.s.loops(start)
        for loop in (*taps, *own_loops, *begin[begin.index(group) + 1 :], group, own):
            self.s.unroll(loop)


class _ChainGemm(_MadeGemm):
    """The factor is made element by element."""

    def repeated(self) -> tuple[int, ...]:
        """Columns: a condition would make branches of loads, each of which waits."""
        return (self.batches + 1,)

    def widen(self) -> None:
        self.own_pixels = math.gcd(self.wide(self.s.site(self.made)), self.tile.columns)

    def stored_apart(self) -> str:
        return self.s.cache_write(self.made, self.s.site(self.made).target, REGISTER)

    def write_out(self, step: str, group: str, own: str) -> None:
        """A thread reads all that it wants before it stores any: a store may be to where a load is from."""
        self.s.compute_at(self.made, step)
        channel, pixel = self.s.loops(self.made)[-2:]
        for outer, inner in (self.give_results(channel, pixel), (group, own)):
            self.s.unroll(outer)
            (self.s.vectorize if self.own_pixels > 1 else self.s.unroll)(inner)


def _by_lines(axes: Axes, below: int) -> Axes:
    """The same with so many lines of pixels between each other: those below each other are neighbours."""
    if below == 1:
        return axes
    *others, line, place = axes.columns
    outer = replace(line, extent=line.extent // below, index=line.index // below)
    inner = Part(line.number, below, line.index % below)
    return replace(axes, columns=(*others, outer, place, inner))
