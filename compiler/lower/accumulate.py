"""Vector reduction: one accumulator per lane in the loops, one horizontal combination of lanes at the end.

Vectorising a reduction loop leaves `y[i] = y[i] + sum of lanes(x)` inside the loops around it. Where those
loops do not move `i`, the sum of lanes goes behind them, and behind a last vector that is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.loops.build import identity_of
from compiler.loops.ir import (
    REGISTER,
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Load,
    ReduceLanes,
    Seq,
    Stmt,
    Store,
    const,
    seq,
)
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import variables
from compiler.loops.walk import Rewriter, with_body


def accumulate_in_vectors(func: Func) -> Func:
    """Move the combination of lanes out of the loops that only accumulate."""
    return with_body(func, _Accumulate(names_in(func.body)).visit(func.body))


@dataclass(eq=False)
class _Accumulate(Rewriter):
    """`made`: the accumulators so far."""

    names: set[str]
    made: set[Buffer] = field(default_factory=set)

    def visit_seq(self, item: Seq) -> Stmt:
        stmts = list(self.parts(item).stmts)
        at = 0
        while at + 1 < len(stmts):
            joined = self._with_last(stmts[at], stmts[at + 1])
            if joined is None:
                at += 1
            else:
                stmts[at : at + 2] = [joined]
        return seq(*stmts)

    def _with_last(self, nest: Stmt, last: Stmt) -> Stmt | None:
        """Loops that accumulate, and the statement after them, where it adds lanes to the same element."""
        if not isinstance(nest, Alloc) or nest.buffer not in self.made or not isinstance(last, Store):
            return None
        assert isinstance(nest.body, Seq)
        *loops, total = nest.body.stmts
        assert isinstance(total, Store)
        assert isinstance(total.value, Binary)
        added, wanted = _added_lanes(last), (total.value.op, nest.buffer.dtype)
        same = (last.buffer, last.indices) == (total.buffer, total.indices)
        if added is None or not same or (added.op, added.value.dtype) != wanted:
            return None
        return nest.replace(body=Seq((*loops, _update(nest.buffer, added), total)))

    def visit_for(self, item: For) -> Stmt:
        store = _only_store(item)
        added = None if store is None else _added_lanes(store)
        if store is None or added is None or not _stands_still(store, item):
            return self.parts(item)
        vector = added.value.dtype
        held = Buffer(fresh(f"{store.buffer.name}_lanes", self.names), vector, (const(1),), REGISTER)
        self.made.add(held)
        here = Load(held, (const(0),))
        start = Store(held, here.indices, Broadcast(identity_of(added.op, vector.scalar), vector.lanes))
        total = store.replace(value=store.value.replace(b=ReduceLanes(added.op, here)))
        return Alloc(held, Seq((start, _with_store(item, _update(held, added)), total)))


@dataclass(frozen=True, slots=True)
class _Lanes:
    """A vector whose lanes are combined by an operator."""

    op: str
    value: Expr


def _added_lanes(store: Store) -> _Lanes | None:
    """What a store adds to an element, where that is all it does."""
    value = store.value
    if not isinstance(value, Binary) or not isinstance(value.b, ReduceLanes) or value.op != value.b.op:
        return None
    if value.a != Load(store.buffer, store.indices) or store.mask is not None:
        return None
    reads = any(isinstance(part, Load) and part.buffer == store.buffer for part in value.b.walk())
    return None if reads else _Lanes(value.op, value.b.value)


def _update(held: Buffer, added: _Lanes) -> Store:
    here = Load(held, (const(0),))
    return Store(held, here.indices, Binary(added.op, here, added.value))


def _stands_still(store: Store, loop: For) -> bool:
    """Whether the loops do not move the element that a store adds to."""
    moved = {item.var.name for item in loop.walk() if isinstance(item, For)}
    return moved.isdisjoint(variables(store.indices[0]))


def _only_store(loop: For) -> Store | None:
    """The single store of a nest of serial loops, perhaps in branches, with nothing else in it."""
    inner: Stmt = loop
    while isinstance(inner, For | If):
        if isinstance(inner, If):
            if inner.orelse is not None:
                return None
            inner = inner.then
        elif inner.kind in (ForKind.SERIAL, ForKind.UNROLLED):
            inner = inner.body
        else:
            return None
    return inner if isinstance(inner, Store) else None


def _with_store(nest: Stmt, store: Store) -> Stmt:
    if isinstance(nest, For):
        return nest.replace(body=_with_store(nest.body, store))
    return nest.replace(then=_with_store(nest.then, store)) if isinstance(nest, If) else store
