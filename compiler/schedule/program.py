"""One view of a Func: its loops, and its blocks in their places, by name; what is around and inside them.

The index is made once for a Func and never changes. TVM calls it the schedule state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial

from compiler.core.diagnostics import did_you_mean
from compiler.core.node import IRNode
from compiler.loops.ir import Block, Buffer, Const, Expr, For, Func, Iter, Load, Region, Stmt, Store, Var
from compiler.loops.names import fresh
from compiler.loops.queries import int_of, static_shape, variables
from compiler.loops.regions import variables_of
from compiler.loops.simplify import Simplifier
from compiler.schedule.errors import ScheduleError
from compiler.schedule.regions import Inner, Span, box, hulls, limits_of

Fresh = Callable[[str], str]
"""Gives `name`, or `name_1`, `name_2`, ... when it is taken; the result is taken from then on."""


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write of a block."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def uses(self) -> frozenset[str]:
        """Variables that the indices depend on."""
        return frozenset(name for index in self.indices for name in variables(index))


@dataclass(frozen=True, eq=False)
class Site:
    """A block in its place: the loops around it, outermost first, and what it reads and writes.

    `inside` names the block that contains it; `order` counts blocks as the program has them.
    """

    block: Block
    loops: tuple[For, ...]
    inside: str | None
    order: int

    @property
    def name(self) -> str:
        return self.block.name

    @cached_property
    def spatial(self) -> tuple[Iter, ...]:
        return tuple(item for item in self.block.iters if item.kind == "spatial")

    @cached_property
    def reduce(self) -> tuple[Iter, ...]:
        return tuple(item for item in self.block.iters if item.kind == "reduce")

    @property
    def values(self) -> dict[str, Expr]:
        """What the iteration variables stand for."""
        return {item.var.name: item.binding for item in self.block.iters}

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """Ranges of the iteration variables."""
        return ranges(self.block.iters)

    @property
    def known(self) -> Simplifier:
        """What is known of the variables of the loops and of the block."""
        return Simplifier(ranges((*self.loops, *self.block.iters)))

    def under(self, loop: str) -> bool:
        return any(item.var.name == loop for item in self.loops)

    # ------------------------------------------------------------ regions

    def reads(self, buffer: str) -> list[Region]:
        """The declared reads of a buffer; a block that only adds to a buffer reads what it writes."""
        found = [item for item in self.block.reads if item.buffer.name == buffer]
        written = self.writes(buffer)
        updates = written and self.block.init is None and not found
        return written if updates and reads_itself(self.block.body, buffer) else found

    def writes(self, buffer: str) -> list[Region]:
        return [item for item in self.block.writes if item.buffer.name == buffer]

    def uses(self, buffer: str) -> bool:
        return bool(self.reads(buffer) or self.writes(buffer))

    def moving(self, fixed: set[str], known: Simplifier) -> Inner:
        """The loops around the block that move while those named `fixed` stand still."""
        extents = {item.var.name: int_of(item.extent) or 1 for item in self.loops}
        inner = {name: extent for name, extent in extents.items() if name not in fixed}
        return limits_of(self.block.predicate, inner, known)

    def box(self, buffer: str, inner: Inner, known: Simplifier, *, write: bool) -> list[Span | None]:
        """The box around all reads or writes of a buffer while inner loops move."""
        regions = self.writes(buffer) if write else self.reads(buffer)
        return hulls(box(region, self.values, inner, known) for region in regions)

    # ------------------------------------------------------------ blocks of one store

    @property
    def is_store(self) -> bool:
        """Whether the body is a single store, which most rules ask for."""
        return isinstance(self.block.body, Store)

    @property
    def body(self) -> Store:
        """The single store of the block; ScheduleError when the body is more than that."""
        body = self.block.body
        if not isinstance(body, Store):
            raise ScheduleError(
                f"block {self.name} does more than one store", why="a rule looks for one result"
            )
        return body

    @cached_property
    def store(self) -> Access:
        """What the single store writes."""
        return Access(self.body.buffer, self.body.indices)

    @property
    def target(self) -> str:
        """The buffer that the single store writes."""
        return self.store.buffer.name

    @cached_property
    def loads(self) -> tuple[Access, ...]:
        """What the value of the single store reads, the place that it writes aside."""
        loads = (item for item in self.body.value.walk() if isinstance(item, Load))
        found = dict.fromkeys(Access(item.buffer, item.indices) for item in loads)
        found.pop(self.store, None)
        return tuple(found)

    def stride(self, access: Access, name: str) -> int | None:
        """Elements between neighbours along iteration variable `name`, row-major; None where not affine."""
        known, total, step = Simplifier(self.bounds), 0, 1
        shape = static_shape(access.buffer)
        for index, extent in zip(reversed(access.indices), reversed(shape), strict=True):
            form = known.linear(index)
            if any(name in variables(atom) and not isinstance(atom, Var) for atom in form.terms):
                return None
            total += form.coefficient(name) * step
            step *= extent
        return total


def reads_itself(body: IRNode, name: str) -> bool:
    """Whether a statement loads from the buffer called `name` what it did not start itself."""
    if isinstance(body, Block) and body.init is not None:
        return False
    if isinstance(body, Load) and body.buffer.name == name:
        return True
    return any(reads_itself(child, name) for child in body.children())


def ranges(items: Iterable[For | Iter]) -> dict[str, tuple[int, int]]:
    """Ranges of the variables of loops, or of iteration variables, with literal extents."""
    found: dict[str, tuple[int, int]] = {}
    for item in items:
        extent = int_of(item.extent)
        if extent is not None and extent > 0:
            found[item.var.name] = (0, extent - 1)
    return found


class Program:
    """A Func with its index: loops and blocks by name, the path to each, and which names are taken."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.loops: dict[str, For] = {}
        self.sites: dict[str, Site] = {}
        self._paths: dict[str, tuple[Stmt, ...]] = {}
        self._around: dict[str, tuple[For, ...]] = {}
        self._names: set[str] = {item.name for item in func.buffers} | {dim.var.name for dim in func.dims}
        self._index(func.body, (), (), None)

    def _index(self, stmt: Stmt, path: tuple[Stmt, ...], loops: tuple[For, ...], inside: str | None) -> None:
        if isinstance(stmt, For):
            self.loops[stmt.var.name] = stmt
            self._paths[stmt.var.name], self._around[stmt.var.name] = path, loops
            loops = (*loops, stmt)
        elif isinstance(stmt, Block):
            self.sites[stmt.name] = Site(stmt, loops, inside, len(self.sites))
            self._paths[stmt.name], self._around[stmt.name] = path, loops
            self._names.add(stmt.name)
            loops, inside = (), stmt.name
        self._names.update(var.name for var in variables_of(stmt))
        below = (*path, stmt)
        for child in stmt.bodies():
            self._index(child, below, loops, inside)

    @cached_property
    def blocks(self) -> dict[str, Block]:
        """All blocks by name, in program order."""
        return {name: site.block for name, site in self.sites.items()}

    @cached_property
    def outputs(self) -> frozenset[str]:
        """Names of the parameters that the Func writes."""
        params = self.func.params
        return frozenset(item.name for item in params[len(params) - self.func.outputs :])

    def namer(self) -> Fresh:
        """What gives one step names that nothing has yet."""
        return partial(fresh, taken=set(self._names))

    def loop(self, name: str, asked: str = "") -> For:
        """The loop called `name`; ScheduleError (saying what was asked) when there is none."""
        found = self.loops.get(name)
        if found is None:
            raise _unknown("loop", name, self.loops, asked, is_other=name in self.sites)
        return found

    def site(self, name: str, asked: str = "") -> Site:
        """The block called `name` in its place; ScheduleError (saying what was asked) when there is none."""
        found = self.sites.get(name)
        if found is None:
            raise _unknown("block", name, self.sites, asked, is_other=name in self.loops)
        return found

    def block(self, name: str, asked: str = "") -> Block:
        """The block called `name`; ScheduleError (saying what was asked) when there is none."""
        return self.site(name, asked).block

    def buffer(self, name: str, asked: str) -> Buffer:
        """The parameter or local buffer called `name`; ScheduleError when there is none."""
        names = [item.name for item in self.func.buffers]
        if name not in names:
            raise ScheduleError(
                f"{asked}: no buffer {name!r}",
                why="the program has no buffer of that name",
                hint=did_you_mean(name, names) or f"buffers here: {', '.join(names)}",
            )
        return self.func.buffer(name)

    def path(self, name: str) -> tuple[Stmt, ...]:
        """All statements around the loop or block called `name`, outermost first."""
        return self._paths[name]

    def loops_around(self, name: str) -> tuple[For, ...]:
        """The loops around a loop or block, outermost first, up to the block that contains it, if any."""
        return self._around[name]

    def bounds(self, items: Iterable[For | Iter]) -> dict[str, tuple[int, int]]:
        """Ranges of these variables and of the Func's `dim`s; open ones are left out."""
        known = {dim.var.name: (dim.minimum, dim.maximum) for dim in self.func.dims}
        for item in items:
            last = Simplifier(known).interval(item.extent)[1]
            if last is not None and last >= 1:
                known[item.var.name] = (0, last - 1)
        return known

    def bounds_at(self, name: str) -> dict[str, tuple[int, int]]:
        """Ranges of all variables visible at the loop or block called `name` (without its own)."""
        around: list[For | Iter] = []
        for stmt in self._paths[name]:
            around += stmt.iters if isinstance(stmt, Block) else [stmt] if isinstance(stmt, For) else []
        return self.bounds(around)

    def writers(self, buffer: str) -> tuple[Site, ...]:
        """Blocks that write a buffer, in program order (a block around a writer counts, too)."""
        return tuple(item for item in self.sites.values() if item.writes(buffer))

    def readers(self, buffer: str) -> tuple[Site, ...]:
        """Blocks that read a buffer which they do not write, in program order."""
        return tuple(item for item in self.sites.values() if item.reads(buffer) and not item.writes(buffer))


def _unknown(kind: str, name: str, names: Iterable[str], asked: str, *, is_other: bool) -> ScheduleError:
    other = "block" if kind == "loop" else "loop"
    known = list(names)
    hint = did_you_mean(name, known) or f"{kind}s here: {', '.join(known) or 'none'}"
    why = f"{name} is a {other}, not a {kind}" if is_other else f"the program has no {kind} of that name"
    return ScheduleError(f"{asked + ': ' if asked else ''}no {kind} {name!r}", why=why, hint=hint)


def outer_blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks in a subtree that are not inside another block of it, in program order."""
    if isinstance(stmt, Block):
        return (stmt,)
    return tuple(block for child in stmt.bodies() for block in outer_blocks(child))


def inner_loops(stmt: Stmt) -> tuple[For, ...]:
    """The loops of a subtree (the root included), not those inside blocks, in program order."""
    if isinstance(stmt, Block):
        return ()
    own = (stmt,) if isinstance(stmt, For) else ()
    return (*own, *(loop for child in stmt.bodies() for loop in inner_loops(child)))


def reduce_blocks(loop: For) -> tuple[Block, ...]:
    """The blocks below a loop that reduce over it."""
    return tuple(block for block in outer_blocks(loop) if "reduce" in iter_kinds(block, loop.var.name))


def iter_kinds(block: Block, loop: str) -> frozenset[str]:
    """Kinds of the iteration variables of `block` whose bindings use the loop variable `loop`."""
    return frozenset(item.kind for item in block.iters if loop in variables(item.binding))


def trip_count(loop: For, asked: str) -> int:
    """The extent of a loop as a number; ScheduleError when it is symbolic."""
    if isinstance(loop.extent, Const):
        return int(loop.extent.value)
    raise ScheduleError(
        f"{asked}: the extent of loop {loop.var.name} is not a constant",
        why="this step needs to know how often the loop runs",
        hint="split the loop with a guard first and use the inner loop",
    )
