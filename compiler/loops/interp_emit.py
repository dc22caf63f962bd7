"""Statements of the interpreter: a Func becomes one Python function, made once and run many times."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from math import inf
from typing import Any

import numpy as np

from compiler.core.node import IRNode
from compiler.loops import interp_math, interp_values, intrinsics, ir
from compiler.loops.interp_expr import Codegen, Place, known_span
from compiler.loops.interp_races import comes_last
from compiler.loops.interp_threads import Scheduler, Thread
from compiler.loops.interp_values import Address, ProgramError, dense_strides
from compiler.loops.intervals import span_of, wrapped
from compiler.loops.ir import Buffer, Expr, Func, Region, Stmt
from compiler.loops.printer import print_head

_NESTING = 12
"""Loops in one Python function; CPython allows 20 nested blocks."""

FILE = "<loop program>"


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled Func and which statement each of its lines comes from.

    `entry` takes views by name, dims by name, order, lanes of a sub-group, monitor.
    """

    entry: Callable[..., None]
    source: str
    lines: dict[int, Stmt]


@functools.lru_cache(maxsize=256)
def compile_func(func: Func, *, races: bool = False) -> Code:
    """Make the code of a function; ProgramError where it means nothing.

    With `races`, memory is watched while parallel iterations run.
    """
    return _Statements(func=func, races=races, space=_base_space()).code()


def _base_space() -> dict[str, Any]:
    return {
        "oob": _oob, "truncdiv": interp_values.truncdiv, "truncmod": interp_values.truncmod,
        "nonzero": interp_values.nonzero, "larger": interp_math.larger, "smaller": interp_math.smaller,
        "minimum": np.minimum, "maximum": np.maximum, "floor": np.floor, "trunc": np.trunc, "fmod": np.fmod,
        "mod": np.mod, "where": np.where, "tile": np.tile, "full": np.full, "atleast_1d": np.atleast_1d,
        "concatenate": np.concatenate, "float32": np.float32, "Address": Address, "Thread": Thread,
        "Scheduler": Scheduler, "comes_last": comes_last, "allocate": interp_values.allocate,
        "region": _region, "domain": _domain,
    }  # fmt: skip


def _oob(view: interp_values.View, dim: int, index: int) -> int:
    raise interp_values.out_of_bounds(view.buffer, dim, index, view.shape[dim])


def _domain(block: str, var: str, value: int, extent: int) -> None:
    raise ProgramError(
        f"block `{block}` runs outside of its domain",
        why=f"{var} is {value}, and its extent is {extent}",
        hint="the block needs a predicate (`where`), or its bindings are wrong",
    )


def _region(view: interp_values.View, begin: Sequence[int], extent: Sequence[int]) -> Any:
    """Positions of all elements of a box, in row-major order, checked."""
    at = np.full((1,), view.offset, np.int64)
    for dim, (low, size) in enumerate(zip(begin, extent, strict=True)):
        if low < 0 or low + size > view.shape[dim]:
            worst = low if low < 0 else low + size - 1
            raise interp_values.out_of_bounds(view.buffer, dim, worst, view.shape[dim])
        at = (at[:, None] + (np.arange(low, low + size) * view.strides[dim])[None, :]).reshape(-1)
    return at


@dataclass(slots=True, kw_only=True)
class _Statements(Codegen):
    """Writes the lines of one function."""

    func: Func
    races: bool
    in_parallel: bool = False
    numbered: str = ""
    whole: Stmt | None = None
    text: list[str] = field(default_factory=list)
    lines: dict[int, Stmt] = field(default_factory=dict)
    depth: int = 1
    loops: int = 0

    # ------------------------------------------------------------ the whole

    def code(self) -> Code:
        func = self.func
        self.text.append("def entry(views, dims, order, subgroup, monitor):")
        self.line("t0 = Thread()")
        for dim in func.dims:
            name = self.names[dim.var.name] = self.fresh("v")
            self.spans[dim.var.name] = (dim.minimum, dim.maximum)
            self.line(f"{name} = dims[{self.keep(('name', dim.var.name), dim.var.name)}]")
        for buffer in func.params:
            place = self.declare(buffer)
            self.line(f"{place.view} = views[{self.keep(('name', buffer.name), buffer.name)}]")
            self.line(f"{place.data} = {place.view}.data")
        for buffer in _bases_first(func.allocs):
            self.allocate(buffer)
        self.stmt(func.body)
        source = "\n".join(self.text) + "\n"
        exec(compile(source, FILE, "exec"), self.space)  # noqa: S102 - numbered names only, made above
        return Code(self.space["entry"], source, self.lines)

    def line(self, text: str) -> None:
        self.text.append(" " * self.depth + text)

    def declare(self, buffer: Buffer) -> Place:
        self.count += 1
        shape = _constants(buffer.shape)
        if buffer.strides:
            strides = _constants(buffer.strides)
        else:
            strides = dense_strides(shape) if shape is not None else None
        offset = 0 if buffer.offset is None else (_constants((buffer.offset,)) or (None,))[0]
        known = shape is not None and strides is not None and offset is not None
        place = Place(buffer, self.count, shape if known else None, strides, offset, self.races)
        self.places[buffer.name] = place
        return place

    def allocate(self, buffer: Buffer) -> None:
        base = "None"
        if buffer.alias_of is not None:
            found = self.places.get(buffer.alias_of)
            if found is None:
                raise ProgramError(
                    f"`{buffer.name}` is an alias of `{buffer.alias_of}`, which does not exist"
                )
            base = found.view
        place = self.declare(buffer)
        key = self.keep(("buffer", buffer.name), buffer)
        shape = self.tuple(buffer.shape)
        strides = self.tuple(buffer.strides) if buffer.strides else "None"
        offset = "0" if buffer.offset is None else self.expr(buffer.offset)
        made = f"allocate({key}, {shape}, {strides}, {offset}, {base})"
        self.line(f"{place.view} = " + (f"monitor.watch({made})" if self.races else made))
        self.line(f"{place.data} = {place.view}.data")

    # ------------------------------------------------------------ statements

    def stmt(self, stmt: Stmt) -> None:
        write = _WRITERS.get(type(stmt))
        if write is None:
            raise ProgramError(f"a statement of kind {type(stmt).__name__} has no meaning")
        before = len(self.text)
        try:
            write(self, stmt)
        except ProgramError as error:
            if not error.where:
                error.where = location_of(self.func, stmt)
            raise
        for number in range(before, len(self.text)):
            self.lines.setdefault(number + 1, stmt)

    def suite(self, stmt: Stmt) -> None:
        self.depth += 1
        self.inside(stmt)
        self.depth -= 1

    def inside(self, stmt: Stmt) -> None:
        """A statement where Python wants one."""
        before = len(self.text)
        self.stmt(stmt)
        if len(self.text) == before:
            self.line("pass")

    def seq(self, stmt: ir.Seq | ir.Scoped) -> None:
        for item in stmt.bodies():
            self.stmt(item)

    def loop(self, stmt: ir.For) -> None:
        if stmt.over_ranks or (stmt.over_threads and (self.in_threads or self.races or _meet_inside(stmt))):
            self.thread_loop(stmt)
            return
        if self.loops >= _NESTING:
            self.outline(stmt)
            return
        extent = self.expr(stmt.extent)
        name = self.names[stmt.var.name] = self.fresh("v")
        high = span_of(stmt.extent, self.spans)[1] - 1
        self.spans[stmt.var.name] = known_span(0, high)
        free = stmt.kind is ir.ForKind.PARALLEL or (stmt.kind is ir.ForKind.BOUND and not self.in_threads)
        if isinstance(stmt.extent, ir.Const) and stmt.extent.value == 1:
            self.line(f"{name} = 0")
            self.stmt(stmt.body)
            return
        self.line(f"for {name} in {'order' if free else 'range'}({extent}):")
        self.loops += 1
        if free:
            self.apart(stmt, name, extent)
        else:
            self.suite(stmt.body)
        self.loops -= 1

    def apart(self, stmt: ir.For, name: str, extent: str) -> None:
        """The body of a loop whose iterations run apart: each has a thread of its own."""
        outer, self.thread = self.thread, self.fresh("t")
        self.line(f" {self.thread} = Thread()")
        inside, around = self.in_parallel, self.numbered
        if not inside:
            self.numbered = name
        elif around and stmt.over_blocks and stmt is self.whole:  # no block goes on behind the loop
            self.numbered = f"({around}) * {extent} + {name}"
        if self.races and self.numbered != around:
            self.line(f" monitor.iteration = {self.numbered}")
        self.in_parallel = True
        self.numbered = self.numbered if stmt.over_blocks else ""
        self.whole = _inside(stmt)
        self.suite(stmt.body)
        self.in_parallel, self.thread, self.numbered = inside, outer, around
        if self.races and not inside:
            self.line("monitor.leave()")

    def outline(self, stmt: Stmt) -> None:
        """A nested Python function for what is nested too deeply for one."""
        name, loops = self.fresh("f"), self.loops
        self.loops = 0
        self.line(f"def {name}():")
        self.suite(stmt)
        self.loops = loops
        waits = self.in_threads and any(
            _meets(item) or (isinstance(item, ir.For) and (item.over_threads or item.over_ranks))
            for item in stmt.walk()
        )
        self.line(f"yield from {name}()" if waits else f"{name}()")

    def thread_loop(self, stmt: ir.For) -> None:
        """A loop over threads that meet, or over the blocks of a cluster: its body becomes a coroutine."""
        outermost = not self.in_threads
        if outermost and not stmt.over_ranks:
            self.allocate_shared(stmt.body)
        program, name, thread, loops = self.fresh("p"), self.fresh("v"), self.fresh("t"), self.loops
        outer, self.in_threads = self.thread, True
        self.names[stmt.var.name], self.thread, self.loops = name, thread, 0
        self.spans[stmt.var.name] = known_span(0, span_of(stmt.extent, self.spans)[1] - 1)
        tag = self.keep(("name", stmt.tag), stmt.tag)
        extent = self.expr(stmt.extent)
        self.line(f"def {program}({name}, {thread}):")
        self.line(" if False: yield")
        self.depth += 1
        if stmt.over_ranks:
            self.allocate_shared(stmt.body)
        self.inside(stmt.body)
        self.depth -= 1
        self.thread, self.loops, self.in_threads = outer, loops, not outermost
        if outermost:
            self.line(f"Scheduler(subgroup, monitor).run({tag}, {extent}, {program}, order({extent}))")
        else:
            self.line(f"yield ('spawn', {tag}, {extent}, {program})")

    def allocate_shared(self, body: Stmt) -> None:
        """What the threads of a block share, wherever it is declared below."""
        for item in body.walk():
            if isinstance(item, ir.Alloc) and item.buffer.scope == ir.SHARED:
                self.allocate(item.buffer)

    def block(self, stmt: ir.Block) -> None:
        depth = self.depth
        if stmt.predicate is not None:
            self.line(f"if {self.expr(stmt.predicate)}:")
            self.depth += 1
        first = []
        for item in stmt.iters:
            name = self.iteration(stmt, item)
            if item.kind == "reduce" and self.spans[item.var.name][1] > 0:
                first.append(f"{name} == 0")
        if stmt.init is not None and first:
            self.line(f"if {' and '.join(first)}:")
            self.suite(stmt.init)
        elif stmt.init is not None:
            self.stmt(stmt.init)
        self.inside(stmt.body)
        self.depth = depth

    def iteration(self, block: ir.Block, item: ir.Iter) -> str:
        """Bind one iteration variable and check its domain."""
        binding, extent = self.expr(item.binding), self.expr(item.extent)
        low, high = span_of(item.binding, self.spans)
        least, most = span_of(item.extent, self.spans)
        known = self.names.get(item.binding.name) if isinstance(item.binding, ir.Var) else None
        name = known or self.fresh("v")
        if known is None:
            self.line(f"{name} = {binding}")
        if low < 0 or high >= least:
            words = (
                self.keep(("name", block.name), block.name),
                self.keep(("name", item.var.name), item.var.name),
            )
            self.line(f"if not 0 <= {name} < {extent}: domain({words[0]}, {words[1]}, {name}, {extent})")
        self.names[item.var.name] = name
        self.spans[item.var.name] = known_span(max(0, int(low)) if low > -inf else 0, min(high, most - 1))
        return name

    def store(self, stmt: ir.Store) -> None:
        place = self.place(stmt.buffer)
        value = self.expr(stmt.value)
        if stmt.width > 1:
            piece = self.contiguous(stmt.buffer, stmt.indices) if stmt.mask is None else None
            if piece is not None:
                self.line(f"{piece} = {value}")
                return
            mask = "None" if stmt.mask is None else self.expr(stmt.mask)
            self.line(f"{place.view}.store({self.tuple(stmt.indices)}, {stmt.width}, {mask}, {value})")
            return
        if stmt.mask is not None:
            self.line(f"if {self.expr(stmt.mask)}:")
            self.depth += 1
        flat = self.flat(stmt.buffer, stmt.indices)
        if place.plain and stmt.value.dtype != stmt.buffer.dtype:
            raise ProgramError(
                f"a value of type {stmt.value.dtype} is stored into a buffer of {stmt.buffer.dtype}"
            )
        if place.plain:
            target = f"{place.data}[{flat}]"
            self.line(f"{target} = {value}")
        else:
            self.line(f"{place.view}.put({flat}, {value})")
        if stmt.mask is not None:
            self.depth -= 1

    def atomic(self, stmt: ir.AtomicUpdate) -> None:
        if stmt.width > 1:
            raise ProgramError("an atomic update takes one element; reduce the lanes, or loop over them")
        load = ir.Load(stmt.buffer, stmt.indices)
        if self.races:
            self.line("monitor.atomic = True")
        self.store(ir.Store(stmt.buffer, stmt.indices, ir.Binary(stmt.op, load, stmt.value)))
        if self.races:
            self.line("monitor.atomic = False")

    def last_block(self, stmt: ir.LastBlock) -> None:
        view, flat = self.place(stmt.buffer).view, self.flat(stmt.buffer, stmt.indices)
        counter = f"{view}, {flat}, {stmt.count}"
        self.count += 1
        event = f"(yield ('last', 'shared', {self.count}, {counter}))"
        self.line(f"if {event if self.in_threads else f'comes_last({counter}, monitor)'}:")
        self.suite(stmt.body)

    def branch(self, stmt: ir.If) -> None:
        self.line(f"if {self.expr(stmt.cond)}:")
        self.suite(stmt.then)
        if stmt.orelse is not None:
            self.line("else:")
            self.suite(stmt.orelse)

    def let(self, stmt: ir.Let) -> None:
        value = self.expr(stmt.value)
        name = self.names[stmt.var.name] = self.fresh("v")
        if stmt.var.type.is_int:
            self.spans[stmt.var.name] = wrapped(stmt.value, self.spans)
        self.line(f"{name} = {value}")
        self.stmt(stmt.body)

    def alloc(self, stmt: ir.Alloc) -> None:
        if not (self.in_threads and stmt.buffer.scope == ir.SHARED):
            self.allocate(stmt.buffer)
        self.stmt(stmt.body)

    def evaluate(self, stmt: ir.Evaluate) -> None:
        self.line(self.expr(stmt.value))

    def barrier(self, stmt: ir.Barrier) -> None:
        if self.in_threads:
            scope = self.keep(("name", stmt.scope), stmt.scope)
            self.count += 1
            self.line(f"yield ('barrier', {scope}, {self.count})")

    def copy(self, stmt: ir.AsyncCopy) -> None:
        target, source = self.place(stmt.target.buffer), self.place(stmt.source.buffer)
        always = isinstance(stmt.where, ir.Const)
        if not always:
            self.line(f"if {self.expr(stmt.where)}:")
            self.depth += 1
        self.line(
            f"{self.thread}.copy({target.view}, {self.box(stmt.target)}, "
            f"{source.view}, {self.box(stmt.source)}, {stmt.group})"
        )
        if not always:
            self.depth -= 1
            self.line("else:")
            self.depth += 1
            self.line(f"{self.thread}.fill({target.view}, {self.box(stmt.target)}, {stmt.group})")
            self.depth -= 1

    def box(self, region: Region) -> str:
        place = self.place(region.buffer)
        return f"region({place.view}, {self.tuple(region.begin)}, {self.tuple(region.extent)})"

    def commit(self, stmt: ir.AsyncCommit) -> None:
        self.line(f"{self.thread}.commit({stmt.group})")

    def wait(self, stmt: ir.AsyncWait) -> None:
        self.line(f"{self.thread}.wait({stmt.group}, {stmt.pending})")


def _constants(exprs: Sequence[Expr]) -> tuple[int, ...] | None:
    values = [int(item.value) for item in exprs if isinstance(item, ir.Const)]
    return tuple(values) if len(values) == len(exprs) else None


def _bases_first(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Buffers in an order in which an alias comes after the buffer whose memory it shares."""
    by_name = {item.name: item for item in buffers}
    bases = {item.name: [item.alias_of] if item.alias_of in by_name else [] for item in buffers}
    try:
        return [by_name[name] for name in TopologicalSorter(bases).static_order()]
    except CycleError as error:
        raise ProgramError(f"buffer `{error.args[1][0]}` is an alias of itself") from None


@functools.lru_cache(maxsize=1 << 10)
def _meet_inside(stmt: Stmt) -> bool:
    """Whether threads meet somewhere in a statement, at a barrier or in an operation of a sub-group."""
    return any(_meets(item) for item in stmt.walk())


def _meets(item: IRNode) -> bool:
    if isinstance(item, ir.Barrier | ir.LastBlock):
        return True
    if not isinstance(item, ir.Call):
        return False
    known = intrinsics.intrinsic(item.name)
    return known is not None and known.collective is not None


def _inside(loop: ir.For) -> Stmt:
    """What a loop does, but for what is there in form only."""
    body = loop.body
    while isinstance(body, ir.Alloc) or (isinstance(body, ir.For) and body.extent == ir.const(1)):
        body = body.body
    return body


def location_of(func: Func, stmt: Stmt | None) -> str:
    """Function and first line of a statement, for messages."""
    if stmt is None:
        return f"function `{func.name}`"
    return f"function `{func.name}`: {print_head(stmt)}"


_WRITERS: dict[type, Callable[[_Statements, Any], None]] = {
    ir.Seq: _Statements.seq,
    ir.For: _Statements.loop,
    ir.Block: _Statements.block,
    ir.Store: _Statements.store,
    ir.AtomicUpdate: _Statements.atomic,
    ir.LastBlock: _Statements.last_block,
    ir.If: _Statements.branch,
    ir.Let: _Statements.let,
    ir.Alloc: _Statements.alloc,
    ir.Evaluate: _Statements.evaluate,
    ir.Scoped: _Statements.seq,
    ir.Barrier: _Statements.barrier,
    ir.AsyncCopy: _Statements.copy,
    ir.AsyncCommit: _Statements.commit,
    ir.AsyncWait: _Statements.wait,
}
