"""Blocks that make parts of one thing: the last of them to end does what follows.

    for x bound blockIdx.x                        for x bound blockIdx.x
      for part bound blockPart                      for part bound blockPart
        parts[part, x] = ...                 ->       parts[part, x] = ...
      y[x] = sum of parts[..., x]                     last_block came[x] of 4
                                                        y[x] = sum of parts[..., x]

Each combination of the loops around has a counter of its own; they are workspace that is zero between calls.
What the last block reads comes from the last cache. So that many reads are under way together, its conditions
are asked once for many, and results are stored when all are there: compilers leave reads behind stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.diagnostics import BadInputError
from compiler.core.types import dtype
from compiler.loops.ir import (
    COUNTERS,
    GLOBAL,
    IN_PLACE,
    PART,
    RANK,
    REGISTER,
    WORKSPACE,
    Alloc,
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    If,
    LastBlock,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
    binary,
    const,
    seq,
    statements,
)
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import int_of
from compiler.loops.regions import buffers_read, buffers_written
from compiler.loops.simplify import substitute
from compiler.loops.walk import Rewriter, with_body
from compiler.lower.hoist_guards import JoinGuards

_COUNT = dtype("u32")


def part_blocks(stmt: Stmt, grid: Sequence[For], names: set[str]) -> tuple[Stmt, For | None, Buffer | None]:
    """What each block of a launch does; the loop over parts, now around it; and the counters.

    grid: the other loops over blocks. Without such a loop, the statement as it was.
    """
    first, *rest = stmt.stmts if isinstance(stmt, Seq) and stmt.stmts else (stmt,)
    loop = first if isinstance(first, For) and first.tag == PART else None
    inside = [item for item in statements(stmt) if isinstance(item, For) and item.tag == PART]
    if inside != ([] if loop is None else [loop]):
        raise _misplaced(inside[0])
    if loop is None:
        return stmt, None, None
    blocks = int_of(loop.extent)
    if blocks is None:
        raise _misplaced(loop)
    if blocks == 1 or not rest:
        return seq(loop.body, *rest), loop, None
    if hidden := [
        item.name for item in buffers_written(loop.body) & buffers_read(seq(*rest)) if item.scope != GLOBAL
    ]:
        raise _unseen(loop, sorted(hidden))
    tile, tiles = _number(grid)
    counter = Buffer(fresh("came", names), _COUNT, (const(tiles),), GLOBAL)
    return seq(loop.body, LastBlock(counter, (tile,), blocks, seq(*rest))), loop, counter


def with_counters(func: Func, counters: Sequence[Buffer]) -> Func:
    """The function with more workspace, which is zero between calls."""
    if not counters:
        return func
    attrs = dict(func.attrs)
    for name in (WORKSPACE, COUNTERS):
        attrs[name] = int(attrs.get(name, 0)) + len(counters)
    params = (*func.inputs, *counters, *func.results)
    return func.replace(params=params, attrs=tuple(attrs.items()))


def gather_reads(func: Func) -> Func:
    """In last blocks, one condition around what neighbours, or all iterations of a loop, do under it.

    And results of written out loops that read memory are kept in registers until all of them are there.
    """
    in_place = IN_PLACE in dict(func.attrs)
    return with_body(func, _InLastBlocks(names_in(func.body), in_place).visit(func.body))


_JOINED = JoinGuards(frozenset(ForKind) - {ForKind.BOUND}, waits=True)


@dataclass(eq=False)
class _InLastBlocks(Rewriter):
    names: set[str]
    in_place: bool

    def visit_lastblock(self, item: LastBlock) -> Stmt:
        body = _JOINED.visit(item.body)
        return item.replace(body=body if self.in_place else _StoreLate(self.names).visit(body))


@dataclass(eq=False)
class _StoreLate(Rewriter):
    names: set[str]

    def visit_for(self, item: For) -> Stmt:
        found = _chain(item)
        if found is None:
            return self.parts(item)
        loops, store = found
        place, count = _number(loops)
        kept = Buffer(fresh("kept", self.names), store.buffer.dtype, (const(count),), REGISTER)
        values = {loop.var.name: Var(fresh(loop.var.name, self.names)) for loop in loops}

        def late(stmt: Stmt) -> Stmt:
            if isinstance(stmt, Store):
                return substitute(stmt.replace(value=Load(kept, (place,))), values)
            done = stmt.map_bodies(late)
            if isinstance(done, For):
                return done.replace(var=values[done.var.name])
            return done.replace(cond=substitute(done.cond, values)) if isinstance(done, If) else done

        def early(stmt: Stmt) -> Stmt:
            return Store(kept, (place,), stmt.value) if isinstance(stmt, Store) else stmt.map_bodies(early)

        return Alloc(kept, seq(early(item), late(item)))


def _chain(stmt: Stmt) -> tuple[list[For], Store] | None:
    """Loops around one store to global memory of what is read from there, all written out; else None."""
    loops = []
    while not isinstance(stmt, Store):
        if isinstance(stmt, For) and stmt.kind in _WRITTEN_OUT and int_of(stmt.extent):
            loops.append(stmt)
            stmt = stmt.body
        elif _JOINED.guards(stmt):
            stmt = stmt.then
        else:
            return None
    read = {
        item.buffer for item in stmt.value.walk() if isinstance(item, Load) and item.buffer.scope == GLOBAL
    }
    plain = stmt.mask is None and stmt.buffer.scope == GLOBAL and stmt.buffer not in read
    return (loops, stmt) if read and plain else None


_WRITTEN_OUT = (ForKind.UNROLLED, ForKind.VECTORIZED)


def _number(grid: Sequence[For]) -> tuple[Expr, int]:
    """The number of a combination of iterations, and how many there are."""
    number: Expr = const(0)
    count = 1
    for loop in grid:
        extent = int_of(loop.extent)
        if extent is None:
            raise _misplaced(loop)
        number = loop.var if count == 1 else binary("add", binary("mul", number, extent), loop.var)
        count *= extent
    return number, count


def _misplaced(loop: For) -> BadInputError:
    return BadInputError(
        f"loop {loop.var.name} cannot be bound to {loop.tag}",
        where=f"loop {loop.var.name}",
        why=f"the blocks of {PART} come directly inside of the other loops over blocks, with known extents",
        hint="reorder the loop to the outside, and let what follows it be done by one of the blocks",
    )


def _unseen(loop: For, names: Sequence[str]) -> BadInputError:
    return BadInputError(
        f"loop {loop.var.name} cannot be bound to {loop.tag}",
        where=", ".join(names),
        why="what follows the loop reads there, and blocks see nothing of each other but global memory",
        hint=f"set_scope to {GLOBAL}, or bind the loop to {RANK} where blocks form clusters",
    )
