"""Work beyond what a run has is left out: tiles of results behind the end of an axis are not computed.

A function's attribute EXTENTS says how much of each axis of its results a run has. Here loops over tiles of
such an axis get a branch: where even the first place of a tile is beyond the end, nothing is computed.
Results that others read there as a certain number get that number instead. Places beyond within the last tile
are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compiler.core.node import IRNode, rewrite_nodes
from compiler.core.types import DType
from compiler.loops.ir import (
    EXTENTS,
    SYMBOLS,
    Binary,
    Block,
    Const,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Stmt,
    Store,
    Var,
    binary,
    const,
    minimum,
    statements,
)
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import int_of, variables
from compiler.loops.regions import buffers_read, buffers_written
from compiler.loops.simplify import simplify, substitute
from compiler.loops.walk import Rewriter, with_body

_TILED = (ForKind.SERIAL, ForKind.PARALLEL)


@dataclass(frozen=True, slots=True)
class _Axis:
    """How much of an axis of a result a run has, and what others read beyond."""

    end: Expr
    fill: Const | None


def limit_loops(func: Func) -> Func:
    """Scheduled loops -> the same with branches around what a run does not have."""
    attrs = dict(func.attrs)
    ranges, rows = attrs.get(SYMBOLS, ()), attrs.get(EXTENTS, ())
    if not ranges or not rows:
        return func
    names = names_in(func.body)
    symbols = [Var(fresh(f"size{number}", names)) for number in range(len(ranges))]
    dims = tuple(Dim(symbol, low, high) for symbol, (low, high) in zip(symbols, ranges, strict=True))
    axes = {
        (func.params[row[0]].name, row[1]): _axis(row, symbols, func.params[row[0]].dtype) for row in rows
    }
    limited = with_body(func, _LimitLoops(func, axes).visit(func.body))
    return limited if limited.body is func.body else limited.replace(dims=dims)


def shorten_loops(func: Func) -> Func:
    """Loops whose last iterations do nothing, as a branch says -> loops that end before them."""

    def step(item: IRNode) -> IRNode | None:
        if not isinstance(item, For) or item.kind not in _TILED:
            return None
        branch = item.body
        if not isinstance(branch, If) or branch.orelse is not None:
            return None
        tiles = _tiles(item.var, branch.cond)
        return None if tiles is None else item.replace(extent=minimum(item.extent, tiles), body=branch.then)

    return func if not func.dims else with_body(func, rewrite_nodes(func.body, step))


def _tiles(var: Var, cond: Expr) -> Expr | None:
    """For how many values from 0 on a condition `var * stride < end` holds; None for any other condition."""
    if not isinstance(cond, Binary) or cond.op != "lt" or var.name in variables(cond.b):
        return None
    if cond.a == var:
        return cond.b
    first = cond.a
    if not isinstance(first, Binary) or first.op != "mul" or first.a != var:
        return None
    stride = int_of(first.b)
    return None if stride is None else (cond.b + (stride - 1)) // stride


def _axis(row: Sequence[Any], symbols: Sequence[Var], kind: DType) -> _Axis:
    _, _, fill, offset, divisor, *factors = row
    end: Expr = const(offset)
    for factor, symbol in zip(factors, symbols, strict=True):
        if factor:
            end = binary("add", end, symbol if factor == 1 else binary("mul", symbol, const(factor)))
    if divisor != 1:
        end = end // divisor
    return _Axis(simplify(end), None if fill is None else const(fill, kind))


@dataclass(eq=False)
class _LimitLoops(Rewriter):
    func: Func
    axes: Mapping[tuple[str, int], _Axis]

    def visit_for(self, item: For) -> Stmt:
        found = _beyond(item, self.func, self.axes) if item.kind in _TILED else None
        body = self.visit(item.body)
        if found is None:
            return item if body is item.body else item.replace(body=body)
        first, axis, writers = found
        fill = None if axis.fill is None else _filled(item.body, writers, axis.fill)
        return item.replace(body=If(binary("lt", first, axis.end), body, fill))


def _beyond(
    loop: For, func: Func, axes: Mapping[tuple[str, int], _Axis]
) -> tuple[Expr, _Axis, list[Block]] | None:
    """The first place along an axis that an iteration of a loop computes, where that is all it does.

    None where the loop does not go along such an axis, or also makes what is read elsewhere.
    """
    blocks = [item for item in statements(loop.body) if isinstance(item, Block)]
    writers = [item for item in blocks if any(region.buffer in func.results for region in item.writes)]
    inner = {item.var.name: const(0) for item in statements(loop.body) if isinstance(item, For)}
    places = {place for block in writers for place in _places(block, axes)} if writers else set()
    shared = [
        (first, axis)
        for index, axis in places
        if loop.var.name in variables(first := simplify(substitute(index, inner)))
        and all((index, axis) in set(_places(block, axes)) for block in writers)
    ]
    if len(shared) != 1 or _is_read_elsewhere(blocks, func):
        return None
    first, axis = shared[0]
    return None if axis.fill is not None and len(writers) > 1 else (first, axis, writers)


def _places(block: Block, axes: Mapping[tuple[str, int], _Axis]) -> Iterator[tuple[Expr, _Axis]]:
    """Where along which axes of a result a block writes, by the variables around."""
    iters = {item.var.name: item for item in block.iters}
    for store in (item for item in statements(block.body) if isinstance(item, Store)):
        for at, index in enumerate(store.indices):
            axis = axes.get((store.buffer.name, at))
            found = iters.get(index.name) if isinstance(index, Var) else None
            if axis is not None and found is not None and found.kind == "spatial":
                yield found.binding, axis


def _is_read_elsewhere(blocks: Sequence[Block], func: Func) -> bool:
    """Whether what is computed in a loop, besides the function's results, is used outside of it."""
    made = {region.buffer for block in blocks for region in block.writes} - set(func.results)
    inside = set(map(id, blocks))
    others = [item for item in func.blocks() if id(item) not in inside]
    return any((buffers_read(item) | buffers_written(item)) & made for item in others)


def _filled(body: Stmt, writers: Sequence[Block], fill: Const) -> Stmt:
    """The loops around the blocks that write results, which write a number instead."""

    def step(item: IRNode) -> IRNode | None:
        if isinstance(item, Store):
            return item.replace(value=fill)
        return None

    writer = writers[-1]
    kept = tuple(item for item in writer.iters if item.kind == "spatial")
    plain = writer.replace(
        name=f"{writer.name}_beyond",
        iters=kept,
        reads=(),
        body=rewrite_nodes(writer.body, step),
        init=None,
    )
    needed = {name for item in kept for name in variables(item.binding)}
    nest: Stmt = plain
    for loop in reversed(_loops_to(body, writer)):
        if loop.var.name in needed:
            kind = loop.kind if loop.kind is ForKind.VECTORIZED else ForKind.SERIAL
            nest = loop.replace(body=nest, kind=kind, annotations=())
    return nest


def _loops_to(root: Stmt, block: Block) -> list[For]:
    """The loops around a block, outermost first."""
    if root is block:
        return []
    for part in root.bodies():
        if any(item is block for item in statements(part)):
            return [*([root] if isinstance(root, For) else []), *_loops_to(part, block)]
    return []
