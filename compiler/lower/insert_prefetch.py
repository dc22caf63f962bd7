"""Software prefetching: what the next iteration of a loop reads comes while this one computes.

A loop with the note PREFETCH walks through a buffer, one stretch of it in each iteration. The next stretch,
or with the note AHEAD one further on, is asked for in equal parts at the steps of the loops inside, so that
the requests never come in a burst. After the last iteration they lie behind what the loop reads: most often
it is what the loop around it needs next.
Where the loop was fused of several, and some iterations read the same stretch, each asks for a part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.core.types import INDEX
from compiler.loops.annotations import AHEAD, PREFETCH
from compiler.loops.ir import (
    AddressOf,
    Buffer,
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Ramp,
    Stmt,
    Var,
    binary,
    const,
    seq,
)
from compiler.loops.linear import Linear, divisor, is_division
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier
from compiler.loops.walk import Rewriter, bind_loop, with_body


def insert_prefetch(func: Func, facts: TargetFacts) -> Func:
    """Put `prefetch` calls under the loops that are marked for it."""
    return with_body(func, _Insert(facts.l1.line).visit(func.body))


@dataclass(frozen=True, slots=True)
class _Nest:
    """Serial loops under the marked one, outermost first, around a load of the buffer.

    load: where the load begins; first, last: the elements that an iteration of the marked loop reads, beside
    what loops outside add.
    """

    loops: tuple[For, ...]
    load: Linear
    first: int
    last: int

    @property
    def steps(self) -> int:
        return math.prod(int_of(loop.extent) or 1 for loop in self.loops)


@dataclass(frozen=True, slots=True)
class _Pace:
    """How a loop walks through a buffer: elements from one stretch to the next, after so many iterations."""

    stride: int
    turns: int


def _pace(place: Linear, var: Var, lets: Mapping[str, Expr]) -> _Pace | None:
    """The pace of a loop, perhaps fused of several of which one walks; None where none or more do."""
    found = [(factor, turns) for atom, factor in place.terms.items() if (turns := _turns(atom, var, lets))]
    return _Pace(*found[0]) if len(found) == 1 else None


def _turns(atom: Expr, var: Var, lets: Mapping[str, Expr]) -> int:
    """After how many iterations of a loop an atom grows by one; 0 where it does not, or otherwise."""
    if isinstance(atom, Var) and atom.name in lets:
        return _turns(lets[atom.name], var, lets)
    if is_division(atom, "floormod"):
        return _turns(atom.a, var, lets)
    if is_division(atom, "floordiv"):
        return divisor(atom) * _turns(atom.a, var, lets)
    return int(atom == var)


@dataclass(eq=False)
class _Insert(Rewriter):
    line: int

    def visit_for(self, item: For) -> Stmt:
        done = self.parts(item)
        name = dict(item.annotations).get(PREFETCH)
        found = next((b for b in item.body.walk() if isinstance(b, Buffer) and b.name == name), None)
        return done if found is None else self._fetch(done, found)

    def _fetch(self, loop: For, buffer: Buffer) -> For:
        return loop.replace(body=self._ahead(loop, loop.body, buffer, {}))

    def _ahead(self, loop: For, stmt: Stmt, buffer: Buffer, lets: dict[str, Expr]) -> Stmt:
        """The body of the loop with requests; each branch of a condition asks for all by itself."""
        if isinstance(stmt, Let):
            return stmt.replace(
                body=self._ahead(loop, stmt.body, buffer, {**lets, stmt.var.name: stmt.value})
            )
        if isinstance(stmt, If) and stmt.orelse is not None:
            then, orelse = (self._ahead(loop, part, buffer, lets) for part in (stmt.then, stmt.orelse))
            return stmt.replace(then=then, orelse=orelse)
        nests = list(_nests(loop.replace(body=stmt), (), buffer, self.known))
        paces = {_pace(nest.load, loop.var, lets) for nest in nests}
        pace = paces.pop() if len(paces) == 1 else None
        if pace is None or pace.stride <= 0:
            return stmt  # it does not walk through the buffer
        stretch = max(nest.last for nest in nests) - min(nest.first for nest in nests) + 1
        steps, before = sum(nest.steps for nest in nests), 0
        share = -(-min(stretch, pace.stride) // (steps * pace.turns))
        turn = binary("mul", loop.var % pace.turns, steps * share) if pace.turns > 1 else const(0)
        found: dict[For, list[Stmt]] = {}
        ahead = pace.stride * dict(loop.annotations).get(AHEAD, 1)
        for nest in nests:
            first = binary("add", turn, ahead + before * share)
            calls, at = self._calls(nest, buffer, first, share)
            found.setdefault(at, []).extend(calls)
            before += nest.steps
        return _Put(found).visit(stmt)

    def _calls(self, nest: _Nest, buffer: Buffer, first: Expr, share: int) -> tuple[list[Stmt], For]:
        """The calls of one nest, and the loop at whose beginning they stand: each for a line or less."""
        line, loops = self.line // buffer.dtype.bytes, list(nest.loops)
        while len(loops) > 1 and share * (int_of(loops[-1].extent) or 1) <= line:
            share *= int_of(loops.pop().extent) or 1
        distance: Expr = const(0)
        for loop in loops:
            distance = binary("add", binary("mul", distance, loop.extent), loop.var)
        distance = binary("add", binary("mul", distance, share), first)
        inner = {item.var.name for item in nest.loops[0].walk() if isinstance(item, For)}
        fixed = {atom: factor for atom, factor in nest.load.terms.items() if not variables(atom) & inner}
        start = AddressOf(buffer, (self.known.emit(Linear(fixed, nest.load.constant)),))
        offsets = range(0, share, line)
        places = [self.known.simplify(binary("add", distance, offset)) for offset in offsets]
        return [Evaluate(Call("prefetch", (start, place), INDEX)) for place in places], loops[-1]


def _nests(stmt: Stmt, around: tuple[For, ...], buffer: Buffer, sim: Simplifier) -> Iterator[_Nest]:
    """The innermost serial loops below a statement that load from the buffer.

    Of branches the second one: the first is for a single row, which asks for nothing. It reads as fast as
    memory gives, and the processor sees by itself what comes next.
    """
    for child in stmt.children():
        if not isinstance(child, Stmt) or (isinstance(stmt, If) and stmt.orelse and child is stmt.then):
            continue
        if not isinstance(child, For) or child.kind is not ForKind.SERIAL:
            yield from _nests(child, around, buffer, sim)
            continue
        inside = list(_nests(child, (*around, child), buffer, sim))
        yield from inside
        if not inside and (nest := _nest((*around, child), buffer, sim)):
            yield nest


def _nest(loops: tuple[For, ...], buffer: Buffer, sim: Simplifier) -> _Nest | None:
    """The nest of loops around loads from the buffer; None where the innermost one has none."""
    inner = sim
    for loop in (*loops, *(item for item in loops[-1].body.walk() if isinstance(item, For))):
        inner = bind_loop(inner, loop)
    loads = [item for item in loops[-1].body.walk() if isinstance(item, Load) and item.buffer == buffer]
    if not loads:
        return None
    names = {item.var.name for item in loops[0].walk() if isinstance(item, For)}
    found = []
    for load in loads:
        index = load.indices[0]
        begin = inner.linear(index.base if isinstance(index, Ramp) else index)
        moving = Linear(
            {atom: n for atom, n in begin.terms.items() if variables(atom) & names}, begin.constant
        )
        low, high = inner.range(moving)
        found.append((begin, low, high + index.dtype.lanes - 1))
    first, last = min(low for _, low, _ in found), max(high for _, _, high in found)
    return None if last - first == math.inf else _Nest(loops, found[0][0], int(first), int(last))


@dataclass(eq=False)
class _Put(Rewriter):
    """Puts calls at the beginning of loop bodies."""

    calls: dict[For, list[Stmt]]

    def visit_for(self, item: For) -> Stmt:
        done = self.parts(item)
        calls = self.calls.get(item, ())
        return done.replace(body=seq(*calls, done.body)) if calls else done
