"""SPMD form: the loops over threads inside a launch become one, and each thread runs the whole launch.

A schedule for threads says what is done one after the other by all threads of a block, each step as a loop
bound to `threadIdx`:

    for b bound blockIdx.x                            for b bound blockIdx.x
      for k                                             for t bound threadIdx.x
        for t bound threadIdx.x: fetch into shared   ->   for k
        for t bound threadIdx.x: sums += shared             fetch; barrier; sums += shared; barrier
      for t bound threadIdx.x: y = sums                   y = sums

A loop over blocks with the annotation THREADS gives each of its iterations to a thread. Loops over the blocks
of a cluster become one, too; memory of scope `cluster` is declared around it, all other memory inside. What
follows a loop over parts is done by the last of their blocks (`last_block.py`).

The end of a loop over threads, where all of them met, becomes a barrier where `insert_barriers` finds that
one is needed. Work outside of any such loop is done by every thread if it only writes the thread's own
memory, else by the first one. Every outermost statement is a launch and gets loops over blocks and threads,
if only of one iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.core.diagnostics import BadInputError
from compiler.core.target import TargetFacts
from compiler.loops.annotations import THREADS
from compiler.loops.ir import (
    CLUSTER,
    RANK,
    Alloc,
    Block,
    Buffer,
    For,
    ForKind,
    Func,
    If,
    LastBlock,
    Let,
    Seq,
    Stmt,
    Var,
    all_of,
    const,
    seq,
    statements,
)
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import int_of
from compiler.loops.regions import buffers_written
from compiler.loops.simplify import substitute
from compiler.loops.walk import allocating, with_body
from compiler.lower.insert_barriers import insert_barriers, is_shared
from compiler.lower.last_block import part_blocks, with_counters

_AXES = ("x", "y", "z")
THREAD_AXES = tuple(f"threadIdx.{axis}" for axis in _AXES)
BLOCKS = tuple(f"blockIdx.{axis}" for axis in _AXES)
_VIRTUAL = "vthread."
_MERGED = (*THREAD_AXES, RANK)
"""Tags of loops of which a launch has several, one after the other."""


def merge_threads(func: Func, facts: TargetFacts) -> Func:
    """One set of loops over blocks and threads for each outermost statement; BadInputError without one."""
    if not facts.binds_threads:
        return func
    names = names_in(func.body)
    counters: list[Buffer] = []
    parts = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    merged = with_body(func, seq(*(_Launch(names, counters).merged(part) for part in parts)))
    return with_counters(merged, counters)


@dataclass(slots=True)
class _Axis:
    """One hardware axis of a launch: the variable that stands for it, and how far it goes."""

    var: Var
    extent: int


@dataclass(slots=True)
class _Launch:
    """One outermost statement on its way; `counters` grow by those of its blocks."""

    names: set[str]
    counters: list[Buffer]
    threads: dict[str, _Axis] = field(default_factory=dict)
    leaves: dict[int, Stmt] = field(default_factory=dict)

    def merged(self, stmt: Stmt) -> Stmt:
        grid: list[For] = []
        own: list[Buffer] = []
        passed: list[Buffer] = []
        while True:
            if isinstance(stmt, For) and stmt.tag in BLOCKS:
                stmt = self._per_thread(stmt)
                grid.append(stmt)
            elif isinstance(stmt, Alloc):
                (passed if stmt.buffer.scope == CLUSTER else own).append(stmt.buffer)
            elif isinstance(stmt, For) and _runs_once(stmt):
                stmt = stmt.replace(body=substitute(stmt.body, {stmt.var.name: const(0)}))
            else:
                break
            stmt = stmt.body
        self._check_grid(stmt, grid)
        stmt, part, counter = part_blocks(stmt, grid, self.names)
        grid += [part] if part is not None else []
        self.counters += [counter] if counter is not None else []
        self._find_axes(stmt)
        wide = {axis.var.name: axis.extent for axis in self.threads.values() if axis.extent > 1}
        body = insert_barriers(self._spread(stmt, frozenset()), self.leaves, wide)
        body = allocating(own, body)
        for tag, axis in sorted(self.threads.items(), key=lambda item: (item[0] == RANK, item[0])):
            body = For(axis.var, const(axis.extent), body, ForKind.BOUND, tag)
        body = allocating(passed, body)
        for loop in reversed(grid or [self._one_block(body)]):
            body = loop.replace(body=body)
        return body

    def _per_thread(self, loop: For) -> For:
        """A loop whose iterations are one thread each becomes one over blocks, and one over their threads."""
        threads = dict(loop.annotations).get(THREADS)
        extent = int_of(loop.extent)
        if threads is None or extent is None:
            return loop
        size = min(int(threads), extent)
        block, thread = (Var(fresh(f"{loop.var.name}_{part}", self.names)) for part in ("block", "thread"))
        body = loop.body if extent % size == 0 else If(loop.var.lt(extent), loop.body)
        numbered = Let(loop.var, block * size + thread, body)
        inside = For(thread, const(size), numbered, ForKind.BOUND, THREAD_AXES[0])
        return For(block, const(-(-extent // size)), inside, ForKind.BOUND, loop.tag)

    def _one_block(self, body: Stmt) -> For:
        return For(Var(fresh("block", self.names)), const(1), body, ForKind.BOUND, BLOCKS[0])

    def _check_grid(self, stmt: Stmt, grid: list[For]) -> None:
        tags = [loop.tag for loop in grid]
        inside = [item for item in statements(stmt) if isinstance(item, For) and item.tag in BLOCKS]
        if not inside and len(set(tags)) == len(tags):
            return
        loop = inside[0] if inside else grid[-1]
        raise BadInputError(
            f"loop {loop.var.name} cannot be bound to {loop.tag}",
            where=f"loop {loop.var.name}",
            why="blocks run apart: only loops over blocks can stand around them, one for each axis",
            hint="reorder the loop to the outside, or bind it to threadIdx",
        )

    def _find_axes(self, stmt: Stmt) -> None:
        for loop in statements(stmt):
            if not isinstance(loop, For) or loop.tag not in _MERGED:
                continue
            extent = int_of(loop.extent)
            if extent is None:
                raise BadInputError(
                    f"the extent of loop {loop.var.name}, bound to {loop.tag}, is not a constant",
                    where=f"loop {loop.var.name}",
                    why="the size of a launch is fixed when the kernel is compiled",
                    hint="split the loop by a constant and bind the inner part",
                )
            axis = self.threads.setdefault(loop.tag, _Axis(loop.var, extent))
            axis.extent = max(axis.extent, extent)
        if THREAD_AXES[0] not in self.threads:
            self.threads[THREAD_AXES[0]] = _Axis(Var(fresh("thread", self.names)), 1)

    def _spread(self, stmt: Stmt, active: frozenset[str]) -> Stmt:
        """The statement as each thread runs it; `active` are the axes whose loops are around it."""
        if isinstance(stmt, For) and stmt.tag in _MERGED:
            return self._thread_loop(stmt, active)
        if isinstance(stmt, For) and (stmt.tag or "").startswith(_VIRTUAL):
            stmt = stmt.replace(kind=ForKind.UNROLLED, tag=None)
        if (
            isinstance(stmt, Block)
            and not self._is_leaf(stmt)
            and stmt.init is None
            and stmt.predicate is None
        ):
            return self._around_lanes(stmt, active)
        if not self._is_leaf(stmt):
            return stmt.map_bodies(lambda item: self._spread(item, active))
        missing = [a for tag, a in self.threads.items() if tag not in active and a.extent > 1]
        self.leaves[id(stmt)] = stmt
        if not missing or not any(is_shared(buffer) for buffer in buffers_written(stmt)):
            return stmt
        cond = all_of(*(axis.var.eq(0) for axis in missing))
        assert cond is not None
        guarded = If(cond, stmt)
        self.leaves[id(guarded)] = guarded
        return guarded

    def _thread_loop(self, loop: For, active: frozenset[str]) -> Stmt:
        assert loop.tag is not None
        axis = self.threads[loop.tag]
        body = substitute(loop.body, {loop.var.name: axis.var})
        done = self._spread(body, active | {loop.tag})
        if int_of(loop.extent) == axis.extent:
            return done
        guarded = If(axis.var.lt(loop.extent), done)
        if id(done) in self.leaves:
            self.leaves[id(guarded)] = guarded
        return guarded

    def _around_lanes(self, block: Block, active: frozenset[str]) -> Stmt:
        """A block around a loop over lanes in terms of the loops around it: its accesses can be compared."""
        values = {item.var.name: item.binding for item in block.iters}
        reads, writes = (
            tuple(substitute(region, values) for region in regions) for regions in (block.reads, block.writes)
        )
        body = self._spread(substitute(block.body, values), active)
        return block.replace(iters=(), reads=reads, writes=writes, body=body)

    @staticmethod
    def _is_leaf(stmt: Stmt) -> bool:
        """Whether a thread does all of it by itself, before the others are of interest."""
        inside = [item for item in statements(stmt) if isinstance(item, For | LastBlock)]
        if any(isinstance(item, LastBlock) or item.kind is ForKind.BOUND for item in inside):
            return False  # in a block, too: a tensor intrinsic's own loop over lanes
        if isinstance(stmt, Block):
            return True
        targets = {is_shared(buffer) for buffer in buffers_written(stmt)}
        return len(targets) <= 1


def _runs_once(loop: For) -> bool:
    """Whether a loop is there in form only (an axis of one element), so that it keeps no blocks together."""
    return loop.kind is ForKind.SERIAL and int_of(loop.extent) == 1
