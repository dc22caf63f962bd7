"""Vector reduction: one accumulator per lane in the loops, one horizontal combination of lanes at the end.

Vectorising a reduction loop leaves `y[i] = y[i] + sum of lanes(x)` inside the loops around it. Where those
loops do not move `i`, the sum of lanes goes behind them.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.loops.build import identity_of
from compiler.loops.ir import (
    REGISTER,
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    For,
    ForKind,
    Func,
    Load,
    ReduceLanes,
    Seq,
    Stmt,
    Store,
    const,
)
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import variables
from compiler.loops.walk import Rewriter, with_body


def accumulate_in_vectors(func: Func) -> Func:
    """Move the combination of lanes out of the loops that only accumulate."""
    return with_body(func, _Accumulate(names_in(func.body)).visit(func.body))


@dataclass(eq=False)
class _Accumulate(Rewriter):
    names: set[str]

    def visit_for(self, item: For) -> Stmt:
        store = _only_store(item)
        if store is None or not self._fits(item, store):
            return self.parts(item)
        value = store.value
        assert isinstance(value, Binary)
        assert isinstance(value.b, ReduceLanes)
        lanes = value.b.value
        vector = lanes.dtype
        held = Buffer(fresh(f"{store.buffer.name}_lanes", self.names), vector, (const(1),), REGISTER)
        here = Load(held, (const(0),))
        start = Store(held, here.indices, Broadcast(identity_of(value.op, vector.scalar), vector.lanes))
        update = Store(held, here.indices, Binary(value.op, here, lanes))
        total = Store(store.buffer, store.indices, value.replace(b=ReduceLanes(value.op, here)))
        return Alloc(held, Seq((start, _with_store(item, update), total)))

    def _fits(self, loop: For, store: Store) -> bool:
        """Whether the store accumulates lanes into an element that the loops do not move."""
        value = store.value
        if not (isinstance(value, Binary) and isinstance(value.b, ReduceLanes) and value.op == value.b.op):
            return False
        if value.a != Load(store.buffer, store.indices) or store.mask is not None:
            return False
        moved = {item.var.name for item in loop.walk() if isinstance(item, For)}
        return moved.isdisjoint(variables(store.indices[0])) and not any(
            isinstance(part, Load) and part.buffer == store.buffer for part in value.b.walk()
        )


def _only_store(loop: For) -> Store | None:
    """The single store of a nest of serial loops with nothing else in it."""
    inner: Stmt = loop
    while isinstance(inner, For):
        if inner.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            return None
        inner = inner.body
    return inner if isinstance(inner, Store) else None


def _with_store(loop: For, store: Store) -> For:
    body = _with_store(loop.body, store) if isinstance(loop.body, For) else store
    return loop.replace(body=body)
