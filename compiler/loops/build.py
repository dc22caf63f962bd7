"""Build a Func from the mathematical description of what each buffer holds.

This is how op records write their forms: every buffer is either computed point by point
(`Builder.compute`) or is a reduction (`Builder.reduce`).

>>> b = Builder("scale")
>>> x = b.input("x", (4, 8))
>>> y = b.compute("y", (4, 8), lambda i, j: x[i, j] * 2.0)
>>> func = b.finish([y])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler.core.types import F32, INDEX, DType
from compiler.loops.ir import (
    CONSTANT,
    REGISTER,
    Alloc,
    Block,
    Buffer,
    Expr,
    ExprLike,
    For,
    Func,
    Iter,
    Load,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
    binary,
    const,
    seq,
    wrap,
)
from compiler.loops.names import fresh
from compiler.loops.regions import block_regions

COMBINERS: dict[str, str] = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
"""Name of a reduction -> the binary operation that combines two values."""


COMBINING = frozenset(COMBINERS.values())
"""The binary operations that reductions combine values with."""


def identity_of(op: str, dtype: DType) -> Expr:
    """The neutral element of a combining operation for a scalar type."""
    if op in ("add", "mul"):
        return const(0 if op == "add" else 1, dtype)
    sign = {"max": -1, "min": 1}[op]
    if dtype.is_float:
        return const(sign * float("inf"), dtype)
    if not dtype.is_signed:
        return const(0 if op == "max" else 2**dtype.bits - 1, dtype)
    return const(-(2 ** (dtype.bits - 1)) if op == "max" else 2 ** (dtype.bits - 1) - 1, dtype)


class Builder:
    """Collects buffers and blocks in program order; `finish` makes the Func."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._params: list[Buffer] = []
        self._locals: list[Buffer] = []
        self._stmts: list[Stmt] = []
        self._names: set[str] = set()

    def input(self, name: str, shape: Sequence[int], dtype: DType = F32, scope: str = "global") -> Buffer:
        """Declare a parameter."""
        buffer = Buffer(self.fresh(name), dtype, tuple(const(int(n)) for n in shape), scope)
        self._params.append(buffer)
        return buffer

    def constant(self, name: str, shape: Sequence[int], dtype: DType = F32) -> Buffer:
        """Declare a parameter whose content is known at compile time (weights)."""
        return self.input(name, shape, dtype, CONSTANT)

    def compute(
        self,
        name: str,
        shape: Sequence[int],
        fn: Callable[..., ExprLike],
        dtype: DType | None = None,
        annotations: Sequence[tuple[str, Any]] = (),
    ) -> Buffer:
        """A buffer whose element at (i, j, ...) is `fn(i, j, ...)`."""
        spatial = self._iters(name, shape, "spatial")
        value = wrap(fn(*(item.var for item in spatial)), dtype or F32)
        target = self.local(name, shape, dtype or value.dtype)
        body = Store(target, tuple(item.var for item in spatial), value)
        self._emit(target.name, spatial, body, None, annotations)
        return target

    def reduce(
        self,
        name: str,
        shape: Sequence[int],
        reduce_extents: Sequence[int],
        fn: Callable[..., ExprLike],
        combiner: str = "sum",
        dtype: DType | None = None,
        annotations: Sequence[tuple[str, Any]] = (),
    ) -> Buffer:
        """A buffer that combines `fn(*spatial, *reduce)` over the reduce extents."""
        spatial = self._iters(name, shape, "spatial")
        inner = self._iters(name, reduce_extents, "reduce")
        value = wrap(fn(*(item.var for item in (*spatial, *inner))), dtype or F32)
        target = self.local(name, shape, dtype or value.dtype)
        at = tuple(item.var for item in spatial)
        start = identity_of(COMBINERS[combiner], target.dtype)
        body = Store(target, at, binary(COMBINERS[combiner], target[at], value))
        self._emit(target.name, (*spatial, *inner), body, Store(target, at, start), annotations)
        return target

    def write(
        self,
        name: str,
        target: Buffer,
        extents: Sequence[int],
        fn: Callable[..., tuple[tuple[ExprLike, ...], ExprLike]],
        annotations: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """A block that writes part of an existing buffer: `fn(*iters)` gives (indices, value).

        Blocks that fill disjoint parts (interior and border of a padded tensor, pieces of a concatenation)
        are written this way.
        """
        spatial = self._iters(name, extents, "spatial")
        indices, value = fn(*(item.var for item in spatial))
        body = Store(target, tuple(wrap(item, INDEX) for item in indices), wrap(value, target.dtype))
        self._emit(self.fresh(name), spatial, body, None, annotations)

    def perform(
        self,
        name: str,
        extents: Sequence[int],
        fn: Callable[..., Stmt],
        touches: Callable[..., tuple[Sequence[Region], Sequence[Region]]],
        annotations: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """A block of any statements, in order: what no formula for one element says (a sort, a scan).

        `fn(*iters)` gives the statements, `touches(*iters)` the boxes that they read and write. Iterations
        that write different boxes may run at the same time.
        """
        spatial = self._iters(name, extents, "spatial")
        at = tuple(item.var for item in spatial)
        reads, writes = touches(*at)
        self._place(self.fresh(name), spatial, (tuple(reads), tuple(writes)), fn(*at), None, annotations)

    def scan(
        self,
        name: str,
        shape: Sequence[int],
        start: Callable[..., ExprLike],
        update: Callable[..., ExprLike],
        dtype: DType = F32,
        annotations: Sequence[tuple[str, Any]] = (),
    ) -> Buffer:
        """A buffer whose elements along axis 0 follow from each other.

        At (0, i, ...) it is `start(i, ...)`, at (t, i, ...) `update(before, t, i, ...)`, where `before` is
        the element at (t - 1, i, ...). One block over the other axes, which computes all of axis 0 in order.
        """
        spatial = self._iters(name, shape[1:], "spatial")
        at = tuple(item.var for item in spatial)
        target = self.local(name, shape, dtype)

        def value(now: Expr) -> Expr:
            return wrap(update(target[(now - 1, *at)], now, *at), dtype)

        def step(last: Var) -> Stmt:
            return Store(target, (last + 1, *at), value(last + 1))

        first = wrap(start(*at), dtype)
        body = seq(Store(target, (const(0), *at), first), self.repeat(f"{name}_t", int(shape[0]) - 1, step))
        parts = (first, value(Var(f"{name}_t")))
        loads = [item for part in parts for item in part.walk() if isinstance(item, Load)]
        reads = dict.fromkeys(_around(item, at) for item in loads if item.buffer != target)
        regions = (tuple(reads), (region_at(target, None, *at),))
        self._place(target.name, spatial, regions, body, None, annotations)
        return target

    def repeat(self, name: str, extents: int | Sequence[int], fn: Callable[..., Stmt]) -> Stmt:
        """A loop inside a block of statements, in order: `fn(0)`, `fn(1)`, ...; or one for each extent."""
        counts = (extents,) if isinstance(extents, int) else extents
        loops = [Var(self.fresh(name)) for _ in counts]
        nest = fn(*loops)
        for var, count in zip(reversed(loops), reversed(counts), strict=True):
            nest = For(var, const(count), nest)
        return nest

    def with_cell(self, name: str, dtype: DType, fn: Callable[[Buffer], Sequence[Stmt]]) -> Stmt:
        """Statements with a variable of their own: element 0 of the buffer that `fn` gets."""
        cell = Buffer(self.fresh(name), dtype, (const(1),), REGISTER)
        return Alloc(cell, seq(*fn(cell)))

    def local(self, name: str, shape: Sequence[int], dtype: DType = F32) -> Buffer:
        """Declare a buffer that `write` fills."""
        buffer = Buffer(self.fresh(name), dtype, tuple(const(int(n)) for n in shape))
        self._locals.append(buffer)
        return buffer

    def finish(self, outputs: Sequence[Buffer], attrs: Sequence[tuple[str, Any]] = ()) -> Func:
        """Make the Func; `outputs` become its last parameters in the given order."""
        kept = tuple(item for item in self._locals if item not in outputs)
        params = (*self._params, *outputs)
        body = self._stmts[0] if len(self._stmts) == 1 else Seq(tuple(self._stmts))
        return Func(self.name, params, body, kept, len(outputs), (), tuple(attrs))

    def fresh(self, name: str) -> str:
        """`name`, or `name_1`, `name_2`, ... when it is taken."""
        return fresh(name, self._names)

    def _iters(self, name: str, extents: Sequence[int], kind: str) -> tuple[Iter, ...]:
        letter = "i" if kind == "spatial" else "r"
        made = []
        for number, extent in enumerate(extents):
            index = self.fresh(f"{name}_{letter}{number}")
            var, loop = Var(self.fresh(f"v{index}")), Var(index)
            made.append(Iter(var, const(int(extent)), kind, loop))
        return tuple(made)

    def _emit(
        self,
        name: str,
        iters: tuple[Iter, ...],
        body: Stmt,
        init: Stmt | None,
        annotations: Sequence[tuple[str, Any]],
    ) -> None:
        self._place(name, iters, block_regions(body), body, init, annotations)

    def _place(
        self,
        name: str,
        iters: tuple[Iter, ...],
        regions: tuple[tuple[Region, ...], tuple[Region, ...]],
        body: Stmt,
        init: Stmt | None,
        annotations: Sequence[tuple[str, Any]],
    ) -> None:
        block = Block(name, iters, *regions, body, init, None, tuple(annotations))
        nest: Stmt = block
        for item in reversed(iters):
            assert isinstance(item.binding, Var)
            nest = For(item.binding, item.extent, nest)
        self._stmts.append(nest)


def _around(load: Load, at: Sequence[Var]) -> Region:
    """What a load may read while only the variables `at` stand still: whole axes, but at those themselves."""
    return region_at(load.buffer, *(index if index in at else None for index in load.indices))


def region_at(buffer: Buffer, *places: Expr | None) -> Region:
    """The box of a buffer at these places of its first axes; None, and what is left out: the whole axis."""
    rest = (None,) * (len(buffer.shape) - len(places))
    rows = list(zip((*places, *rest), buffer.shape, strict=True))
    begin = tuple(const(0) if place is None else place for place, _ in rows)
    return Region(buffer, begin, tuple(extent if place is None else const(1) for place, extent in rows))
