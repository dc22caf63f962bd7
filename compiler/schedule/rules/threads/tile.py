"""The choice of a tile for a sum of products on threads: what fits a unit, and what it costs.

A block of `threads` threads computes `rows x columns` results; each thread has a tile of `thread_rows x
thread_columns` of them in registers. `steps` of the sum are staged in shared memory at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache, cached_property
from itertools import product
from typing import Protocol

from compiler.core.target import TargetFacts
from compiler.loops.ir import LastBlock
from compiler.schedule.chooser import Option
from compiler.schedule.rules.threads.common import subgroup, units

WORD = 4
"""Bytes of an element and of a bank of shared memory."""

_OTHER_REGISTERS = 40
"""Registers of a thread beside its tile and one step's operands: addresses, counters, what is fetched."""

BUSY_THREADS = 256
"""Threads of a unit that hide the latency of arithmetic, with the independent work that each of them has."""

SHARED_BYTES_A_CYCLE = 128
"""What a unit brings from shared memory to registers in a cycle, where no two lanes want the same bank."""


@dataclass(frozen=True, slots=True)
class FetchCosts:
    """What it costs to bring parts of factors into shared memory, in cycles.

    alone: of one round between two meetings of all threads whose part is fetched when it is wanted. met: of
    one whose part was there in time. latency: from a load until its value is there. element: address
    arithmetic for each element (or vector) that a thread fetches; copied: the part of it that is left where
    nothing has to be stored to shared memory. cache: how much faster the last cache is than memory. hides:
    how much waiting a cycle of work on other parts hides.
    """

    alone: float
    met: float
    latency: float
    element: float
    copied: float
    cache: float
    hides: float

    def waits(self, stages: int, round_cycles: float) -> float:
        """Cycles of a round that nothing hides: with stages, so many parts less one arrive in a latency."""
        if stages == 1:
            return self.alone
        return self.met + max(0.0, self.latency / (stages - 1) - self.hides * round_cycles)


ON_THREADS = FetchCosts(alone=1200, met=350, latency=200, element=8.5, copied=0.55, cache=1.4, hides=1)
"""Fitted to times on an H100 (benchmarks/gpu_fit.py)."""

WITHOUT_COPIES = FetchCosts(alone=260, met=75, latency=185, element=17, copied=1, cache=1.25, hides=0.2)
"""Where nothing copies to shared memory by itself: not measured, what machine code is predicted to take."""

_WIDENED = 1.9
"""Times what threads take for floats of 16 bits, which they widen (an H100, three products of 64 terms)."""

_WHOLE = 5
"""Weight of the largest size beside others that runs may have: it takes about what it takes alone."""

_DEPTHS = (4, 8, 16, 32)
"""Terms that are staged together."""

MOST_GATHERED = 64
"""The most of them where they are whole windows."""

NOT_HIDDEN = 0.45
"""Part of the second longest of what a unit does at the same time that the longest does not hide."""

CP_ASYNC = "cp.async"
"""The feature of targets with asynchronous copies from global to shared memory."""


def copies(facts: TargetFacts) -> bool:
    """Whether a target has asynchronous copies to shared memory."""
    return CP_ASYNC in facts.intrinsics


def costs_of(facts: TargetFacts) -> FetchCosts:
    """What it costs a target."""
    return ON_THREADS if copies(facts) else WITHOUT_COPIES


class AddsUp(IntEnum):
    """What adds chunks of a sum up: a second launch, the blocks of a cluster, or the last block of all."""

    LAUNCH = 0
    CLUSTER = 1
    LAST_BLOCK = 2


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """Sizes of a sum of products: independent ones, results along both axes, and terms of each result.

    lanes: elements of the widest access along the columns. inner: terms along the axis that is staged in
    parts; the other terms are `steps // inner` rounds of their own. plain: both factors are what memory
    holds, or a constant where a condition does not hold. window: where several axes number the terms that are
    staged together, so many have fixed places beside each other; else 0. narrow: the factors are floats of 16
    bits. smaller: independent ones, rows and columns of runs that have a part only. adds_up: what does, where
    the results are chunks of a sum.
    """

    batch: int
    rows: int
    columns: int
    inner: int
    steps: int
    lanes: int
    plain: bool = False
    window: int = 0
    narrow: bool = False
    smaller: tuple[tuple[int, int, int], ...] = ()
    adds_up: AddsUp = AddsUp.LAUNCH

    @property
    def gathered(self) -> bool:
        """Whether each term has a place of its own."""
        return self.window > 0

    def sizes(self) -> list[GemmProblem]:
        """The problem, and those of runs that have a part of it only."""
        parts = (replace(self, batch=b, rows=r, columns=c, smaller=()) for b, r, c in self.smaller)
        return [replace(self, smaller=()), *parts]


@dataclass(frozen=True)
class ThreadTile:
    """Threads along rows and columns, what each computes, and the steps that are staged at a time.

    stages: parts that are under way at the same time; with two, one is fetched while another is multiplied.
    copied: 1 where asynchronous copies bring them into shared memory, 0 where registers are on the way.
    other_bytes: of shared memory that a block has for something else.
    """

    along_rows: int
    along_columns: int
    thread_rows: int
    thread_columns: int
    depth: int
    stages: int = 1
    copied: int = 0
    other_bytes: int = 0

    @cached_property
    def with_parts(self) -> Callable[[int, int], ThreadTile]:
        """The same with so many stages, copied or not: made once, with all that is found out about it."""
        return cache(lambda stages, copied: replace(self, stages=stages, copied=copied))

    @cached_property
    def threads(self) -> int:
        return self.along_rows * self.along_columns

    @cached_property
    def rows(self) -> int:
        return self.along_rows * self.thread_rows

    @cached_property
    def columns(self) -> int:
        return self.along_columns * self.thread_columns

    @cached_property
    def fetched(self) -> int:
        """Rows and columns of which a part of the sum is fetched in each round."""
        return self.rows + self.columns

    @cached_property
    def registers(self) -> int:
        """Registers of 32 bits that a thread needs, about."""
        in_registers = self.stages > 1 and not self.copied
        fetched = -(-self.fetched * self.depth // self.threads) if in_registers else 0
        own = self.thread_rows * self.thread_columns + self.thread_rows + self.thread_columns
        return own + fetched + _OTHER_REGISTERS

    @cached_property
    def shared_bytes(self) -> int:
        """Shared memory of a block, with padded rows."""
        return (self.rows + self.columns + 2 * WORD) * self.depth * self.stages * WORD + self.other_bytes

    @cached_property
    def value(self) -> tuple[int, ...]:
        """The tile as a decision."""
        return (
            self.along_rows,
            self.along_columns,
            self.thread_rows,
            self.thread_columns,
            self.depth,
            self.stages,
            self.copied,
        )


class BlockTile(Protocol):
    """What a block of threads makes and needs: results along both axes, and the terms staged at a time."""

    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def registers(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...


class StagedTile(BlockTile, Protocol):
    """The same with parts under way; see `ThreadTile`."""

    @property
    def stages(self) -> int: ...
    @property
    def copied(self) -> int: ...


def thread_tiles(
    problem: GemmProblem, facts: TargetFacts, tiles: Iterable[ThreadTile] | None = None
) -> list[Option]:
    """Tiles (of `tiles`, else of all) that fit the limits of a block, with the cycles that all work takes."""
    sizes = problem.sizes()
    return [
        Option(staged.value, over_sizes(tile_cycles(staged, one, facts) for one in sizes))
        for tile in (_all_tiles(_depths(problem)) if tiles is None else tiles)
        if _fits(tile, problem, facts)
        for staged in (tile, *_overlapped(tile, problem, facts))
        if staged is tile or has_room(staged, facts, passed_bytes(staged, problem))
    ]


def over_sizes(costs: Iterable[float]) -> float:
    """The geometric mean of what something takes for each of `GemmProblem.sizes`; the whole counts most."""
    whole, *parts = costs
    if not parts:
        return whole
    total = _WHOLE * math.log(whole) + sum(map(math.log, parts))
    return math.exp(total / (_WHOLE + len(parts)))


def _overlapped(tile: ThreadTile, problem: GemmProblem, facts: TargetFacts) -> Iterator[ThreadTile]:
    for stages, copied in overlapped(tile, problem, facts):
        yield tile.with_parts(stages, copied)


def overlapped(
    tile: BlockTile, problem: GemmProblem, facts: TargetFacts, numbers: Sequence[int] = (2, 3, 4)
) -> list[tuple[int, int]]:
    """Numbers of parts under way, as many as the rounds of a tile fill; and whether they are copied.

    Of what costs the same the first is taken: copies need no registers.
    """
    rounds = k_iterations(tile, problem)
    copied = [(stages, 1) for stages in numbers] if problem.plain and copies(facts) else []
    found = (*copied, (2, 0))
    return [(stages, copied) for stages, copied in found if rounds > stages]


def _depths(problem: GemmProblem) -> tuple[int, ...]:
    """Numbers of terms that are staged together: whole windows, where any fit.

    Where a term lies in a window is known then when the kernel is made; else each element divides to find it.
    """
    if not problem.gathered:
        return _DEPTHS
    windows = range(problem.window, min(problem.inner, MOST_GATHERED) + 1, problem.window)
    return tuple(n for n in windows if problem.inner % n == 0) or _DEPTHS


@cache
def _all_tiles(depths: tuple[int, ...]) -> tuple[ThreadTile, ...]:
    along = (2, 4, 8, 16, 32), (4, 8, 16, 32, 64)
    own = (1, 2, 4, 8), (1, 2, 4, 8)
    return tuple(ThreadTile(*sizes) for sizes in product(*along, *own, depths))


def _fits(tile: ThreadTile, problem: GemmProblem, facts: TargetFacts) -> bool:
    wave, most = subgroup(facts), facts.limit("threads_per_block") or 1024
    if not wave <= tile.threads <= min(most, 512):
        return False
    if tile.thread_columns % problem.lanes:
        return False
    if tile.rows >= max(2 * problem.rows, 9) or tile.columns >= max(2 * problem.columns, 9):
        return False
    if tile.depth > max(4, problem.inner):
        return False
    return has_room(tile, facts, passed_bytes(tile, problem))


def passed_bytes(tile: BlockTile, problem: GemmProblem) -> int:
    """What a block leaves in shared memory for the others of its cluster, or one thread for all others."""
    told = LastBlock.SHARED_BYTES if problem.adds_up == AddsUp.LAST_BLOCK else 0
    return told + (tile.rows * tile.columns * WORD if problem.adds_up == AddsUp.CLUSTER else 0)


def has_room(tile: BlockTile, facts: TargetFacts, passed: int = 0) -> bool:
    """Whether registers and shared memory are enough for a block; passed: bytes beside those of the tile."""
    per_unit, registers = facts.limit("registers_per_unit"), tile.registers
    return (
        tile.shared_bytes + passed <= (facts.shared_limit or 0)
        and registers <= (facts.limit("registers_per_thread") or 255)
        and (per_unit is None or registers * tile.threads <= per_unit)
    )


def k_iterations(tile: BlockTile, problem: GemmProblem) -> int:
    """Parts of a sum that are staged one after the other."""
    return problem.steps // problem.inner * math.ceil(problem.inner / tile.depth)


def waves_of(tile: BlockTile, problem: GemmProblem, facts: TargetFacts) -> int:
    """Blocks that the busiest unit works on, one after the other."""
    grid = problem.batch * math.ceil(problem.rows / tile.rows) * math.ceil(problem.columns / tile.columns)
    return math.ceil(grid / units(facts))


def tile_cycles(
    tile: ThreadTile, problem: GemmProblem, facts: TargetFacts, costs: FetchCosts | None = None
) -> float:
    """Cycles until the last unit is done; `costs` are by default those of the target."""
    costs = costs or costs_of(facts)
    waves = waves_of(tile, problem, facts)
    resident = min(waves, occupancy(tile, facts))
    rounds = k_iterations(tile, problem)
    steps = rounds * tile.depth
    lanes = facts.fma_per_cycle * facts.lanes(32)
    busy = min(1.0, resident * tile.threads / BUSY_THREADS)
    arithmetic = tile.rows * tile.columns * steps / lanes / busy
    # in a step, each thread reads its rows and columns from shared memory: so many words, whoever shares them
    words = tile.threads * steps * (tile.thread_rows + tile.thread_columns)
    shared = words * WORD / SHARED_BYTES_A_CYCLE
    elements = tile.fetched * steps
    fetched = elements * WORD * facts.hertz / (facts.bandwidth * costs.cache)
    addresses = elements * costs.element / lanes / busy / (2 if problem.lanes > 1 else 1)
    if tile.copied:
        addresses *= costs.copied
    issued = arithmetic + addresses
    _, second, most = sorted((issued, shared, fetched))
    waiting = rounds * costs.waits(tile.stages, resident * most / rounds) / resident
    one = most + NOT_HIDDEN * second + waiting + tile.rows * tile.columns / lanes * 4
    return waves * one * (_WIDENED if problem.narrow and copies(facts) else 1.0)


def occupancy(tile: BlockTile, facts: TargetFacts) -> int:
    """Blocks that a unit works on at the same time."""
    threads = facts.limit("threads_per_unit") or 2048
    registers = facts.limit("registers_per_unit") or 65536
    shared = facts.limit("shared_bytes_most") or facts.limit("shared_bytes") or 1
    return max(
        1,
        min(
            threads // tile.threads,
            registers // (tile.registers * tile.threads),
            shared // max(1, tile.shared_bytes),
        ),
    )
