"""Software prefetching: what the next iteration of a loop reads comes while this one computes.

A loop with the note PREFETCH walks through a buffer, one stretch of it in each iteration. The next stretch is
asked for in equal parts at the steps of the loops inside, so that the requests never come in a burst. After
the last iteration they lie behind what the loop reads: most often it is what the loop around it needs next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.core.types import INDEX
from compiler.loops.annotations import PREFETCH
from compiler.loops.ir import (
    AddressOf,
    Buffer,
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    Func,
    Load,
    Ramp,
    Stmt,
    binary,
    const,
    seq,
)
from compiler.loops.linear import Linear
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


@dataclass(eq=False)
class _Insert(Rewriter):
    line: int

    def visit_for(self, item: For) -> Stmt:
        done = self.parts(item)
        name = dict(item.annotations).get(PREFETCH)
        found = next((b for b in item.body.walk() if isinstance(b, Buffer) and b.name == name), None)
        return done if found is None else self._fetch(done, found)

    def _fetch(self, loop: For, buffer: Buffer) -> For:
        nests = list(_nests(loop, (), buffer, self.known))
        strides = {nest.load.coefficient(loop.var.name) for nest in nests}
        if len(strides) != 1 or min(strides) <= 0:
            return loop  # it does not walk through the buffer
        stride, steps = strides.pop(), sum(nest.steps for nest in nests)
        stretch = max(nest.last for nest in nests) - min(nest.first for nest in nests) + 1
        share, before = -(-min(stretch, stride) // steps), 0
        found: dict[For, list[Stmt]] = {}
        for nest in nests:
            calls, at = self._calls(nest, buffer, stride + before * share, share)
            found.setdefault(at, []).extend(calls)
            before += nest.steps
        return loop.replace(body=_Put(found).visit(loop.body))

    def _calls(self, nest: _Nest, buffer: Buffer, first: int, share: int) -> tuple[list[Stmt], For]:
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
    """The innermost serial loops below a statement that load from the buffer."""
    for child in stmt.children():
        if not isinstance(child, Stmt):
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
