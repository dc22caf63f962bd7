"""The rule for long sums with few results: parts of a sum are results of their own, and are added up at last.

A convolution of 512 channels over 7 x 7 places has too few tiles of results for the units of a large GPU. So
its sum is cut into chunks, which become a batch of the sum of products:

    parts[chunk, ...] = sum over the chunk                 the rule for sums of products, with a batch more
    output[...] = epilogue(sum of parts[...])              a thread for each result

What the chunks come to lies in global memory, and a second launch adds it up, or the last of the blocks that
make them (`last_block.py`); or a cluster of blocks has one each, and adds them up itself (`cluster.py`). How
many chunks, one among them, and which of the ways, are decisions by cost: that of the tiles, of the bytes,
and of the launch, the trips to the counter or the barriers of the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from compiler.core.target import TargetFacts
from compiler.loops.index_map import IndexMap
from compiler.loops.ir import CONSTANT, Func
from compiler.loops.matrix_units import MatrixUnit
from compiler.loops.queries import extent_of
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.program import Site
from compiler.schedule.rules.common import lone_dim, plainly_indexed, split_iteration
from compiler.schedule.rules.threads import launch_cost
from compiler.schedule.rules.threads.adding import Adder
from compiler.schedule.rules.threads.axes import find_axes, free_iterations
from compiler.schedule.rules.threads.cluster import most_blocks
from compiler.schedule.rules.threads.common import units
from compiler.schedule.rules.threads.gemm import implicit_gemm, is_narrow, shares_enough
from compiler.schedule.rules.threads.last_block import has_last_block
from compiler.schedule.rules.threads.matrix import matrix_gemm, usable
from compiler.schedule.rules.threads.matrix_tile import MatrixTile, matrix_options
from compiler.schedule.rules.threads.reduction import alone
from compiler.schedule.rules.threads.tile import (
    AddsUp,
    BlockTile,
    GemmProblem,
    ThreadTile,
    over_sizes,
    thread_tiles,
)
from compiler.schedule.schedule import Schedule

_LEAST_TERMS = 16
"""Terms of the axis that is cut which stay in a chunk: one round of a tile."""

_LEAST_STEPS = 256
"""Shorter sums take less time than one more launch."""

_TILE = 64
"""Rows and columns of a usual tile: where such tiles are enough for all units twice, nothing is cut."""

_USUAL = tuple(
    ThreadTile(*along, rows, columns, _LEAST_TERMS)
    for along in ((4, 8), (8, 8), (8, 16), (16, 16))
    for rows in (1, 2, 4, 8)
    for columns in (1, 2, 4, 8)
)
"""Tiles by which numbers of chunks are compared: all of them would take longer to price than this saves."""

_MOST_CHUNKS = 32
"""More parts of a result are too many for the one thread that adds them up."""

_PASSED_BYTES_A_CYCLE = 32
"""What a unit writes and reads of the memory of a cluster in a cycle: an estimate, not measured."""

_READ_BYTES_A_CYCLE = 48
"""What a unit reads of the last cache in a cycle where few others do so: an estimate, not measured."""

_DOUBT = 1.1
"""Chunks have to be so much better by estimate: it is one, and what adds them up is certain.

So has the last block where there are clusters: neither was measured, and a cluster needs no trip to memory.
"""

_BYTES = 4
"""Of a partial result."""


def split_k(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a sum of products cut into chunks, and its epilogue; False where one piece is better."""
    block = schedule.site(name)
    problem = _problem(schedule.func, block, facts) if block.is_store else None
    if problem is None:
        return False
    ways = _ways(problem, usable(block, facts)[:1], facts)
    for (chunks,), adder in chosen_chunks(chooser, name, ways):
        if chunks == 1:
            return False
        if schedule.attempt(_by_chunks, name, block, chunks, facts, chooser, adder):
            return True
    return False


Ways = Mapping[tuple[int, ...], Sequence[Option]]
"""For numbers of chunks, with what else is decided at once: who may add them up, and the cycles it takes."""


def chosen_chunks(chooser: Chooser, name: str, ways: Ways) -> Iterator[tuple[tuple[int, ...], Adder | None]]:
    """Numbers of chunks of block `name`, and what adds them up but a launch: what is tried, in this order.

    Another number may be the best one where something else adds them up, so all is chosen again then.
    """
    while any(ways.values()):
        fewest = [Option(value, min(item.cost for item in found)) for value, found in ways.items() if found]
        value = chooser.choose(f"{name}.chunks", fewest) if len(fewest) > 1 else fewest[0].value
        found = ways[value]
        (way,) = chooser.choose(f"{name}.adds_up", found) if len(found) > 1 else found[0].value
        yield value, Adder(name, value[0], AddsUp(way)) if way != AddsUp.LAUNCH else None
        ways = _without(ways, way)


def _without(ways: Ways, refused: int) -> Ways:
    """Those that are left; nothing is added up of one piece."""
    return {
        value: [item for item in found if value[0] == 1 or item.value != (refused,)]
        for value, found in ways.items()
    }


def _by_chunks(
    schedule: Schedule,
    name: str,
    block: Site,
    chunks: int,
    facts: TargetFacts,
    chooser: Chooser,
    adder: Adder | None,
) -> bool:
    parts = cut_sum(schedule, name, block, chunks)
    if not any(rule(schedule, parts, facts, chooser, adder) for rule in (matrix_gemm, implicit_gemm)):
        return False
    if adder is None:
        alone(schedule, name, facts, chooser)
    return True


def _problem(func: Func, block: Site, facts: TargetFacts) -> GemmProblem | None:
    """The sizes of a long sum of products with few results; None for any other block."""
    axes = find_axes(block)
    if axes is None or not shares_enough(axes):
        return None
    smaller = axes.smaller(free_iterations(func, block))
    lengths = [extent_of(item.extent) for item in block.reduce]
    sizes = (*axes.extents(), max(lengths), math.prod(lengths), 1)
    problem = GemmProblem(*sizes, narrow=is_narrow(block), smaller=smaller)
    return problem if len(chunk_counts(problem, facts)) > 1 else None


def chunk_counts(problem: GemmProblem, facts: TargetFacts, least_steps: int = _LEAST_STEPS) -> list[int]:
    """Numbers of chunks that a sum of products may be cut into, 1 first; none of shorter sums."""
    least = min(problem.sizes(), key=lambda one: one.batch * one.rows * one.columns)
    tiles = least.batch * -(-least.rows // _TILE) * -(-least.columns // _TILE)
    if problem.steps < least_steps or problem.inner < 2 * _LEAST_TERMS or tiles >= 2 * units(facts):
        return [1]
    most = min(_MOST_CHUNKS, problem.inner // _LEAST_TERMS)
    return [n for n in range(1, most + 1) if problem.inner % n == 0]


def one_of_chunks(problem: GemmProblem, chunks: int) -> GemmProblem:
    """What is left to choose tiles for of a sum in chunks."""
    inner, steps = problem.inner // chunks, problem.steps // chunks
    smaller = tuple((batch * chunks, rows, columns) for batch, rows, columns in problem.smaller)
    return replace(problem, batch=problem.batch * chunks, inner=inner, steps=steps, smaller=smaller)


def product_cycles(
    problem: GemmProblem, matrix_units: Sequence[MatrixUnit], facts: TargetFacts, *, measured: bool = False
) -> float:
    """Estimated cycles of a sum of products in the way that costs least; infinite where nothing fits.

    measured: of those ways alone whose costs were measured.
    """
    if len(chunk_counts(problem, facts)) > 1:
        ways = chain.from_iterable(_ways(problem, matrix_units[:1], facts).values())
        found = [item for item in ways if not measured or item.value == (AddsUp.LAUNCH,)]
    else:
        on_units = (matrix_options(unit, problem, facts) for unit in matrix_units)
        found = [*thread_tiles(problem, facts), *chain.from_iterable(on_units)]
    return least_of(found)


def _ways(problem: GemmProblem, matrix_units: Sequence[MatrixUnit], facts: TargetFacts) -> Ways:
    def best(cut: GemmProblem) -> Best:
        # as if copies brought both factors: whether they can shows when the block has its layouts
        copied = replace(cut, plain=True)
        on_units = [
            best_of(matrix_options(unit, copied, facts, few=True), partial(MatrixTile, unit))
            for unit in matrix_units
        ]
        return min([best_of(thread_tiles(cut, facts, _USUAL), ThreadTile), *on_units])

    ways: Ways = {(n,): ways_to_add(problem, n, facts, best) for n in chunk_counts(problem, facts)}
    if not any(unit.opaque for unit in matrix_units):
        return ways
    # Their sums pass through shared memory by themselves: chunks of them have a launch.
    return {
        count: [item for item in found if item.value == (AddsUp.LAUNCH,)] for count, found in ways.items()
    }


class Best(NamedTuple):
    """The cycles that the best tile takes, and its rows and columns; infinite where none fits."""

    cycles: float
    rows: int = 1
    columns: int = 1


def best_of(options: Sequence[Option], kind: Callable[..., BlockTile]) -> Best:
    """That of some options, whose values `kind` makes tiles of."""
    if not options:
        return Best(math.inf)
    least = min(options, key=lambda item: item.cost)
    made = kind(*least.value)
    return Best(least.cost, made.rows, made.columns)


def ways_to_add(
    problem: GemmProblem, chunks: int, facts: TargetFacts, best: Callable[[GemmProblem], Best]
) -> list[Option]:
    """Who may add chunks up, with the cycles until it is done; best: of what is left."""
    clusters = most_blocks(facts) if problem.batch == 1 and not problem.smaller else 1
    one = one_of_chunks(problem, chunks)
    if chunks == 1:
        return _that_fit([_way(AddsUp.LAUNCH, best(one).cycles)])
    made = best(one)
    results = over_sizes(one.batch * one.rows * one.columns for one in problem.sizes())
    found = [_way(AddsUp.LAUNCH, _DOUBT * made.cycles + parts_cycles(results, chunks, facts))]
    if chunks <= clusters:
        passed = 2 * results * chunks * _BYTES / (_PASSED_BYTES_A_CYCLE * units(facts))
        barriers = facts.hertz * launch_cost.CLUSTER_SECONDS
        cycles = _DOUBT * best(replace(one, adds_up=AddsUp.CLUSTER)).cycles + passed + barriers
        found.append(_way(AddsUp.CLUSTER, cycles))
    if has_last_block(facts) and problem.batch == 1 and not problem.smaller:
        stored = bytes_cycles(results * (chunks + 1), facts) + facts.hertz * launch_cost.LAST_BLOCK_SECONDS
        read = made.rows * made.columns * chunks * _BYTES / _READ_BYTES_A_CYCLE
        doubt = _DOUBT if clusters > 1 else 1.0
        found.append(_way(AddsUp.LAST_BLOCK, doubt * (_DOUBT * made.cycles + stored + read)))
    return _that_fit(found)


def _way(adds_up: AddsUp, cycles: float) -> Option:
    """What adds chunks up as a decision: a number, as all of them are."""
    return Option((int(adds_up),), cycles)


def _that_fit(options: Sequence[Option]) -> list[Option]:
    return [item for item in options if math.isfinite(item.cost)]


def least_of(options: Sequence[Option]) -> float:
    """The least cost; infinite without any."""
    return min((item.cost for item in options), default=math.inf)


def parts_cycles(results: float, chunks: int, facts: TargetFacts) -> float:
    """Estimated cycles of the launch that adds up so many parts of each result."""
    return bytes_cycles(results * (2 * chunks + 1), facts) + facts.hertz * launch_cost.LAUNCH_SECONDS


def bytes_cycles(elements: float, facts: TargetFacts) -> float:
    """Cycles in which all units together move so many partial results to memory or from there."""
    return facts.hertz * elements * _BYTES / (facts.bandwidth * units(facts))


def cut_sum(schedule: Schedule, name: str, block: Site, chunks: int) -> str:
    """Cut the longest axis of a sum into chunks; gives the block of parts: the chunk is its first axis."""
    count = len(block.spatial)
    number = max(range(len(block.reduce)), key=lambda n: extent_of(block.reduce[n].extent))
    axis = block.reduce[number]
    size = extent_of(axis.extent) // chunks
    for load in block.loads:
        at = lone_dim(load, axis.var)
        if load.buffer.scope == CONSTANT and at is not None and plainly_indexed(load):
            index_map = IndexMap.identity(len(load.indices)).split(at, size)
            schedule.transform_layout(load.buffer.name, index_map)
    split_iteration(schedule, name, count + number, size)
    parts, buffer = schedule.rfactor(name, schedule.loops(name)[count + number])
    iters = schedule.block(parts).iters
    wide = [number for number, item in enumerate(iters[:count]) if extent_of(item.extent) > 1]
    order = [count, *wide, *range(count + 1, len(iters))]
    schedule.transform_block_layout(parts, IndexMap.identity(len(iters)).reordered(order))
    kept = [0, *(number + 1 for number in wide)]
    schedule.transform_layout(buffer, IndexMap.identity(count + 1).reordered(kept))
    return parts
