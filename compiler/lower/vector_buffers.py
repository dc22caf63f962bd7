"""Scalar replacement of vectors: private buffers that are only accessed as whole vectors hold vectors.

An accumulator tile of 2 x 14 x 16 floats becomes 28 vectors of 16, which a register machine can name.

Where one statement alone stores to a private buffer, each time another vector and not in all lanes, nobody
can tell what the others hold: it stores whole vectors then.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.ir import (
    REGISTER,
    SCRATCH,
    Alloc,
    Buffer,
    Expr,
    Func,
    Indexed,
    Ramp,
    Region,
    Store,
    const,
)
from compiler.loops.queries import int_of
from compiler.loops.simplify import Simplifier
from compiler.loops.walk import AccessRewriter, Rewriter, Scope, scoped, with_body

_PRIVATE = (REGISTER, SCRATCH)


def retype_vector_buffers(func: Func) -> Func:
    """Give private buffers a vector element type where every access allows it."""
    return with_body(func, _Retype().visit(func.body))


class _Retype(Rewriter):
    def visit_alloc(self, item: Alloc) -> Alloc:
        buffer = item.buffer
        private = buffer.scope in _PRIVATE and not buffer.alias_of
        item = _unmasked(item, self.scope) if private else item
        buffer = item.buffer
        lanes = _common_lanes(item, self.scope) if private else 0
        size = int_of(buffer.shape[0])
        if lanes < 2 or size is None:
            return self.parts(item)
        count = const(-(-size // lanes))
        vectors = buffer.replace(dtype=buffer.dtype.with_lanes(lanes), shape=(count,))
        body = _Exchange(buffer, vectors, lanes, scope=self.scope).visit(item.body)
        return self.parts(item.replace(buffer=vectors, body=body))


@dataclass(eq=False)
class _Exchange(AccessRewriter):
    old: Buffer
    new: Buffer
    lanes: int

    def place(self, item: Indexed | Region) -> IRNode:
        if not isinstance(item, Indexed) or item.buffer != self.old:
            return item
        return item.replace(buffer=self.new, indices=(self._number(item.indices[0]),))

    def _number(self, index: Expr) -> Expr:
        assert isinstance(index, Ramp)
        linear = self.known.linear(index.base)
        terms = {atom: factor // self.lanes for atom, factor in linear.terms.items()}
        return self.known.emit(type(linear)(terms, linear.constant // self.lanes))


def _unmasked(alloc: Alloc, scope: Scope) -> Alloc:
    """With the only store to the buffer in all lanes of a vector; loads in its value keep their masks."""
    nodes = scoped(alloc.body, scope)
    stores = [(item, here) for item, here in nodes if isinstance(item, Store) and item.buffer == alloc.buffer]
    if len(stores) != 1:
        return alloc
    ((store, here),) = stores
    if store.mask is None or not _aligned(store.indices[0], here.known):
        return alloc
    if not _apart(store.indices[0], here.known):
        return alloc
    whole = store.replace(mask=None)
    made = alloc.replace(body=rewrite_nodes(alloc.body, lambda item: whole if item == store else None))
    return _with_room(made, store.indices[0], here.known)


def _with_room(alloc: Alloc, index: Expr, sim: Simplifier) -> Alloc:
    """With place for the last vector, of whose lanes some lay behind the buffer."""
    assert isinstance(index, Ramp)
    last, size = sim.interval(index.base)[1], int_of(alloc.buffer.shape[0])
    if last is None or size is None or last + index.lanes <= size:
        return alloc
    wide = alloc.buffer.replace(shape=(const(last + index.lanes),))
    return rewrite_nodes(alloc, lambda item: wide if item == alloc.buffer else None)


def _apart(index: Expr, sim: Simplifier) -> bool:
    """Whether every iteration stores a vector of its own, so that no lane is another iteration's."""
    assert isinstance(index, Ramp)
    reach = index.lanes
    for atom, factor in sorted(sim.linear(index.base).terms.items(), key=lambda term: abs(term[1])):
        low, high = sim.interval(atom)
        if abs(factor) < reach or low is None or high is None:
            return False
        reach += abs(factor) * (high - low)
    return True


def _common_lanes(alloc: Alloc, scope: Scope) -> int:
    """The one number of lanes of all accesses to a buffer; 0 when they differ or are not aligned."""
    lanes: set[int] = set()
    for item, here in scoped(alloc.body, scope):
        if isinstance(item, Indexed) and item.buffer == alloc.buffer:
            masked = getattr(item, "mask", None) is not None
            lanes.add(0 if masked else _aligned(item.indices[0], here.known))
    return lanes.pop() if len(lanes) == 1 else 0


def _aligned(index: Expr, sim: Simplifier) -> int:
    if not isinstance(index, Ramp) or index.stride != const(1):
        return 0
    linear = sim.linear(index.base)
    steps = (*linear.terms.values(), linear.constant)
    return index.lanes if all(step % index.lanes == 0 for step in steps) else 0
