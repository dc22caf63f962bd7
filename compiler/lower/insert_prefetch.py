"""Ask for memory before it is needed: what the next iteration of a loop reads comes while this one computes.

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
from compiler.lower.rewriter import Rewriter, bind_loop, with_body


def insert_prefetch(func: Func, facts: TargetFacts) -> Func:
    """Put `prefetch` calls under the loops that are marked for it."""
    return with_body(func, _Insert(facts.l1.line).visit(func.body))


@dataclass(frozen=True, slots=True)
class _Nest:
    """Serial loops under the marked one, outermost first, around a load of the buffer, and its index."""

    loops: tuple[For, ...]
    load: Linear

    @property
    def steps(self) -> int:
        return math.prod(int_of(loop.extent) or 1 for loop in self.loops)


class _Insert(Rewriter):
    def __init__(self, line: int) -> None:
        super().__init__()
        self._line = line

    def visit_for(self, item: For) -> Stmt:
        done = self.loop(item)
        name = dict(item.annotations).get(PREFETCH)
        found = next((b for b in item.body.walk() if isinstance(b, Buffer) and b.name == name), None)
        return done if found is None else self._fetch(done, found)

    def _fetch(self, loop: For, buffer: Buffer) -> For:
        nests = list(_nests(loop, (), buffer, self.sim))
        strides = {nest.load.coefficient(loop.var.name) for nest in nests}
        if len(strides) != 1 or min(strides) <= 0:
            return loop  # it does not walk through the buffer
        stretch, steps = strides.pop(), sum(nest.steps for nest in nests)
        share, before = -(-stretch // steps), 0
        found: dict[For, list[Stmt]] = {}
        for nest in nests:
            calls, at = self._calls(nest, buffer, stretch + before * share, share)
            found.setdefault(at, []).extend(calls)
            before += nest.steps
        return loop.replace(body=_Put(found).visit(loop.body))

    def _calls(self, nest: _Nest, buffer: Buffer, first: int, share: int) -> tuple[list[Stmt], For]:
        """The calls of one nest, and the loop at whose beginning they stand: each for a line or less."""
        line, loops = self._line // buffer.dtype.bytes, list(nest.loops)
        while len(loops) > 1 and share * (int_of(loops[-1].extent) or 1) <= line:
            share *= int_of(loops.pop().extent) or 1
        distance: Expr = const(0)
        for loop in loops:
            distance = binary("add", binary("mul", distance, loop.extent), loop.var)
        distance = binary("add", binary("mul", distance, share), first)
        inner = {item.var.name for item in nest.loops[0].walk() if isinstance(item, For)}
        fixed = {atom: factor for atom, factor in nest.load.terms.items() if not variables(atom) & inner}
        start = AddressOf(buffer, (self.sim.emit(Linear(fixed, nest.load.constant)),))
        offsets = range(0, share, line)
        places = [self.sim.simplify(binary("add", distance, offset)) for offset in offsets]
        return [Evaluate(Call("prefetch", (start, place), INDEX)) for place in places], loops[-1]


def _nests(stmt: Stmt, around: tuple[For, ...], buffer: Buffer, sim: Simplifier) -> Iterator[_Nest]:
    """The innermost serial loops below a statement that load from the buffer."""
    for child in stmt.children():
        if not isinstance(child, Stmt):
            continue
        if not isinstance(child, For) or child.kind is not ForKind.SERIAL:
            yield from _nests(child, around, buffer, sim)
            continue
        inside = list(_nests(child, (*around, child), buffer, bind_loop(sim, child)))
        yield from inside
        load = None if inside else _first_load(child, buffer)
        if load is not None:
            yield _Nest((*around, child), sim.linear(load))


def _first_load(stmt: Stmt, buffer: Buffer) -> Expr | None:
    """Where the first load from the buffer begins."""
    for item in stmt.walk():
        if isinstance(item, Load) and item.buffer == buffer:
            index = item.indices[0]
            return index.base if isinstance(index, Ramp) else index
    return None


class _Put(Rewriter):
    """Puts calls at the beginning of loop bodies."""

    def __init__(self, calls: dict[For, list[Stmt]]) -> None:
        super().__init__()
        self._calls = calls

    def visit_for(self, item: For) -> Stmt:
        done = self.loop(item)
        calls = self._calls.get(item, ())
        return done.replace(body=seq(*calls, done.body)) if calls else done
