"""Statements, declarations and concurrency: what the verifier asks of a whole function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import prod
from typing import Any

from compiler.core.node import IRNode
from compiler.core.types import BOOL
from compiler.loops import ir
from compiler.loops.intervals import span_of
from compiler.loops.ir import Buffer, Expr, ForKind, Func, Region, Stmt, Var
from compiler.loops.printer import print_expr, print_head
from compiler.loops.regions import reads_of, writes_of
from compiler.loops.verify_blocks import check_block_regions
from compiler.loops.verify_exprs import ExprChecker

WORD_BITS = 32
"""Of a counter of blocks."""

_MEMORY = frozenset({ir.GLOBAL, ir.CONSTANT, ir.CLUSTER, ir.SHARED, ir.SCRATCH, ir.REGISTER})
_OF_THREADS = frozenset({ir.GLOBAL, ir.CONSTANT, ir.CLUSTER, ir.SHARED})


class Checker(ExprChecker):
    """Walks a function once; scope, surrounding loops and conditions are kept on the way."""

    def __init__(self, func: Func, stage: str) -> None:
        super().__init__()
        self.func = func
        self.blocks_allowed = stage in ("imported", "scheduled")
        self.flat = stage == "flat"
        self.names: dict[str, set[str]] = {"variable": set(), "buffer": set(), "block": set()}
        self.inputs = {item.name for item in func.inputs if item not in func.workspace}
        self.current: Stmt | None = None
        self.loops: list[ir.For] = []
        self.blocks: list[ir.Block] = []
        self.depends: dict[str, frozenset[str]] = {}
        self.conditions: list[frozenset[str]] = []
        self.outside: dict[str, int] = {}
        self.tags: dict[str, Expr] = {}
        self.read: set[str] = set()
        self.written: set[str] = set()
        self.open_groups: set[int] = set()
        self.committed: set[int] = set()
        self.waited: set[int] = set()

    def place(self) -> str:
        if self.current is None:
            return f"function `{self.func.name}`"
        return f"`{print_head(self.current)}`"

    # ------------------------------------------------------------ the function

    def run(self) -> None:
        func = self.func
        for dim in func.dims:
            self.define(dim.var)
            self.spans[dim.var.name] = (dim.minimum, dim.maximum)
            if dim.divisor < 1 or dim.minimum > dim.maximum:
                self.report(
                    f"dim `{dim.var.name}` has no value: {dim.minimum}..{dim.maximum} by {dim.divisor}"
                )
        if not 0 <= func.outputs <= len(func.params):
            self.report(f"{func.outputs} outputs are more than the {len(func.params)} parameters")
        for buffer in func.buffers:
            self.declare(buffer)
        self.stmt(func.body)
        self.current = None
        self.check_use()
        for group in sorted(self.open_groups):
            self.report(f"copies of group {group} are started and never committed")
        for group in sorted(self.committed - self.waited):
            self.report(f"copies of group {group} are committed and never waited for")

    def check_use(self) -> None:
        func = self.func
        aliased = {item.alias_of for item in func.buffers}
        for name in sorted(self.inputs & self.written):
            self.report(f"input `{name}` is written")
        for item in func.results:
            if item.name not in self.written and item.name not in aliased:
                self.report(f"output `{item.name}` is never written")
        for item in (*func.workspace, *func.allocs):
            if item.name in self.read - self.written and item.alias_of is None and item.name not in aliased:
                self.report(f"`{item.name}` is read and never written")

    def unique(self, kind: str, name: str) -> None:
        if name in self.names[kind]:
            self.report(f"the {kind} name `{name}` is used twice")
        self.names[kind].add(name)

    def define(self, var: Var) -> None:
        self.unique("variable", var.name)
        self.variables[var.name] = var

    def declare(self, buffer: Buffer) -> None:
        self.unique("buffer", buffer.name)
        for item in buffer.shape:
            self.integer(item, f"extent of `{buffer.name}`")
            if isinstance(item, ir.Const) and item.value < 0:
                self.report(f"`{buffer.name}` has the extent {item.value}")
        self.exprs(buffer.strides)
        if buffer.strides and len(buffer.strides) != len(buffer.shape):
            self.report(
                f"`{buffer.name}` has {len(buffer.shape)} dimensions and {len(buffer.strides)} strides"
            )
        if buffer.offset is not None:
            self.integer(buffer.offset, f"offset of `{buffer.name}`")
        known = self.buffers.keys() | {item.name for item in self.func.buffers}
        if buffer.alias_of is not None and buffer.alias_of not in known:
            self.report(f"`{buffer.name}` is an alias of `{buffer.alias_of}`, which does not exist")
        if buffer.alignment < 1 or buffer.alignment & (buffer.alignment - 1):
            self.report(f"the alignment of `{buffer.name}`, {buffer.alignment}, is no power of two")
        if self.flat and buffer.scope in _MEMORY and (len(buffer.shape) != 1 or buffer.strides):
            self.report(f"`{buffer.name}` is not flat: it has {len(buffer.shape)} dimensions")
        self.buffers[buffer.name] = buffer
        self.outside[buffer.name] = len(self.loops)

    # ------------------------------------------------------------ statements

    def stmt(self, stmt: Stmt) -> None:
        outer, self.current = self.current, stmt
        _CHECKS.get(type(stmt), Checker.as_declared)(self, stmt)
        self.current = outer

    def as_declared(self, stmt: Stmt) -> None:
        """What the declaration of a statement says: values, boxes, statements inside."""
        for part in stmt.children():
            if isinstance(part, Expr):
                self.expr(part)
            elif isinstance(part, Region):
                self.region(part)
            elif isinstance(part, Stmt):
                self.stmt(part)
        self.read.update(box.buffer.name for box in reads_of(stmt))
        self.written.update(box.buffer.name for box in writes_of(stmt))
        if not stmt.BODY_FIELDS:
            self.work()

    def loop(self, stmt: ir.For) -> None:
        name = stmt.var.name
        self.integer(stmt.extent, "extent")
        if stmt.extent.dtype != stmt.var.type:
            self.report(f"`{name}` is {stmt.var.type} and its extent {stmt.extent.dtype}")
        low, high = span_of(stmt.extent, self.spans)
        if high < 0:
            self.report(f"the extent `{print_expr(stmt.extent)}` is negative")
        if stmt.kind is ForKind.BOUND and stmt.tag is None:
            self.report("a bound loop needs the tag of a hardware axis")
        if self.flat and stmt.kind is ForKind.VECTORIZED:
            self.report("a flat program has no vectorised loops; they are ramps")
        if stmt.kind is ForKind.BOUND and stmt.tag is not None:
            self.bound(stmt, stmt.tag)
        self.define(stmt.var)
        self.spans[name] = (0, max(0, high - 1))
        self.depends[name] = frozenset({name}) | self.sources(stmt.extent)
        if isinstance(stmt.extent, ir.Const) and not self.guarded:
            self.exact.add(name)
        self.loops.append(stmt)
        with self.under(stmt.extent, guarded=self.guarded or low < 1):
            self.stmt(stmt.body)
        self.loops.pop()
        del self.variables[name]
        if not self.loops:
            self.tags.clear()

    def bound(self, stmt: ir.For, tag: str) -> None:
        if any(item.tag == tag for item in self.loops):
            self.report(f"{tag} is bound twice, one loop inside the other")
        if self.tags.setdefault(tag, stmt.extent) != stmt.extent:
            self.report(
                f"loops bound to {tag} have different extents: {print_expr(self.tags[tag])} and others"
            )

    def let(self, stmt: ir.Let) -> None:
        self.expr(stmt.value)
        if stmt.value.dtype != stmt.var.type:
            self.report(f"`{stmt.var.name}` is {stmt.var.type} and its value {stmt.value.dtype}")
        self.define(stmt.var)
        self.depends[stmt.var.name] = self.sources(stmt.value)
        if stmt.var.type.is_int:
            self.spans[stmt.var.name] = span_of(stmt.value, self.spans)
        self.stmt(stmt.body)
        self.variables.pop(stmt.var.name, None)

    def alloc(self, stmt: ir.Alloc) -> None:
        self.declare(stmt.buffer)
        self.stmt(stmt.body)
        self.buffers.pop(stmt.buffer.name, None)

    def branch(self, stmt: ir.If) -> None:
        self.condition(stmt.cond, "condition")
        with self.under(stmt.cond):
            self.stmt(stmt.then)
            if stmt.orelse is not None:
                self.stmt(stmt.orelse)

    @contextmanager
    def under(self, cond: Expr, *, guarded: bool = True) -> Iterator[None]:
        """Below a condition, or a loop of unknown length: ranges say nothing, threads may have parted."""
        outer, self.guarded = self.guarded, guarded
        self.conditions.append(self.sources(cond))
        yield
        self.conditions.pop()
        self.guarded = outer

    def work(self) -> None:
        """Something is computed here: before lowering, inside a block."""
        if self.blocks_allowed and not self.blocks and next(self.func.blocks(), None) is not None:
            self.report("this work sits in no block")

    # ------------------------------------------------------------ memory

    def accessed(self, buffer: Buffer, indices: Sequence[Expr], how: str) -> None:
        self.read.add(buffer.name)
        if how == "address" and buffer.name not in self.inputs:
            self.written.add(buffer.name)  # an intrinsic may write there
        self.register_indices(buffer, indices)

    def store(self, stmt: ir.Store) -> None:
        lanes = self.access(stmt.buffer, stmt.indices, stmt.mask)
        self.expr(stmt.value)
        self.writes(stmt, stmt.value, lanes)
        shared = self.loops[self.outside.get(stmt.buffer.name, 0) :]
        for loop in shared:
            if loop.kind in (ForKind.PARALLEL, ForKind.BOUND) and not self.told_apart(stmt, loop):
                self.report(
                    f"all iterations of the {_kind(loop)} loop `{loop.var.name}` write the same place"
                )

    def told_apart(self, stmt: ir.Store, loop: ir.For) -> bool:
        """Whether iterations of a concurrent loop may write different places (or only some of them write)."""
        name = loop.var.name
        if isinstance(loop.extent, ir.Const) and loop.extent.value <= 1:
            return True
        sources = frozenset().union(*(self.sources(item) for item in stmt.indices), *self.conditions)
        if stmt.mask is not None:
            sources |= self.sources(stmt.mask)
        scope = stmt.buffer.scope  # each block of threads, or each cluster of blocks, has its own
        apart = loop.over_blocks and (scope == ir.SHARED or (scope == ir.CLUSTER and not loop.over_ranks))
        return name in sources or apart or self.private(stmt.buffer)

    @staticmethod
    def private(buffer: Buffer) -> bool:
        """Memory that each thread has for itself wherever it is declared."""
        return buffer.scope not in _OF_THREADS

    def atomic(self, stmt: ir.AtomicUpdate) -> None:
        lanes = self.access(stmt.buffer, stmt.indices, None)
        self.expr(stmt.value)
        self.writes(stmt, stmt.value, lanes)
        if stmt.op not in ir.ARITHMETIC | ir.BITWISE | ir.LOGICAL:
            self.report(f"`{stmt.op}` is no atomic operation")

    def last_block(self, stmt: ir.LastBlock) -> None:
        self.access(stmt.buffer, stmt.indices, None)
        self.read.add(stmt.buffer.name)
        self.written.add(stmt.buffer.name)
        self.meeting("the counter of blocks")
        if (
            stmt.buffer.scope != ir.GLOBAL
            or not stmt.buffer.dtype.is_int
            or stmt.buffer.dtype.bits != WORD_BITS
        ):
            self.report(f"`{stmt.buffer.name}` counts blocks, and is no global memory of 32-bit integers")
        told = frozenset().union(*map(self.sources, stmt.indices))
        if told & {loop.var.name for loop in self.loops if loop.over_threads}:
            self.report("the threads of a block come to different counters")
        coming = [loop for loop in self.loops if loop.over_blocks and loop.var.name not in told]
        blocks = prod(int(loop.extent.value) if isinstance(loop.extent, ir.Const) else 0 for loop in coming)
        if blocks != stmt.count:
            self.report(f"{blocks} blocks come to one counter, which counts {stmt.count}")
        self.conditions.append(frozenset(loop.var.name for loop in coming))  # one of them runs what follows
        self.stmt(stmt.body)
        self.conditions.pop()

    def writes(self, stmt: ir.Store | ir.AtomicUpdate, value: Expr, lanes: int) -> None:
        buffer = stmt.buffer
        self.work()
        self.written.add(buffer.name)
        self.register_indices(buffer, stmt.indices)
        wanted = buffer.dtype.with_lanes(buffer.dtype.lanes * lanes)
        if value.dtype != wanted:
            self.report(f"a value of {value.dtype} is stored where {wanted} is needed")
        if buffer.scope == ir.CONSTANT:
            self.report(f"constant `{buffer.name}` is written")
        if self.private(buffer) and not self.blocks_allowed:
            self.own_memory(buffer)
        if buffer.scope == ir.CLUSTER and len(buffer.shape) > 1:
            self.own_part(stmt)

    def own_part(self, stmt: ir.Store | ir.AtomicUpdate) -> None:
        """Blocks of a cluster read each other's memory, and write their own."""
        written = stmt.indices[0]
        iters = {item.var: item.binding for block in self.blocks for item in block.iters}
        while isinstance(written, Var) and written in iters:
            written = iters.pop(written)
        ranks = [loop.var for loop in self.loops if loop.over_ranks and loop.extent != ir.const(1)]
        if ranks and written not in ranks:
            self.report(f"a block writes into another block's part of `{stmt.buffer.name}`")

    def own_memory(self, buffer: Buffer) -> None:
        """After lowering, memory of one thread is allocated where that thread runs."""
        for loop in self.loops[self.outside.get(buffer.name, 0) :]:
            if loop.kind is ForKind.PARALLEL or loop.over_threads or loop.over_blocks:
                self.report(
                    f"`{buffer.name}` belongs to one thread and exists outside of the {_kind(loop)} loop "
                    f"`{loop.var.name}` that writes it"
                )
                return

    def register_indices(self, buffer: Buffer, indices: Sequence[Expr]) -> None:
        """Registers have no addresses: in the end their indices are known once loops are unrolled."""
        if not self.flat or buffer.scope not in (ir.REGISTER, ir.FRAGMENT):
            return
        unrolled = {item.var.name for item in self.loops if _is_unrolled(item)}
        for index in indices:
            moving = self.sources(index) - unrolled
            if moving:
                names = ", ".join(f"`{name}`" for name in sorted(moving))
                self.report(f"register buffer `{buffer.name}` is indexed by {names}, which is not unrolled")

    def sources(self, expr: Expr) -> frozenset[str]:
        """The loop variables that a value depends on.

        What is loaded counts through its indices, and memory private to a thread through the threads.
        """
        found: set[str] = set()
        stack: list[IRNode] = [expr]
        while stack:
            item = stack.pop()
            if isinstance(item, Var):
                found |= self.depends.get(item.name, frozenset())
            elif isinstance(item, ir.Load):
                stack.extend(item.indices)
                if self.private(item.buffer):
                    found |= {loop.var.name for loop in self.loops if loop.over_threads}
            elif not isinstance(item, ir.Const | Buffer):
                stack.extend(item.children())
        return frozenset(found)

    # ------------------------------------------------------------ blocks

    def block(self, stmt: ir.Block) -> None:
        self.unique("block", stmt.name)
        if not self.blocks_allowed:
            self.report(f"block `{stmt.name}` is left after lowering")
        if stmt.predicate is not None:
            self.condition(stmt.predicate, "predicate")
        for item in stmt.iters:
            self.iteration(stmt, item)
        for item in stmt.iters:
            self.bind(stmt, item)
        check_block_regions(self, stmt)
        self.blocks.append(stmt)
        with nullcontext() if stmt.predicate is None else self.under(stmt.predicate):
            if stmt.init is not None:
                self.stmt(stmt.init)
            self.stmt(stmt.body)
        self.blocks.pop()
        for item in stmt.iters:
            self.variables.pop(item.var.name, None)

    def iteration(self, block: ir.Block, item: ir.Iter) -> None:
        name = item.var.name
        if item.kind not in ("spatial", "reduce"):
            self.report(f"`{name}` is {item.kind}, not spatial or reduce")
        self.integer(item.extent, f"extent of `{name}`")
        self.integer(item.binding, f"binding of `{name}`")
        if item.binding.dtype != item.var.type:
            self.report(f"`{name}` is {item.var.type} and its binding {item.binding.dtype}")
        low, high = span_of(item.binding, self.spans)
        most = span_of(item.extent, self.spans)[1]
        free = block.predicate is None and not self.guarded
        if free and (low < 0 or high >= most) and self.takes_bounds(item.binding):
            self.report(f"`{name}` takes values {low:g}..{high:g}, and its extent is {most:g}")
        if item.kind == "reduce":
            self.sequential(block, item)

    def sequential(self, block: ir.Block, item: ir.Iter) -> None:
        """The loops that a reduction runs over cannot run at the same time."""
        used = self.sources(item.binding)
        for loop in self.loops:
            apart = loop.kind is ForKind.PARALLEL or loop.over_blocks
            many = not (isinstance(loop.extent, ir.Const) and loop.extent.value <= 1)
            if apart and many and loop.var.name in used:
                self.report(
                    f"the {_kind(loop)} loop `{loop.var.name}` carries the reduction of block `{block.name}`"
                )

    def bind(self, block: ir.Block, item: ir.Iter) -> None:
        name = item.var.name
        low, high = span_of(item.binding, self.spans)
        most = span_of(item.extent, self.spans)[1]
        self.define(item.var)
        self.depends[name] = self.sources(item.binding)
        self.spans[name] = (max(0, low), min(high, most - 1))
        whole = block.predicate is None and not self.guarded and self.takes_bounds(item.binding)
        shared = [other for other in block.iters if other is not item]
        if whole and not any(self.depends[name] & self.sources(other.binding) for other in shared):
            self.exact.add(name)

    # ------------------------------------------------------------ concurrency

    def barrier(self, _stmt: ir.Barrier) -> None:
        if not any(loop.over_threads for loop in self.loops) and not self.blocks_allowed:
            self.report("a barrier needs bound threads around it")
        self.meeting("the barrier")

    def meeting(self, what: str) -> None:
        """All threads of a block come here, or none."""
        threads = {loop.var.name for loop in self.loops if loop.over_threads}
        for cond in self.conditions:
            parted = cond & threads
            if parted:
                names = ", ".join(f"`{name}`" for name in sorted(parted))
                self.report(f"{what} is under a condition that differs between threads (by {names})")

    def copy(self, stmt: ir.AsyncCopy) -> None:
        self.as_declared(stmt)
        if stmt.target.buffer.dtype != stmt.source.buffer.dtype:
            self.report("an asynchronous copy cannot change the type")
        if stmt.where.dtype != BOOL:
            self.report(f"the condition of a copy is {stmt.where.dtype}")
        self.open_groups.add(stmt.group)

    def commit(self, stmt: ir.AsyncCommit) -> None:
        self.open_groups.discard(stmt.group)
        self.committed.add(stmt.group)

    def wait(self, stmt: ir.AsyncWait) -> None:
        if stmt.group not in self.committed:
            self.report(f"group {stmt.group} is waited for, and nothing was committed to it before")
        if stmt.pending < 0:
            self.report(f"{stmt.pending} groups cannot be pending")
        self.waited.add(stmt.group)


def _is_unrolled(loop: ir.For) -> bool:
    single = isinstance(loop.extent, ir.Const) and loop.extent.value <= 1
    return single or loop.kind in (ForKind.UNROLLED, ForKind.VECTORIZED)


def _kind(loop: ir.For) -> str:
    return loop.tag or loop.kind.value


_CHECKS: dict[type, Callable[[Checker, Any], None]] = {
    ir.For: Checker.loop,
    ir.Block: Checker.block,
    ir.Store: Checker.store,
    ir.AtomicUpdate: Checker.atomic,
    ir.LastBlock: Checker.last_block,
    ir.If: Checker.branch,
    ir.Let: Checker.let,
    ir.Alloc: Checker.alloc,
    ir.Barrier: Checker.barrier,
    ir.AsyncCopy: Checker.copy,
    ir.AsyncCommit: Checker.commit,
    ir.AsyncWait: Checker.wait,
}
