"""A map of where everything is in a Func: loops and blocks by name, what is around and inside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from compiler.core.diagnostics import did_you_mean
from compiler.loops.ir import Block, Buffer, Const, Expr, For, Func, Let, Region, Stmt, Var
from compiler.loops.names import fresh
from compiler.loops.queries import variables
from compiler.loops.simplify import Simplifier
from compiler.schedule.errors import ScheduleError


def substatements(stmt: Stmt) -> Iterator[Stmt]:
    """The statements directly below a statement (the body and init of a block, too)."""
    return (child for child in stmt.children() if isinstance(child, Stmt))


class Program:
    """A Func with an index: loops and blocks by name, the path to each, and fresh names."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.loops: dict[str, For] = {}
        self.blocks: dict[str, Block] = {}
        self._paths: dict[str, tuple[Stmt, ...]] = {}
        self._names: set[str] = {item.name for item in func.buffers} | {dim.var.name for dim in func.dims}
        self._index(func.body, ())

    def _index(self, stmt: Stmt, path: tuple[Stmt, ...]) -> None:
        if isinstance(stmt, For):
            self.loops[stmt.var.name] = stmt
            self._paths[stmt.var.name] = path
            self._names.add(stmt.var.name)
        elif isinstance(stmt, Block):
            self.blocks[stmt.name] = stmt
            self._paths[stmt.name] = path
            self._names.add(stmt.name)
            self._names.update(item.var.name for item in stmt.iters)
        elif isinstance(stmt, Let):
            self._names.add(stmt.var.name)
        below = (*path, stmt)
        for child in substatements(stmt):
            self._index(child, below)

    def loop(self, name: str, asked: str = "") -> For:
        """The loop called `name`; ScheduleError (saying what was asked) when there is none."""
        found = self.loops.get(name)
        if found is None:
            raise _unknown("loop", name, self.loops, asked, is_other=name in self.blocks)
        return found

    def block(self, name: str, asked: str = "") -> Block:
        """The block called `name`; ScheduleError (saying what was asked) when there is none."""
        found = self.blocks.get(name)
        if found is None:
            raise _unknown("block", name, self.blocks, asked, is_other=name in self.loops)
        return found

    def path(self, name: str) -> tuple[Stmt, ...]:
        """All statements around the loop or block called `name`, outermost first."""
        return self._paths[name]

    def loops_around(self, name: str) -> tuple[For, ...]:
        """The loops around a loop or block, outermost first, up to the block that contains it, if any."""
        found: list[For] = []
        for stmt in reversed(self._paths[name]):
            if isinstance(stmt, Block):
                break
            if isinstance(stmt, For):
                found.append(stmt)
        return tuple(reversed(found))

    def bounds(self, loops: Iterable[For]) -> dict[str, tuple[int, int]]:
        """Ranges of the variables of these loops and of the Func's `dim`s; open ones are left out."""
        known = {dim.var.name: (dim.minimum, dim.maximum) for dim in self.func.dims}
        for loop in loops:
            last = Simplifier(known).interval(loop.extent)[1]
            if last is not None and last >= 1:
                known[loop.var.name] = (0, last - 1)
        return known

    def bounds_at(self, name: str) -> dict[str, tuple[int, int]]:
        """Ranges of all variables visible at the loop or block called `name` (without its own)."""
        known = self.bounds(())
        for stmt in self._paths[name]:
            if isinstance(stmt, For):
                known.update(_range_of(stmt.var, stmt.extent, known))
            elif isinstance(stmt, Block):
                for item in stmt.iters:
                    known.update(_range_of(item.var, item.extent, known))
        return known

    def fresh(self, name: str) -> str:
        """`name`, or `name_1`, `name_2`, ... when it is taken; the result is taken from now on."""
        return fresh(name, self._names)

    def writers(self, buffer: Buffer) -> tuple[Block, ...]:
        """Blocks that write a buffer, in program order (a block around a writer counts, too)."""
        return tuple(item for item in self.blocks.values() if _touches(item.writes, buffer))

    def readers(self, buffer: Buffer) -> tuple[Block, ...]:
        """Blocks that read a buffer, in program order."""
        return tuple(item for item in self.blocks.values() if _touches(item.reads, buffer))


def _touches(regions: tuple[Region, ...], buffer: Buffer) -> bool:
    return any(region.buffer.name == buffer.name for region in regions)


def _range_of(var: Var, extent: Expr, known: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    last = Simplifier(known).interval(extent)[1]
    return {} if last is None or last < 1 else {var.name: (0, last - 1)}


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
    return tuple(block for child in substatements(stmt) for block in outer_blocks(child))


def inner_loops(stmt: Stmt) -> tuple[For, ...]:
    """The loops of a subtree (the root included), not those inside blocks, in program order."""
    if isinstance(stmt, Block):
        return ()
    own = (stmt,) if isinstance(stmt, For) else ()
    return (*own, *(loop for child in substatements(stmt) for loop in inner_loops(child)))


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
