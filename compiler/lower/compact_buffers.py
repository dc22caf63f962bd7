"""A buffer that is allocated inside loops shrinks to the box that is accessed there.

For each dimension the accesses are written as (part that is fixed outside the allocation) + (rest). Where
the fixed parts agree, the box begins at fixed part + smallest rest, and is as long as the rest varies.
Private memory of which every n-th place is accessed keeps these alone.
Memory that threads share holds what all of them access, wherever it is declared; threads that a condition
leaves out access nothing. Rows that were padded
(storage_align) keep their distance modulo the number of banks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.core.node import Node
from compiler.loops.ir import (
    SHARED,
    AddressOf,
    Alloc,
    AsyncCopy,
    AtomicUpdate,
    Binary,
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Ramp,
    Region,
    Stmt,
    Store,
    Var,
    binary,
    const,
)
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Linear, Simplifier, simplify_stmt
from compiler.lower.rewriter import Rewriter, bind_loop, extents, with_body

ACCESSES = (Load, Store, AtomicUpdate, AddressOf)


def compact_buffers(func: Func) -> Func:
    """Shrink every `Alloc` whose accesses stay inside a smaller box; indices become relative to it."""
    body = _Compact().visit(func.body)
    return func if body is func.body else with_body(func, simplify_stmt(body))


@dataclass(frozen=True, slots=True)
class _Box:
    begin: tuple[Expr, ...]
    extent: tuple[int, ...]
    step: tuple[int, ...]


class _Compact(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._threads: frozenset[str] = frozenset()

    def visit_for(self, item: For) -> Stmt:
        outer = self._threads
        if item.kind is ForKind.BOUND and (item.tag or "").startswith("threadIdx."):
            self._threads = outer | {item.var.name}
        done = self.loop(item)
        self._threads = outer
        return done

    def visit_alloc(self, item: Alloc) -> Stmt:
        buffer = item.buffer
        together = self._threads if buffer.scope == SHARED else frozenset()
        box = None if buffer.alias_of else _box(item, self.sim, together)
        strides = None if box is None else _strides(buffer, box.extent)
        if box is None or strides is None:
            return self.children(item)
        smaller = buffer.replace(shape=tuple(const(size) for size in box.extent), strides=strides)
        body = _Shift(item.buffer, smaller, box).visit(item.body)
        assert isinstance(body, Stmt)
        return Alloc(smaller, self.visit(body))


class _Shift(Rewriter):
    """Exchanges a buffer for its smaller version: indices count the steps from the beginning of the box."""

    def __init__(self, old: Buffer, new: Buffer, box: _Box) -> None:
        super().__init__()
        self._old = old
        self._new = new
        self._box = box

    def visit(self, item: Node) -> Node:  # type: ignore[override]  # regions, too
        done = self.children(item)
        if isinstance(done, ACCESSES) and done.buffer == self._old:
            return done.replace(buffer=self._new, indices=self._moved(done.indices))
        if isinstance(done, Region) and done.buffer == self._old:
            return done.replace(buffer=self._new, begin=self._moved(done.begin))
        return done

    def children(self, item: Node) -> Node:  # type: ignore[override]  # regions, too
        return item if isinstance(item, Buffer) else item.map_children(self.visit)

    def _moved(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        dims = zip(indices, self._box.begin, self._box.step, strict=True)
        return tuple(_moved(index, begin, step) for index, begin, step in dims)


def _moved(index: Expr, begin: Expr, step: int) -> Expr:
    if isinstance(index, Ramp):
        return index.replace(base=binary("sub", index.base, begin))
    moved = binary("sub", index, begin)
    return moved if step == 1 else binary("floordiv", moved, step)


_BANKS = 32
"""Padding of rows keeps their distance modulo so many elements."""


def _strides(buffer: Buffer, extent: tuple[int, ...]) -> tuple[Expr, ...] | None:
    """Strides of the smaller box: padded rows stay padded; None where strides are no padding of rows."""
    if not buffer.strides:
        return ()
    old = [int_of(item) for item in buffer.strides]
    shape = extents(buffer)
    strides = [1]
    for axis in reversed(range(len(shape) - 1)):
        stride, inner, size = old[axis], old[axis + 1], shape[axis + 1]
        if stride is None or inner is None or size is None or old[-1] != 1 or stride < inner * size:
            return None
        dense = strides[0] * extent[axis + 1]
        padded = stride != inner * size
        strides.insert(0, dense + (stride - dense) % _BANKS if padded else dense)
    return tuple(const(item) for item in strides)


def _box(alloc: Alloc, sim: Simplifier, together: frozenset[str]) -> _Box | None:
    """The box of all accesses below an allocation; None when it is not smaller than the buffer.

    `together` are variables of threads that share the buffer, so that it holds what all of them access.
    """
    found = _Accesses(alloc.buffer, sim, together)
    found.visit(alloc.body)
    if not found.indices or found.unknown:
        return None
    shape = extents(alloc.buffer)
    sparse = alloc.buffer.scope != SHARED and not alloc.buffer.strides and not found.vectors
    dims = []
    for number, size in enumerate(shape):
        uses = [(access[number], inner) for access, inner in found.indices]
        dims.append(_range(uses, found.inner, size, sparse=sparse))
    if any(extent is None for _, extent, _ in dims):
        return None
    lengths = tuple(extent for _, extent, _ in dims if extent is not None)
    if lengths == shape and all(int_of(begin) == 0 for begin, _, _ in dims):
        return None
    return _Box(tuple(begin for begin, _, _ in dims), lengths, tuple(step for _, _, step in dims))


def _range(
    uses: list[tuple[Expr, Simplifier]], inner: set[str], size: int | None, *, sparse: bool
) -> tuple[Expr, int | None, int]:
    """Beginning, length and step of one dimension."""
    split = [_split(index, inner, known) for index, known in uses]
    if any(item is None for item in split):
        return const(0), size, 1
    parts = [item for item in split if item is not None]
    if any(part.fixed.terms != parts[0].fixed.terms for part in parts):
        return const(0), size, 1
    low = min(part.low + part.fixed.constant for part in parts)
    high = max(part.high + part.fixed.constant for part in parts)
    step = math.gcd(*(n for part in parts for n in (part.step, part.low + part.fixed.constant - low)))
    step = step if sparse and step > 1 else 1
    length = (high - low) // step + 1
    if size is not None and length >= size:
        return const(0), size, 1
    begin = Linear(parts[0].fixed.terms, low)
    return uses[0][1].emit(begin), length, step


@dataclass(frozen=True, slots=True)
class _Parts:
    """An index as fixed part and rest: the range of the rest, of which it takes every `step`-th value."""

    fixed: Linear
    low: int
    high: int
    step: int


def _split(index: Expr, inner: set[str], known: Simplifier) -> _Parts | None:
    """Fixed part and range of the rest; None when the rest is unbounded or mixes both in one atom."""
    linear = known.linear(index)
    fixed: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    for atom, factor in linear.terms.items():
        names = variables(atom)
        if any(isinstance(item, Load) for item in atom.walk()):
            return None
        (rest if names & inner else fixed)[atom] = factor
    low, high = known.range(Linear(rest, 0))
    if low == float("-inf") or high == float("inf"):
        return None
    return _Parts(Linear(fixed, linear.constant), int(low), int(high), math.gcd(*rest.values()))


class _Accesses:
    """Collects the indices of a buffer, each with what is known where it stands."""

    def __init__(self, buffer: Buffer, sim: Simplifier, threads: frozenset[str]) -> None:
        self._buffer = buffer
        self._sim = sim
        self._threads = threads
        self.inner: set[str] = set(threads)
        self.indices: list[tuple[tuple[Expr, ...], Simplifier]] = []
        self.unknown = False
        self.vectors = False

    def visit(self, item: Node) -> None:
        if isinstance(item, For | Let):
            self.inner.add(item.var.name)
        if isinstance(item, AddressOf) and item.buffer == self._buffer:
            self.unknown = True
        elif isinstance(item, AsyncCopy):
            boxes = [box for box in (item.target, item.source) if box.buffer == self._buffer]
            self.indices += [(place, self._sim) for box in boxes for place in _corners(box)]
        elif isinstance(item, ACCESSES) and item.buffer == self._buffer:
            self.indices += [(place, self._sim) for place in _ends(item.indices)]
            self.vectors = self.vectors or any(isinstance(index, Ramp) for index in item.indices)
        outer = self._sim
        if isinstance(item, For):
            self._sim = bind_loop(outer, item)
        for child in item.children():
            if isinstance(item, If) and item.orelse is None and child is item.then:
                self._sim = _among(outer, item.cond, self._threads)
            if not isinstance(child, Buffer):
                self.visit(child)
        self._sim = outer


def _corners(box: Region) -> list[tuple[Expr, ...]]:
    """The first and the last element of a box."""
    last = tuple(begin + extent - 1 for begin, extent in zip(box.begin, box.extent, strict=True))
    return [box.begin, last]


def _ends(indices: tuple[Expr, ...]) -> list[tuple[Expr, ...]]:
    """The place of an access; of vectors, which tensor intrinsics bring along, the first and the last one."""
    if not any(isinstance(index, Ramp) for index in indices):
        return [indices]
    first = tuple(index.base if isinstance(index, Ramp) else index for index in indices)
    last = tuple(
        index.base + index.stride * (index.lanes - 1) if isinstance(index, Ramp) else index
        for index in indices
    )
    return [first, last]


def _among(known: Simplifier, cond: Expr, threads: frozenset[str]) -> Simplifier:
    """What is known where a condition like `thread < 16` or `thread // 8 < 2` holds."""
    if isinstance(cond, Binary) and cond.op == "and":
        return _among(_among(known, cond.a, threads), cond.b, threads)
    if not isinstance(cond, Binary) or cond.op != "lt":
        return known
    var, limit = cond.a, int_of(cond.b)
    if limit is not None and isinstance(var, Binary) and var.op == "floordiv":
        size = int_of(var.b)
        var, limit = var.a, limit * size if size is not None and size > 0 else None
    if limit is None or not isinstance(var, Var) or var.name not in threads:
        return known
    low, high = known.interval(var)
    if low is None or high is None or not low < limit <= high:
        return known
    return known.bind(var.name, low, limit - 1)
