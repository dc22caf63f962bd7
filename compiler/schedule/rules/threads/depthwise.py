"""The rule for a depthwise convolution and the 1 x 1 convolution that reads it, in one launch.

    blockIdx.z (chunks or groups of channels), blockIdx.y (rows: output channels), blockIdx.x (pixels)
      threads: made[channel, pixel] = f(sum over the window)                              shared
      for part of the channels, as in the rules for products
        all threads: left[row, channel] = weights                                         shared
        tile[row, pixel] += left[row, channel] * made[channel, pixel]

A block makes all channels that it adds up of its pixels at once, before the first round: there is nothing to
wait for then but the weights. Pixels of a line are neighbours; with several results below each other in a
thread, pixels are numbered so that these follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import gcd

from compiler.core.target import TargetFacts
from compiler.loops.index_map import AXES, IndexMap
from compiler.loops.ir import REGISTER, Expr, Load, Var
from compiler.loops.matrix_units import MatrixUnit
from compiler.loops.queries import extent_of, iterations, static_shape, variables
from compiler.loops.simplify import substitute
from compiler.schedule.chooser import Chooser
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Site
from compiler.schedule.rules.options import Named
from compiler.schedule.rules.threads.adding import Adder
from compiler.schedule.rules.threads.axes import Axes, Part, find_axes, number_of
from compiler.schedule.rules.threads.common import divisors
from compiler.schedule.rules.threads.fetch import bind_threads, is_plain
from compiler.schedule.rules.threads.gemm import ImplicitGemm
from compiler.schedule.rules.threads.made_tile import (
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
    LAUNCH_SECONDS,
    Best,
    Ways,
    best_of,
    choose_chunks,
    chunk_counts,
    cut_sum,
    least_of,
    product_cycles,
    ways_to_add,
)
from compiler.schedule.rules.threads.tile import GemmProblem, StagedTile
from compiler.schedule.schedule import Schedule

_LEAST_STEPS = 64
"""Of what is cut into chunks: windows count beside the products, so that shorter sums take as long."""


def cycles_saved(
    problem: GemmProblem, windows: WindowReads, matrix_units: Sequence[MatrixUnit], facts: TargetFacts
) -> float:
    """Cycles that one launch for both convolutions saves by estimate; below 0 where two are better."""
    ways = _ways(problem, windows, facts)
    together = least_of([*chain.from_iterable(ways.values())])
    results = problem.batch * problem.steps * problem.columns
    apart = alone_cycles(results, windows, facts) + product_cycles(problem, matrix_units, facts)
    return apart + LAUNCH_SECONDS * facts.hertz - together


def _ways(problem: GemmProblem, windows: WindowReads, facts: TargetFacts) -> Ways:
    """Numbers of chunks, and of results below each other in a thread, with who may add the chunks up."""

    def best(below: int) -> Callable[[GemmProblem], Best]:
        return lambda one: best_of(made_tiles(one, windows, below, facts, few=True), MadeTile)

    return {
        (chunks, below): ways_to_add(problem, chunks, facts, best(below))
        for chunks in chunk_counts(problem, facts, _LEAST_STEPS)
        for below in windows.belows()
    }


# ---------------------------------------------------------------- the rule


def depthwise_product(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a depthwise convolution that one product reads; False, and no change, for other functions."""
    sums = [site for site in schedule.program.sites.values() if site.is_store and site.reduce]
    if len(sums) != 2 or sums[0].target in schedule.program.outputs:
        return False
    first, product = sums
    windows, axes = _windows(first), find_axes(product)
    if windows is None or axes is None or _made_factor(first, product, axes) is None:
        return False
    terms = iterations(product.reduce)
    problem = GemmProblem(*axes.extents(), terms, terms, 1, plain=True)
    ways = _ways(problem, windows, facts)
    if not any(ways.values()):
        return False
    named = Named(chooser, "made")
    (chunks, below), adder = choose_chunks(named, product.name, ways)
    make = _Make(first.name, product.name, windows, chunks, below, adder)
    if chunks == 1:
        return any(schedule.attempt(make.run, facts, named, follow=follow) for follow in (True, False))
    makes = (make, replace(make, adder=None)) if adder is not None else (make,)
    return any(schedule.attempt(one.run, facts, named, follow=False) for one in makes)


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

    adder: what adds the chunks up, but for a launch.
    """

    first: str
    product: str
    windows: WindowReads
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
        _MadeGemm(self, name, block, axes, facts, chooser).run(schedule, follow=follow)
        if self.chunks > 1 and self.adder is None:
            alone(schedule, self.product, facts, chooser)


class _MadeGemm(ImplicitGemm):
    """A product one of whose factors a block makes before the first round."""

    tile: MadeTile

    def __init__(
        self, make: _Make, name: str, block: Site, axes: Axes, facts: TargetFacts, chooser: Chooser
    ) -> None:
        super().__init__(name, block, _by_lines(axes, make.below), facts, chooser, make.adder)
        self.make = make

    def run(self, schedule: Schedule, *, follow: bool) -> None:
        load = _made_factor(schedule.site(self.make.first), self.block, self.axes)
        if load is None:
            raise ScheduleError(f"block {self.name} does not read what is made element by element")
        last, problem = self.prepare(schedule, follow=follow)
        lanes = problem.lanes
        self.number_results(load)
        problem = replace(problem, plain=True, lanes=1)
        options = made_tiles(problem, self.make.windows, self.make.below, self.facts)
        if not options:
            raise ScheduleError("no tile fits the limits of a block of threads")
        chosen = self.chooser.choose(f"{self.name}.tile", options)
        self.tile = made_tile(chosen, problem.steps)
        stages = self.pad(self.tile, self.stage())
        total = self.s.site(self.make.first).target
        (self.made,) = (stage for stage in stages if _uses(self.s.site(stage).body.value, total))
        self.arrange(
            self.tile,
            [stage for stage in stages if stage != self.made],
            last,
            gcd(lanes, self.tile.thread_columns),
        )

    def number_results(self, load: Load) -> None:
        """Let the sum over the window run over channels and pixels, as the product has them."""
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
        below, first = self.make.below, self.make.first
        self.s.set_scope(self.s.site(first).target, REGISTER)
        self.s.compute_at(self.made, at)
        channel, pixel = self.s.loops(self.made)[-2:]
        along, deep = spread(self.tile, below)
        rounds = -(-self.tile.terms // deep)
        guess = at_once(self.make.windows, below, rounds)
        together = self.decide("together", guess, [n for n in divisors(rounds) if n <= 2 * guess])
        around, pixel_thread, own = self.s.split(pixel, (None, along, below))
        step, group, channel_thread = self.s.split(channel, (None, together, deep))
        self.s.reorder(around, step, channel_thread, pixel_thread, group, own)
        bind_threads(self.s, (channel_thread, pixel_thread), self.tile)
        self.sum_windows(first, group)
        for loop in (group, own):
            self.s.unroll(loop)

    def sum_windows(self, first: str, at: str) -> None:
        """The sums of a thread's results, written out; lines that windows share are read once."""
        self.s.compute_at(first, at)
        inside = self.s.loops(first)[self.s.loops(first).index(at) + 1 :]
        terms = {name for item in self.s.site(first).reduce for name in variables(item.binding)}
        own, taps = ([loop for loop in inside if (loop in terms) == inner] for inner in (False, True))
        self.s.reorder(*taps, *own)
        start = self.s.decompose_reduction(first, taps[0])
        begin = self.s.loops(start)
        for loop in (*taps, *own, *begin[begin.index(at) + 1 :]):
            self.s.unroll(loop)


def _by_lines(axes: Axes, below: int) -> Axes:
    """The same with so many lines of pixels between each other: those below each other are neighbours."""
    if below == 1:
        return axes
    *others, line, place = axes.columns
    outer = replace(line, extent=line.extent // below, index=line.index // below)
    inner = Part(line.number, below, line.index % below)
    return replace(axes, columns=(*others, outer, place, inner))
