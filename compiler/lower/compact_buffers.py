"""Buffer compaction by region inference: what is allocated in loops shrinks to the box accessed there.

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
from itertools import pairwise

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.ir import (
    CLUSTER,
    SHARED,
    AddressOf,
    Alloc,
    Binary,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Indexed,
    Load,
    Ramp,
    Region,
    Stmt,
    Var,
    binary,
    const,
    statements,
)
from compiler.loops.matrix_units.tile_calls import boxes_of
from compiler.loops.queries import int_of, variables
from compiler.loops.regions import reads_of, variables_of, writes_of
from compiler.loops.simplify import Linear, Simplifier, simplify_stmt
from compiler.loops.walk import Rewriter, Scope, scoped, with_body


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
    def visit_alloc(self, item: Alloc) -> Stmt:
        buffer = item.buffer
        box = None if buffer.alias_of else _box(item, self.scope)
        strides = None if box is None else _strides(buffer, box.extent)
        if box is None or strides is None:
            return self.parts(item)
        smaller = buffer.replace(shape=tuple(const(size) for size in box.extent), strides=strides)
        return Alloc(smaller, self.visit(_shifted(item.body, item.buffer, smaller, box)))


def _shifted(body: Stmt, old: Buffer, new: Buffer, box: _Box) -> Stmt:
    """With a buffer exchanged for its smaller version: indices count the steps from the box's beginning."""

    def moved(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(_moved(*dim) for dim in zip(indices, box.begin, box.step, strict=True))

    def shift(item: IRNode) -> IRNode | None:
        if isinstance(item, Indexed) and item.buffer == old:
            return item.replace(buffer=new, indices=moved(item.indices))
        if isinstance(item, Region) and item.buffer == old:
            return item.replace(buffer=new, begin=moved(item.begin))
        return None

    return rewrite_nodes(body, shift)


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
    shape = [int_of(item) for item in buffer.shape]
    # a dimension of extent 1 may have the stride of the one inside of it
    *outer, inner = sorted(range(len(shape)), key=lambda axis: -(old[axis] or 0))
    if old[inner] != 1:
        return None
    strides = {inner: 1}
    for axis in reversed(outer):
        stride, next_stride, size = old[axis], old[inner], shape[inner]
        if stride is None or next_stride is None or size is None or stride < next_stride * size:
            return None
        dense = strides[inner] * extent[inner]
        padded = stride != next_stride * size
        strides[axis] = dense + (stride - dense) % _BANKS if padded else dense
        inner = axis
    return tuple(const(strides[axis]) for axis in range(len(shape)))


def _box(alloc: Alloc, scope: Scope) -> _Box | None:
    """The box of all accesses below an allocation; None when it is not smaller than the buffer."""
    buffer = alloc.buffer
    threads = {loop.var.name for loop in _loops_of_sharers(alloc, scope) if loop.over_threads}
    accesses: list[tuple[tuple[Expr, ...], Simplifier]] = []
    of_tiles = {arg for item in alloc.body.walk() if boxes_of(item) is not None for arg in item.children()}
    inner, vectors = set(threads), False  # the threads that share a buffer: it holds what all of them access
    for item, here in scoped(alloc.body, scope):
        inner.update(var.name for var in variables_of(item))
        if isinstance(item, AddressOf) and item.buffer == buffer and item not in of_tiles:
            return None
        tile = boxes_of(item) or ((), ())
        for box in (*reads_of(item), *writes_of(item), *tile[0], *tile[1]):
            if box.buffer == buffer:
                known = _where_reached(item, here, threads)
                accesses += [(place, known) for place in _corners(box)]
                runs = any(isinstance(index, Ramp) for index in box.begin)
                vectors = vectors or runs or any(box in boxes for boxes in tile)
    if not accesses:
        return None
    shape = tuple(int_of(item) for item in buffer.shape)
    sparse = buffer.scope not in (SHARED, CLUSTER) and not buffer.strides and not vectors
    dims = []
    for number, size in enumerate(shape):
        uses = [(access[number], known) for access, known in accesses]
        dims.append(_range(uses, inner, size, sparse=sparse))
    if any(extent is None for _, extent, _ in dims):
        return None
    lengths = tuple(extent for _, extent, _ in dims if extent is not None)
    if lengths == shape and all(int_of(begin) == 0 for begin, _, _ in dims):
        return None
    return _Box(tuple(begin for begin, _, _ in dims), lengths, tuple(step for _, _, step in dims))


def _loops_of_sharers(alloc: Alloc, scope: Scope) -> list[For]:
    """The loops whose iterations share a buffer: those of a block around it, those of a cluster inside."""
    if alloc.buffer.scope == CLUSTER:
        return [item for item in statements(alloc.body) if isinstance(item, For)]
    return [*scope.loops] if alloc.buffer.scope == SHARED else []


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


def _corners(box: Region) -> list[tuple[Expr, ...]]:
    """The first and the last element of a box; of vectors, which tensor intrinsics bring along, too."""
    first = tuple(index.base if isinstance(index, Ramp) else index for index in box.begin)
    last = tuple(_last(*dim) for dim in zip(box.begin, box.extent, strict=True))
    return [first] if last == first else [first, last]


def _last(begin: Expr, size: Expr) -> Expr:
    if isinstance(begin, Ramp):
        return begin.base + begin.stride * (begin.lanes - 1)
    return begin if size == const(1) else begin + size - 1


def _where_reached(item: IRNode, scope: Scope, threads: set[str]) -> Simplifier:
    """What is known at a node: threads that a condition around it leaves out access nothing there."""
    known, path = scope.known, (*scope.around, item)
    for outer, part in pairwise(path):
        if isinstance(outer, If) and outer.orelse is None and part is outer.then:
            known = _among(known, outer.cond, threads)
    return known


def _among(known: Simplifier, cond: Expr, threads: set[str]) -> Simplifier:
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
