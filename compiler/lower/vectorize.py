"""Vectorisation with if-conversion: loops become vectors and masks; what does not fit stays a loop.

A loop over n iterations is cut into pieces of at most one machine register: full vectors first, then the
rest, as one masked vector where the target has masks, else in powers of two. Inside a piece the loop variable
is a ramp: loads and stores whose index has stride 1 become vector accesses, other strides gather lane by
lane, conditions become masks, and a combination into an element that does not move becomes a combination of
all lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from compiler.core.capabilities import MASKED_MEMORY
from compiler.core.node import IRNode
from compiler.core.target import TargetFacts
from compiler.loops.build import COMBINING, identity_of
from compiler.loops.ir import (
    CONSTANT,
    GLOBAL,
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Ramp,
    ReduceLanes,
    Select,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Unary,
    Var,
    all_of,
    binary,
    const,
    seq,
)
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import int_of
from compiler.loops.simplify import Simplifier, simplify_stmt, substitute
from compiler.loops.walk import Rewriter, Scope, bind_loop, with_body, with_own_buffers

UNROLLED_PIECES = 4
"""Up to so many full vectors one loop is cut into an unrolled loop, beyond that into a serial one."""

_MASKED_BITS = 32


def vectorize(func: Func, target: TargetFacts) -> Func:
    """Replace the vectorised loops of a Func with flat buffers by vector code for the target's registers."""
    return with_body(func, simplify_stmt(_Vectorize(target, names_in(func.body)).visit(func.body)))


class _NotVectorizableError(Exception):
    """This loop has to stay a loop."""


@dataclass(eq=False)
class _Vectorize(Rewriter):
    target: TargetFacts
    names: set[str]

    def visit_for(self, item: For) -> Stmt:
        loop = self.parts(item)
        if loop.kind is not ForKind.VECTORIZED:
            return loop
        extent = int_of(loop.extent)
        if extent is None or self.target.vector_bits == 0:
            return loop.replace(kind=ForKind.SERIAL)
        lanes = self.target.lanes(_widest(loop.body))
        outer = self.scope
        try:
            return self._pieces(loop, extent, lanes)
        except _NotVectorizableError:
            return loop.replace(kind=ForKind.SERIAL)
        finally:
            self.scope = outer

    def _pieces(self, loop: For, extent: int, lanes: int) -> Stmt:
        """Full vectors, then the rest in powers of two."""
        done: list[Stmt] = []
        full, rest = divmod(extent, lanes)
        if full == 1:
            done.append(self._vector(loop, const(0), lanes))
        elif full > 1:
            outer = Var(fresh(f"{loop.var.name}_vec", self.names))
            self.scope = Scope(self.scope.around, self.known.bind(outer.name, 0, full - 1))
            body = self._vector(loop, binary("mul", outer, lanes), lanes)
            kind = ForKind.UNROLLED if full <= UNROLLED_PIECES else ForKind.SERIAL
            done.append(For(outer, const(full), body, kind))
        return seq(*done, *self._rest(loop, full * lanes, rest, lanes))

    def _rest(self, loop: For, start: int, rest: int, lanes: int) -> list[Stmt]:
        """The iterations after the full vectors, in pieces: each with buffers of its own."""
        if rest & (rest - 1) and self._masks(loop):
            size = min(lanes, 1 << rest.bit_length())
            try:
                return [self._vector(loop, const(start), size, rest)]  # _masks: none allocates
            except _NotVectorizableError:
                pass
        done = []
        while rest:
            size = 1 << (rest.bit_length() - 1)
            piece = loop.replace(body=with_own_buffers(loop.body, self.names)) if start else loop
            done.append(self._vector(piece, const(start), size))
            start, rest = start + size, rest - size
        return done

    def _masks(self, loop: For) -> bool:
        """Whether masked accesses are cheap, and no private buffer would be accessed under a mask."""
        if MASKED_MEMORY not in self.target.intrinsics:
            return False
        return all(
            item.buffer.scope in (GLOBAL, CONSTANT) and item.buffer.dtype.bits == _MASKED_BITS
            for item in loop.body.walk()
            if isinstance(item, Load | Store)
        )

    def _vector(self, loop: For, base: Expr, lanes: int, count: int | None = None) -> Stmt:
        """The body for iterations base .. base + lanes - 1, or the first `count` of them, all at once."""
        if lanes == 1:
            return substitute(loop.body, {loop.var.name: base})
        lane = Var(fresh(f"{loop.var.name}_lane", self.names))
        body = substitute(loop.body, {loop.var.name: binary("add", base, lane)})
        mask = None
        if count is not None:
            mask = Binary("lt", Ramp(const(0), const(1), lanes), Broadcast(const(count), lanes))
        return _Lanes(lane, lanes, self.known.bind(lane.name, 0, lanes - 1)).stmt(body, mask)


def _widest(body: Stmt) -> int:
    """Bits of the widest element that is loaded or stored."""
    return max((item.buffer.dtype.bits for item in body.walk() if isinstance(item, Load | Store)), default=32)


@dataclass(eq=False)
class _Lanes:
    """Turns statements over one lane into statements over all lanes of a piece."""

    lane: Var
    lanes: int
    sim: Simplifier
    private: dict[Buffer, Buffer] = field(default_factory=dict)
    vectors: dict[str, Var] = field(default_factory=dict)

    # ------------------------------------------------------------ statements

    def stmt(self, item: Stmt, mask: Expr | None) -> Stmt:
        """A statement for all lanes where `mask` holds."""
        rule = self._STATEMENTS.get(type(item))
        if rule is None:
            raise _NotVectorizableError
        return cast(Stmt, rule(self, item, mask))

    def _seq(self, item: Seq, mask: Expr | None) -> Stmt:
        return seq(*(self.stmt(part, mask) for part in item.stmts))

    def _for(self, item: For, mask: Expr | None) -> Stmt:
        if self._varies(item.extent) or item.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            raise _NotVectorizableError
        outer = self.sim
        self.sim = bind_loop(outer, item)
        body = self.stmt(item.body, mask)
        self.sim = outer
        return item.replace(body=body)

    def _if(self, item: If, mask: Expr | None) -> Stmt:
        cond = self.expr(self.sim.simplify(item.cond), None)  # often the same in all lanes of a whole vector
        if cond.dtype.lanes == 1:
            orelse = None if item.orelse is None else self.stmt(item.orelse, mask)
            return If(cond, self.stmt(item.then, mask), orelse)
        done = [self.stmt(item.then, all_of(mask, cond))]
        if item.orelse is not None:
            done.append(self.stmt(item.orelse, all_of(mask, Unary("not", cond))))
        return seq(*done)

    def _let(self, item: Let, mask: Expr | None) -> Stmt:
        value = self.expr(item.value, mask)
        if value.dtype.lanes == 1:
            return item.replace(value=value, body=self.stmt(item.body, mask))
        var = Var(item.var.name, value.dtype)
        self.vectors[item.var.name] = var
        return Let(var, value, self.stmt(item.body, mask))

    def _alloc(self, item: Alloc, mask: Expr | None) -> Stmt:
        """Each lane has its own copy; copies of one element lie side by side."""
        buffer = item.buffer
        wide = buffer.replace(shape=(binary("mul", buffer.shape[0], self.lanes),))
        self.private[buffer] = wide
        return Alloc(wide, self.stmt(item.body, mask))

    def _store(self, item: Store, mask: Expr | None) -> Stmt:
        if item.mask is not None:
            raise _NotVectorizableError
        index = self._index(item.buffer, item.indices[0], mask)
        if index.dtype.lanes == 1:
            return self._combine(item, index, mask)
        value = self._wide(self.expr(item.value, mask))
        return Store(self.private.get(item.buffer, item.buffer), (index,), value, mask)

    def _combine(self, item: Store, index: Expr, mask: Expr | None) -> Stmt:
        """All lanes meet in one element: their combination is combined with it."""
        value = item.value
        if not isinstance(value, Binary) or value.op not in COMBINING:
            if mask is None and not self._varies(value):
                return item.replace(indices=(index,), value=self.expr(value, None))
            raise _NotVectorizableError
        here = Load(item.buffer, item.indices)
        other = value.b if value.a == here else value.a if value.b == here else None
        if other is None or any(load == here for load in other.walk()):
            raise _NotVectorizableError
        lanes = self._wide(self.expr(other, mask))
        if mask is not None:
            lanes = Select(mask, lanes, Broadcast(identity_of(value.op, other.dtype.scalar), self.lanes))
        total = Binary(value.op, here.replace(indices=(index,)), ReduceLanes(value.op, lanes))
        return Store(item.buffer, (index,), total)

    # ------------------------------------------------------------ expressions

    def expr(self, item: Expr, mask: Expr | None) -> Expr:
        """A value for all lanes: a scalar where the lanes agree, else a vector."""
        if not self._varies(item):
            if mask is not None and not self._safe(item):
                raise _NotVectorizableError
            return self.sim.simplify(item)
        rule = self._EXPRESSIONS.get(type(item))
        if rule is None or item.dtype.lanes != 1:
            raise _NotVectorizableError
        return cast(Expr, rule(self, item, mask))

    def _varies(self, item: IRNode) -> bool:
        """Whether a value depends on the lane."""
        for part in item.walk():
            if isinstance(part, Var) and (part == self.lane or part.name in self.vectors):
                return True
            if isinstance(part, Load) and part.buffer in self.private:
                return True
        return False

    def _safe(self, item: Expr) -> bool:
        """Whether a value may be computed although no lane needs it: its loads stay inside their buffers."""
        loads = (part for part in item.walk() if isinstance(part, Load))
        return all(self._inside(part.buffer, part.indices[0]) for part in loads)

    def _wide(self, item: Expr) -> Expr:
        return item if item.dtype.lanes > 1 else Broadcast(item, self.lanes)

    def _var(self, item: Var, mask: Expr | None) -> Expr:  # noqa: ARG002 - a rule's
        known = self.vectors.get(item.name)
        return Ramp(const(0), const(1), self.lanes) if known is None else known

    def _binary(self, item: Binary, mask: Expr | None) -> Expr:
        if item.dtype.is_int and not any(isinstance(part, Load) for part in item.walk()):
            ramp = self._ramp(item)
            if ramp is not None:
                return ramp
        return Binary(item.op, self._wide(self.expr(item.a, mask)), self._wide(self.expr(item.b, mask)))

    def _unary(self, item: Unary, mask: Expr | None) -> Expr:
        return Unary(item.op, self.expr(item.a, mask))

    def _cast(self, item: Cast, mask: Expr | None) -> Expr:
        value = self.expr(item.value, mask)
        return Cast(item.type.with_lanes(value.dtype.lanes), value)

    def _call(self, item: Call, mask: Expr | None) -> Expr:
        args = tuple(self._wide(self.expr(arg, mask)) for arg in item.args)
        return Call(item.name, args, item.type.with_lanes(self.lanes))

    def _select(self, item: Select, mask: Expr | None) -> Expr:
        cond = self.expr(item.cond, mask)
        if cond.dtype.lanes == 1:
            return Select(cond, self._wide(self.expr(item.a, mask)), self._wide(self.expr(item.b, mask)))
        is_place = _decides_places(item)
        a = self._wide(self.expr(item.a, all_of(mask, cond) if is_place else mask))
        b = self._wide(self.expr(item.b, all_of(mask, Unary("not", cond)) if is_place else mask))
        if isinstance(a, Load) and a.mask == cond and a.other == b:
            return a
        return Select(cond, a, b)

    def _load(self, item: Load, mask: Expr | None) -> Expr:
        if item.mask is not None:
            raise _NotVectorizableError
        buffer = self.private.get(item.buffer, item.buffer)
        index = self._index(item.buffer, item.indices[0], mask)
        if index.dtype.lanes > 1 and not isinstance(index, Ramp) and mask is None:
            return self._lane_by_lane(item)
        if mask is None or self._inside(buffer, index):
            return Load(buffer, (index,))
        if index.dtype.lanes == 1:
            raise _NotVectorizableError
        zero = const(0, buffer.dtype)
        return Load(buffer, (index,), mask, Broadcast(zero, self.lanes))

    def _lane_by_lane(self, item: Load) -> Expr:
        """A load whose index is computed for each lane on its own, unless it depends on loaded numbers."""
        index = item.indices[0]
        if any(
            isinstance(part, Load) or (isinstance(part, Var) and part.name in self.vectors)
            for part in index.walk()
        ):
            return Load(item.buffer, (self.expr(index, None),))
        lanes = range(self.lanes)
        each = [self.sim.simplify(substitute(index, {self.lane.name: const(lane)})) for lane in lanes]
        return Shuffle(tuple(Load(item.buffer, (at,)) for at in each), tuple(lanes))

    def _index(self, buffer: Buffer, index: Expr, mask: Expr | None) -> Expr:
        """Where lanes access a buffer; an index that is loaded itself is there for lanes of the mask only."""
        if buffer in self.private:
            base = self.expr(index, None)
            if base.dtype.lanes > 1:
                raise _NotVectorizableError
            return Ramp(binary("mul", base, self.lanes), const(1), self.lanes)
        return self._ramp(index) or self.expr(index, mask)

    def _ramp(self, index: Expr) -> Expr | None:
        """The index as a ramp (or a scalar), when it is linear in the lane."""
        linear = self.sim.linear(index)
        stride = linear.coefficient(self.lane.name)
        rest = linear.plus(self.sim.linear(self.lane), -stride)
        base = self.sim.emit(rest)
        if self._varies(base):
            return None
        return Ramp(base, const(stride), self.lanes) if stride else base

    def _inside(self, buffer: Buffer, index: Expr) -> bool:
        """Whether the access is surely inside the buffer in every lane."""
        size = int_of(buffer.shape[0])
        base, reach = index, 0
        if isinstance(index, Ramp) and isinstance(index.stride, Const):
            base, reach = index.base, int(index.stride.value) * (self.lanes - 1)
        if size is None or base.dtype.lanes > 1:
            return False
        low, high = self.sim.interval(base)
        return (
            low is not None and high is not None and low + min(reach, 0) >= 0 and high + max(reach, 0) < size
        )

    _STATEMENTS: ClassVar[dict[type[IRNode], Callable[..., Any]]] = {
        Seq: _seq,
        For: _for,
        If: _if,
        Let: _let,
        Alloc: _alloc,
        Store: _store,
    }
    _EXPRESSIONS: ClassVar[dict[type[IRNode], Callable[..., Any]]] = {
        Var: _var,
        Binary: _binary,
        Unary: _unary,
        Cast: _cast,
        Call: _call,
        Select: _select,
        Load: _load,
    }


def _decides_places(item: Select) -> bool:
    """Whether the condition may keep a branch's loads inside their buffers.

    One on loaded numbers does where the places come from loaded numbers, too. Else it would be written out
    again in the mask of every load, twice for each Select inside another one.
    """
    if not _loads(item.cond):
        return True
    return any(
        map(_loads, (index for value in (item.a, item.b) for one in _loads(value) for index in one.indices))
    )


def _loads(value: Expr) -> list[Load]:
    return [part for part in value.walk() if isinstance(part, Load)]
