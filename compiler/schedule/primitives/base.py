"""What all primitives share: the base class, the error, and a map of where everything is in a Func.

A primitive is a frozen record of its arguments. `apply` checks first and raises :class:`ScheduleError` in
plain words, then returns the new Func and the names it made. Loops and blocks are addressed by name; new
names follow from old ones, so that a recorded schedule gives the same program again.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Self, TypeAlias

from compiler.core.diagnostics import ExitCode, TkError, did_you_mean
from compiler.loops.ir import (
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Iter,
    Let,
    Region,
    Seq,
    Stmt,
    Var,
    all_of,
    const,
    seq,
    statements,
)
from compiler.loops.names import fresh
from compiler.loops.queries import variables
from compiler.loops.simplify import Simplifier, substitute

Value: TypeAlias = "str | int | float | tuple[Value, ...] | None"
"""What an argument of a primitive may be: it has to go through JSON unchanged."""

Outputs: TypeAlias = "tuple[str | int, ...]"


class ScheduleError(TkError):
    """A primitive refuses: what was asked, of which loop or block, why not, and what to do instead."""

    default_code = ExitCode.USAGE


@dataclasses.dataclass(frozen=True, slots=True)
class Primitive:
    """One step of a schedule; subclasses are frozen records whose fields are the arguments."""

    name: ClassVar[str]

    def apply(self, func: Func) -> tuple[Func, Outputs]:
        """Return the rewritten Func and the names made; ScheduleError when a precondition does not hold."""
        raise NotImplementedError

    def arguments(self) -> dict[str, Value]:
        """The fields by name, in order."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def refuse(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> ScheduleError:
        """A ScheduleError that begins with the name of the primitive."""
        return ScheduleError(f"{self.name}: {what}", where=where, why=why, hint=hint)


@dataclasses.dataclass(frozen=True, slots=True)
class Sampling(Primitive):
    """A step that changes nothing and picks a value; the pick is recorded as the decision of the step."""

    decision: Value = dataclasses.field(default=None, kw_only=True)

    def sampled(self, func: Func, source: random.Random) -> Self:
        """This step with a decision drawn from `source`."""
        raise NotImplementedError


# ---------------------------------------------------------------- finding things


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


def nest_of(block: Block) -> Stmt:
    """A block whose bindings are variables, under one loop for each of them."""
    stmt: Stmt = block
    for item in reversed(block.iters):
        assert isinstance(item.binding, Var)
        stmt = For(item.binding, item.extent, stmt)
    return stmt


def iter_kinds(block: Block, loop: str) -> frozenset[str]:
    """Kinds of the iteration variables of `block` whose bindings use the loop variable `loop`."""
    return frozenset(item.kind for item in block.iters if loop in variables(item.binding))


def extent_of(loop: For, asked: str) -> int:
    """The extent of a loop as a number; ScheduleError when it is symbolic."""
    if isinstance(loop.extent, Const):
        return int(loop.extent.value)
    raise ScheduleError(
        f"{asked}: the extent of loop {loop.var.name} is not a constant",
        why="this step needs to know how often the loop runs",
        hint="split the loop with a guard first and use the inner loop",
    )


# ---------------------------------------------------------------- rewriting


def map_statements(stmt: Stmt, fn: Callable[[Stmt], Stmt | None]) -> Stmt:
    """Rewrite top-down: where `fn` gives a statement it is taken as it is, else the children are visited.

    Sequences in sequences are flattened.
    """
    new = fn(stmt)
    if new is not None:
        return new
    rebuilt = stmt.map_children(lambda child: map_statements(child, fn) if isinstance(child, Stmt) else child)
    return seq(*rebuilt.stmts) if isinstance(rebuilt, Seq) and rebuilt is not stmt else rebuilt


def replace_statements(func: Func, new: Mapping[str, Stmt]) -> Func:
    """Replace loops and blocks by name; everything else stays the same object."""

    def swap(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, For):
            return new.get(stmt.var.name)
        return new.get(stmt.name) if isinstance(stmt, Block) else None

    return func.replace(body=map_statements(func.body, swap))


def map_blocks(stmt: Stmt, fn: Callable[[Block], Stmt]) -> Stmt:
    """Apply `fn` to the outer blocks of a subtree."""
    return map_statements(stmt, lambda item: fn(item) if isinstance(item, Block) else None)


def rebind(stmt: Stmt, values: Mapping[str, Expr], known: Mapping[str, tuple[int, int]]) -> Stmt:
    """Replace loop variables by expressions in the loops, bindings and predicates of a subtree.

    `known` has the ranges of all variables around `stmt` and of those in the new expressions.
    """
    simplifier = Simplifier(known)

    def visit(item: Stmt) -> Stmt:
        if isinstance(item, Block):
            return rebind_block(item, values, simplifier)
        if isinstance(item, For):
            extent = simplifier.simplify(substitute(item.extent, values))
            last = simplifier.interval(extent)[1]
            if last is not None and last >= 1:
                simplifier.bind(item.var.name, 0, last - 1)
            return item.replace(extent=extent, body=visit(item.body))
        return item.map_children(
            lambda child: (
                visit(child)
                if isinstance(child, Stmt)
                else substitute(child, values)
                if isinstance(child, Expr)
                else child
            )
        )

    return visit(stmt)


def rebind_block(block: Block, values: Mapping[str, Expr], simplifier: Simplifier) -> Block:
    """Replace loop variables in the bindings and the predicate of one block."""
    iters = tuple(
        item.replace(binding=simplifier.simplify(substitute(item.binding, values))) for item in block.iters
    )
    predicate = block.predicate
    if predicate is not None:
        predicate = all_of(simplifier.simplify(substitute(predicate, values)))
    return block.replace(iters=iters, predicate=predicate)


def add_predicate(stmt: Stmt, cond: Expr) -> Stmt:
    """Run the blocks of a subtree only where `cond` (over loop variables) holds."""
    return map_blocks(stmt, lambda block: block.replace(predicate=all_of(block.predicate, cond)))


def duplicate(stmt: Stmt, fresh: Callable[[str], str]) -> Stmt:
    """A copy of a subtree in which loops, blocks and iteration variables have fresh names."""
    names: dict[str, Expr] = {}
    blocks: dict[str, str] = {}
    for item in statements(stmt):
        if isinstance(item, For | Let):
            names[item.var.name] = item.var.replace(name=fresh(item.var.name))
        elif isinstance(item, Block):
            blocks[item.name] = fresh(item.name)
            names.update({it.var.name: it.var.replace(name=fresh(it.var.name)) for it in item.iters})

    def rename(item: Stmt) -> Stmt:
        new = item.map_children(lambda child: rename(child) if isinstance(child, Stmt) else child)
        return new.replace(name=blocks[new.name]) if isinstance(new, Block) else new

    return rename(substitute(stmt, names))


def nest(loops: Iterable[For], body: Stmt) -> Stmt:
    """Put `body` into copies of `loops`, outermost first."""
    for loop in reversed(tuple(loops)):
        body = loop.replace(body=body)
    return body


def spatial_iter(name: str, extent: int | Expr, binding: Expr) -> Iter:
    """A spatial iteration variable."""
    return Iter(Var(name), const(extent) if isinstance(extent, int) else extent, "spatial", binding)
