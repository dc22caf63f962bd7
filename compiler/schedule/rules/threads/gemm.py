"""The rule for sums of products on threads: convolutions, matrix products, batches and groups of them.

The iterations of the block are fused by what they do: batches (both factors use them), rows (the factor
that the columns do not use), columns (they lie side by side in the result), and the terms of the sum. Both
factors become matrices over these axes, staged in shared memory part by part; whatever it takes to find an
element of them (windows, padding, a transposed matrix) is done once, by the thread that fetches it.

    blockIdx.z (batches), blockIdx.y (rows), blockIdx.x (columns)
      threadIdx.x: tile = 0                                                  in registers
      for taps..., for part of the sum
        threadIdx.x: left[step, row] = ...; threadIdx.x: right[step, column] = ...      shared
        threadIdx.x: for step: tile[row, column] += left[step, row] * right[step, column]
      threadIdx.x: output[...] = epilogue(tile)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compiler.core.target import TargetFacts
from compiler.loops.annotations import ASYNC
from compiler.loops.index_map import AXES, IndexMap
from compiler.loops.ir import (
    CONSTANT,
    REGISTER,
    SHARED,
    Buffer,
    Expr,
    Iter,
    Load,
    Var,
)
from compiler.loops.queries import extent_of, variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Site
from compiler.schedule.rules.common import plainly_indexed
from compiler.schedule.rules.options import decide
from compiler.schedule.rules.threads.adding import Adder
from compiler.schedule.rules.threads.axes import (
    Axes,
    Part,
    extent_of_parts,
    find_axes,
    free_iterations,
    number_of,
    read_by,
)
from compiler.schedule.rules.threads.common import THREAD, divisors
from compiler.schedule.rules.threads.elementwise import aligned_run, asks, widest
from compiler.schedule.rules.threads.fetch import (
    LEAST_BITS,
    by_k_iterations,
    fetch_coalesced,
    fetch_transposed,
    is_plain,
)
from compiler.schedule.rules.threads.rows import take_result
from compiler.schedule.rules.threads.tile import (
    MOST_GATHERED,
    AddsUp,
    BlockTile,
    GemmProblem,
    StagedTile,
    ThreadTile,
    thread_tiles,
)
from compiler.schedule.schedule import Schedule

_LEAST = 4
"""Fewer rows or columns than this share too little."""


_DEEP = 8
"""A sum axis of so many terms is staged by itself; the others (taps of a window) run outside of it."""

_GROUPS = (2, 4, 8)
"""Columns of blocks that go together, for search."""

_WRITTEN_OUT = 256
"""Products of a thread between two jumps."""

_RATHER_MORE = 2.5
"""Times as many where else the steps of a window, an odd number, would be few: a jump waits for operands."""


# ---------------------------------------------------------------- the rule


def implicit_gemm(
    schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser, adder: Adder | None = None
) -> bool:
    """Schedule a sum of products and its epilogue; False when the structure does not fit.

    adder: what adds up in the same launch what the batches are parts of.
    """
    block = schedule.site(name)
    axes = find_axes(block) if block.is_store else None
    if axes is None or not shares_enough(axes):
        return False
    gemm = ImplicitGemm(name, block, axes, facts, chooser, adder)
    return any(schedule.attempt(gemm.run, follow=follow) for follow in (True, False))


def shares_enough(axes: Axes) -> bool:
    """Whether rows and columns are enough for tiles to pay."""
    return min(extent_of_parts(axes.rows), extent_of_parts(axes.columns)) >= _LEAST


class ImplicitGemm:
    """The steps of the rule, in the order in which they are applied.

    `batches` is the number of axes in front of rows and columns: 1 or 0. `adder` adds up
    in the same launch what batches come to, if they are chunks of a sum.
    """

    def __init__(
        self,
        name: str,
        block: Site,
        axes: Axes,
        facts: TargetFacts,
        chooser: Chooser,
        adder: Adder | None = None,
    ) -> None:
        self.name, self.block, self.axes, self.adder = name, block, axes, adder
        self.facts, self.chooser = facts, chooser
        self.batches = 1 if axes.batch else 0
        reduce = [
            Part(len(block.spatial) + n, extent_of(i.extent), AXES[len(block.spatial) + n])
            for n, i in enumerate(block.reduce)
        ]
        deep = max(reduce, key=lambda part: part.extent)
        apart = deep.extent >= _DEEP
        self.outer = [part for part in reduce if part != deep and part.extent > 1] if apart else []
        self.inner = [deep] if apart else [part for part in reduce if part.extent > 1]

    def run(self, schedule: Schedule, *, follow: bool) -> None:
        last, problem = self.prepare(schedule, follow=follow)
        plain = all(is_plain(factor) for factor in factors(self.s.block(self.name)) or ())
        problem = replace(problem, plain=plain)
        options = self.thread_tiles(problem)
        if not options:
            raise ScheduleError("no tile fits the limits of a block of threads")
        tile = ThreadTile(*self.chooser.choose(f"{self.name}.tile", options))
        self.arrange(tile, self.pad(tile, self.stage()), last, problem.lanes)

    @property
    def gathered(self) -> bool:
        """Whether several axes number the terms of a part, so that each term has a place of its own."""
        return len(self.inner) > 1

    def thread_tiles(self, problem: GemmProblem) -> list[Option]:
        """The tiles of threads to choose from."""
        return thread_tiles(problem, self.facts)

    def prepare(self, schedule: Schedule, *, follow: bool) -> tuple[str, GemmProblem]:
        """Lay out result, constants and axes for tiles; gives the last block, and what tiles depend on."""
        self.s = schedule
        free = free_iterations(self.s.func, self.block)
        last = take_result(self.s, self.name, follow=follow)
        self.total = self.s.site(self.name).target
        self.repack()
        self.iterate(last)
        return last, GemmProblem(
            *self.axes.extents(),
            extent_of_parts(self.inner),
            extent_of_parts((*self.inner, *self.outer)),
            min(4, self.wide(self.s.site(last))),
            window=_window(self.inner),
            narrow=is_narrow(self.block),
            smaller=self.axes.smaller(free),
            adds_up=self.adder.way if self.adder is not None else AddsUp.LAUNCH,
        )

    # -- axes

    def repack(self) -> None:
        """Constants lie as they are fetched."""
        found = factors(self.block.block)
        assert found is not None
        for side, factor in enumerate(found):
            own = self.axes.rows if side == self.axes.left else self.axes.columns
            if not isinstance(factor, Load) or factor.buffer.scope != CONSTANT or not plainly_indexed(factor):
                continue
            numbers = {item.var.name: n for n, item in enumerate(self.block.block.iters)}
            used = [(d, index) for d, index in enumerate(factor.indices) if isinstance(index, Var)]
            dims: dict[str, Expr] = {AXES[numbers[index.name]].name: AXES[d] for d, index in used}
            parts = [part.index for part in self.stored(own) if AXES[part.number].name in dims]
            if parts:
                outputs = [substitute(part, dims) for part in parts]
                self.s.transform_layout(factor.buffer.name, IndexMap.of(len(factor.indices), outputs))

    def stored(self, own: Sequence[Part]) -> tuple[Part, ...]:
        """The order of a factor in memory: batch, terms of the sum, then rows or columns side by side."""
        return (*self.axes.batch, *self.outer, *self.inner, *own)

    def iterate(self, last: str) -> None:
        """Let the block, its result and the epilogue run over batches, rows and columns."""
        spatial, axes = len(self.block.spatial), self.axes
        count = len(self.block.block.iters)
        roles = [
            *([number_of(axes.batch)] if axes.batch else []),
            number_of(axes.rows),
            number_of(axes.columns),
        ]
        sums = [*(part.index for part in self.outer), number_of(self.inner)]
        ends = self.epilogue_map(last, roles)
        self.s.transform_block_layout(self.name, IndexMap.of(count, [*roles, *sums]))
        self.s.transform_layout(self.total, IndexMap.of(spatial, roles))
        self.s.transform_block_layout(last, ends)
        if self.adder is not None:
            self.adder.lay_out_parts(self.s, self.s.site(last).target, roles)

    def epilogue_map(self, last: str, roles: Sequence[Expr]) -> IndexMap:
        """The same roles in terms of the iterations of the block that reads the result."""
        reader = self.s.site(last)
        if reader.reduce:
            raise ScheduleError(f"block {last} does not read the result element by element")
        return IndexMap.of(len(reader.spatial), read_by(reader, self.total, roles))

    def wide(self, block: Site) -> int:
        """Neighbours along the last axis of a block that are an aligned vector wherever it uses them."""
        item, known = block.spatial[-1], Simplifier(block.bounds)
        accesses = (block.store, *block.loads)
        others = [access for access in accesses if access.buffer.name != self.total]
        lanes = 1 if asks(block, item.var.name) else widest(accesses, self.facts)
        while lanes > 1 and not (
            extent_of(item.extent) % lanes == 0
            and all(aligned_run(access, item.var, lanes, known) for access in others)
        ):
            lanes //= 2
        return lanes

    # -- operands

    def stage(self, *, terms_last: bool = False, dtype: str | None = None) -> list[str]:
        """Blocks that put the factors, left first, into shared memory: [batch, terms, rows or columns].

        terms_last: the innermost terms behind rows or columns. dtype: what is staged, as in cache_operand.
        """
        iters = self.s.block(self.name).iters
        found = factors(self.s.block(self.name))
        assert found is not None
        first = self.batches
        *taps, terms = range(first + 2, len(iters))
        made = []
        for side, own in ((self.axes.left, first), (1 - self.axes.left, first + 1)):
            wanted = (*range(first), *taps, *((own, terms) if terms_last else (terms, own)))
            axes = tuple(n for n in wanted if iters[n].var.name in variables(found[side]))
            made.append(self.s.cache_operand(self.name, side, axes, SHARED, dtype)[0])
        return made

    def pad(self, tile: BlockTile, stages: list[str]) -> list[str]:
        """Round the axes up to whole tiles, with zeros behind the end of both factors."""
        iters = self.s.block(self.name).iters
        between = [1] * (len(iters) - self.batches - 3)
        multiples = [*[1] * self.batches, tile.rows, tile.columns, *between, tile.depth]
        if all(extent_of(i.extent) % n == 0 for i, n in zip(iters, multiples, strict=True)):
            return stages
        made = list(self.s.pad_einsum(self.name, tuple(multiples), self.repeated()))
        return self.inlined(made, stages)

    def repeated(self) -> tuple[int, ...]:
        """Axes behind whose end factors repeat their last element: where that is cheaper than zeros."""
        return ()

    def inlined(self, made: list[str], stages: list[str]) -> list[str]:
        """Factors are padded where they are computed; what follows reads the padded result."""
        result = []
        for stage in stages:
            padded = [name for name in made if stage in {a.buffer.name for a in self.s.site(name).loads}]
            if padded:
                self.s.compute_inline(stage)
                self.s.set_scope(self.s.site(padded[0]).target, SHARED)
            result.append(padded[0] if padded else stage)
        back = [name for name in made if self.s.site(name).target == self.total]
        if back:
            self.s.compute_inline(back[0])
            self.total = self.s.site(self.name).target
            self.s.set_scope(self.total, REGISTER)
        return result

    # -- loops

    def arrange(self, tile: ThreadTile, stages: Sequence[str], last: str, lanes: int) -> None:
        own = self.own_loops(self.name)
        *batch, row, column = own[: self.batches + 2]
        *taps, terms = own[self.batches + 2 :]
        row_block, row_thread, row_own = self.s.split(row, (None, tile.along_rows, tile.thread_rows))
        col_block, col_thread, col_own = self.s.split(column, (None, tile.along_columns, tile.thread_columns))
        part, step = self.s.split(terms, (None, tile.depth))
        grid = self.grid(batch, row_block, col_block)
        rounds = [*taps, part]
        self.s.reorder(*grid, *rounds, row_thread, col_thread, step, row_own, col_own)
        follow = self.follow_tile(last, grid[-1])
        threads = [(THREAD, tile.threads)]
        sums = self.place_sums(col_block, threads)
        self.give_threads((row_thread, col_thread), row_own, col_own, lanes)
        if tile.stages > 1 and len(rounds) > 1:
            rounds = [self.s.fuse(*rounds)]
        self.s.decompose_reduction(self.name, rounds[0])
        written = self.decide("unroll", _steps_written_out(tile), _steps_that_fit(tile))
        self.s.unroll(self.s.split(step, (None, written))[1])
        self.epilogue(tile, follow, lanes)
        self.fetch_all(stages, rounds[-1], tile)
        self.bind_grid(grid)
        if self.adder is not None:
            self.adder.share(self.s, sums, threads)
        if tile.stages > 1:  # last: it parts what fills a buffer from what reads it
            self.overlap(rounds[-1], tile)

    def place_sums(self, tile: str, threads: Sequence[tuple[str, int]]) -> tuple[str, ...]:
        """Place what adds chunks up behind the products of a tile; the loops that it is to share."""
        if self.adder is None:
            return ()
        block = self.s.site(self.adder.name)
        ends = [block, *(self.s.site(one.name) for one in self.s.program.readers(block.target))]
        return self.adder.place(self.s, tile, threads, min(4, *map(self.wide, ends)))

    def own_loops(self, block: str) -> tuple[str, ...]:
        """The loops of a block that are there for this product: all of them."""
        return tuple(self.s.loops(block))

    def follow_tile(self, last: str, tile: str) -> Sequence[str]:
        """Put the epilogue behind the products of a tile; gives its loops, rows and columns the last ones."""
        return self.s.reverse_compute_at(last, tile)

    def grid(self, batch: Sequence[str], row: str, column: str) -> list[str]:
        """The loops over blocks, outermost first: those of chunks that are added up are the innermost."""
        return [*batch, row, column] if self.adder is None else [row, column, *batch]

    def epilogue(self, tile: ThreadTile, follow: Sequence[str], lanes: int) -> None:
        row, column = follow[-2:]
        row_thread, row_own = self.s.split(row, (tile.along_rows, tile.thread_rows))
        col_thread, col_own = self.s.split(column, (tile.along_columns, tile.thread_columns))
        self.s.reorder(row_thread, col_thread, row_own, col_own)
        self.give_threads((row_thread, col_thread), row_own, col_own, lanes)

    def give_threads(self, threads: Sequence[str], rows: str, columns: str, lanes: int) -> None:
        """A thread for each of its tiles, whose elements are written out or vectors."""
        self.s.bind(self.s.fuse(*threads), THREAD)
        self.s.unroll(rows)
        (self.s.vectorize if lanes > 1 else self.s.unroll)(columns)

    def bind_grid(self, grid: Sequence[str]) -> None:
        """Give the outermost loops to the axes of the grid, the innermost of them to the first.

        Blocks that follow each other may also share columns, or be of a group of columns: fewer of what they
        read has to stay in the cache.
        """
        if self.adder is not None:
            *grid, chunk = grid
            self.s.bind(chunk, self.adder.tag)
        *batch, row, column = grid
        rows, columns = (extent_of(self.s.loop(loop).extent) for loop in (row, column))
        wide = self.facts.limit("grid_y") or 0
        along = [1] if rows > 1 and 1 < columns <= wide else []
        groups = [n for n in _GROUPS if columns % n == 0 and columns > n and rows > 1] if along else []
        order = self.decide("swizzle", 0, (*along, *groups))
        if order == 1:
            row, column = column, row
        if order > 1:
            group, inside = self.s.split(column, (None, order))
            self.s.reorder(group, row, inside)
            row, column = group, self.s.fuse(row, inside)
        for axis, loop in zip("xyz", reversed([*batch, row, column]), strict=False):
            self.s.bind(loop, f"blockIdx.{axis}")

    def decide(self, what: str, guess: int, others: Iterable[int]) -> int:
        return decide(self.chooser, f"{self.name}.{what}", guess, others)

    def fetch_all(self, stages: Sequence[str], rounds: str, tile: StagedTile) -> None:
        """Fetch both factors in every round; with two stages, while the part before is multiplied.

        Each thread keeps what it fetches in registers meanwhile: it reaches shared memory after the products.
        """
        if tile.stages == 1 or tile.copied:
            for stage in stages:
                self.s.compute_at(stage, rounds)
                if tile.copied:
                    self.count_rounds(stage, tile)
                self.fetch([stage], tile)
                if tile.copied:
                    self.s.annotate(stage, ASYNC, tile.stages - 2)
            return
        stored = [self.s.cache_write(stage, self.stored_by(stage).name, REGISTER) for stage in stages]
        for names in (stored, stages):
            for name in names:
                self.s.compute_at(name, rounds)
        for stage, store in zip(stages, stored, strict=True):
            self.count_rounds(store, tile)
            self.fetch([stage, store], tile)

    def overlap(self, rounds: str, tile: StagedTile) -> None:
        """Run ahead with fetching, by as many rounds as there are stages more than one."""
        if tile.copied:
            self.s.software_pipeline(rounds, (0, 0, tile.stages - 1), guarded=True)
        else:
            self.s.software_pipeline(rounds, (0, 0, 0, 0, 1), (0, 2, 4, 1, 3), guarded=True)

    def count_rounds(self, stage: str, tile: StagedTile) -> None:
        """A staged factor by rounds, where several of them are under way."""
        by_k_iterations(self.s, self.stored_by(stage), self.batches, tile)

    def stored_by(self, stage: str) -> Buffer:
        return self.s.site(stage).store.buffer

    def fetch(self, names: Sequence[str], tile: StagedTile) -> None:
        """All threads fetch a part of a factor.

        names: the block that fetches, and those that bring what each thread fetched into shared memory.
        """
        block = self.s.site(names[0])
        if not runs_along(block, block.spatial[-2]) or runs_along(block, block.spatial[-1]):
            wide = min(4, self.wide(block))
            sizes = [lanes for lanes in (1, 2, 4) if wide % lanes == 0]
            fetch_coalesced(self.s, names, tile, decide(self.chooser, f"{names[0]}.width", wide, sizes))
            return
        shared = self.stored_by(names[-1])
        loads = [load for load in self.s.site(self.name).loads if load.buffer == shared]
        column = self.s.block(self.name).iters[self.batches + 1].var
        by_vectors = any(load.indices[-1] == column for load in loads)
        fetch_transposed(self.s, names, tile, shared, by_vectors=by_vectors)


def _steps_written_out(tile: ThreadTile) -> int:
    """Steps whose products are written out one after the other: as many as fit the instruction cache.

    Where the next part waits in registers, its stores follow under a condition, and the products stay a loop:
    LLVM moves products that stand alone behind those stores, and keeps all of their factors until there.
    """
    most = tile.depth if tile.stages == 1 or tile.copied else max(1, tile.depth // 2)
    fit = min(most, max(1, _WRITTEN_OUT // (tile.thread_rows * tile.thread_columns)))
    if tile.depth % fit == 0:
        return fit
    return max(n for n in divisors(tile.depth) if n <= min(most, _RATHER_MORE * fit))


def _steps_that_fit(tile: ThreadTile) -> list[int]:
    """Numbers of steps that may be written out."""
    most = 4 * _WRITTEN_OUT // (tile.thread_rows * tile.thread_columns)
    return [n for n in divisors(tile.depth) if n <= most]


def _window(parts: Sequence[Part]) -> int:
    """Of several axes that number terms together, the terms along the last ones, as many as may be staged."""
    ends = [extent_of_parts(parts[n:]) for n in range(1, len(parts))]
    return next((size for size in ends if size <= MOST_GATHERED), max(ends, default=0))


def is_narrow(block: Site) -> bool:
    """Whether the factors of a sum of products are floats of 16 bits."""
    kinds = [factor.dtype for factor in factors(block.block) or ()]
    return all(kind.is_float and kind.bits == LEAST_BITS // 2 for kind in kinds)


def runs_along(block: Site, item: Iter) -> bool:
    """Whether neighbours along an iteration lie side by side where the block reads."""
    return any(block.stride(load, item.var.name) == 1 for load in block.loads)
