"""Work beyond what a run has is left out: tiles of results behind the end of an axis are not computed.

A function's attribute EXTENTS says how much of each axis of its results a run has. Here loops over tiles of
such an axis get a branch: where even the first place of a tile is beyond the end, nothing is computed. Places
beyond within the last tile are computed, as they have memory; where few of its rows are there, few are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.ir import (
    EXTENTS,
    LIMITS,
    OPERANDS,
    SYMBOLS,
    Binary,
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Iter,
    Let,
    Stmt,
    Store,
    Var,
    all_of,
    binary,
    const,
    maximum,
    minimum,
    statements,
)
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import int_of, variables
from compiler.loops.regions import buffers_read, buffers_written
from compiler.loops.simplify import Simplifier, renamed, simplify, substitute
from compiler.loops.walk import Rewriter, with_body
from compiler.lower.few_rows import forms_of_few_rows
from compiler.lower.inner_ends import InnerEnd, inner_ends
from compiler.lower.part_ends import Row, Rows, ends_of_parts

_TILED = (ForKind.SERIAL, ForKind.PARALLEL)


def limit_loops(func: Func) -> Func:
    """Scheduled loops -> the same with branches around what a run does not have."""
    attrs = dict(func.attrs)
    ranges, rows = attrs.get(SYMBOLS, ()), attrs.get(EXTENTS, ())
    given = attrs.get(OPERANDS, ())
    if not ranges or not (rows or given):
        return func
    names = names_in(func.body)
    names.update(item.name for item in func.blocks())
    symbols = [Var(fresh(f"size{number}", names)) for number in range(len(ranges))]
    dims = tuple(Dim(symbol, low, high) for symbol, (low, high) in zip(symbols, ranges, strict=True))
    operands = {place: _end(row, symbols) for place, row in _by_place(func, given).items()}
    inner = inner_ends(func, operands) if operands else {}
    limiter = _LimitLoops(func, ResultEnds.of(func), symbols, names, inner)
    limited = with_body(func, limiter.visit(func.body))
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


def _end(row: Row, symbols: Sequence[Var]) -> Expr:
    """How many places of an axis a run has."""
    offset, divisor, *factors = row
    end: Expr = const(offset)
    for factor, symbol in zip(factors, symbols, strict=True):
        if factor:
            end = binary("add", end, symbol if factor == 1 else binary("mul", symbol, const(factor)))
    return simplify(end if divisor == 1 else end // divisor)


def _by_place(func: Func, rows: Sequence[Row]) -> Rows:
    """Rows of an attribute by the tensor and the axis that they are about."""
    tensors = [item for item in func.params if item not in func.workspace]  # that rows number
    return {(tensors[row[0]].name, row[1]): row[2:] for row in rows}


@dataclass(frozen=True, slots=True)
class ResultEnds:
    """Where the axes of a function's results end, of which a run may have a part only.

    launches: of launches, where places may be computed of iterations, as where several axes are one loop,
    and what one of them leaves to another ends, too.
    """

    func: Func
    rows: Rows
    launches: bool = False

    @classmethod
    def of(cls, func: Func, *, launches: bool = False) -> ResultEnds:
        """As its attributes say."""
        rows = _by_place(func, dict(func.attrs).get(EXTENTS, ()))
        return cls(func, ends_of_parts(func, rows) if launches else rows, launches)

    @property
    def ended(self) -> set[Buffer]:
        """What has axes that end: results, and what other launches read for them."""
        axes = {name for name, _ in self.rows}
        return {item for item in (*self.func.results, *self.func.workspace) if item.name in axes}

    def in_loop(self, loop: For) -> list[tuple[Expr, Row]]:
        """The first places that an iteration of a loop computes along axes that end, and where these end.

        Nothing where the loop goes along no axis that ends, or also makes what is read elsewhere.
        """
        ended, first_of = self.ended, _least if self.launches else _first
        blocks = [item for item in statements(loop.body) if isinstance(item, Block)]
        writers = [item for item in blocks if any(region.buffer in ended for region in item.writes)]
        if not writers or _is_read_elsewhere(blocks, self.func, ended):
            return []
        places = [dict(self._places(block)) for block in writers]
        return [
            (first, end)
            for index, end in places[0].items()
            if (first := first_of(index, loop)) is not None
            and loop.var.name in variables(first)
            and all(other.get(index) == end for other in places)
        ]

    def _places(self, block: Block) -> Iterator[tuple[Expr, Row]]:
        """Where along axes that end a block writes, by the variables around, and where these end."""
        iters = {item.var.name: item for item in block.iters}
        for store in (item for item in statements(block.body) if isinstance(item, Store)):
            for at, index in enumerate(store.indices):
                end = self.rows.get((store.buffer.name, at))
                place = self._place(index, iters) if end is not None else None
                if end is not None and place is not None:
                    yield place, end
        for name, *row in dict(block.annotations).get(LIMITS, ()):
            if name in iters:
                yield iters[name].binding, tuple(row)

    def _place(self, index: Expr, iters: Mapping[str, Iter]) -> Expr | None:
        """A place by the variables around a block, if it grows with them."""
        used = variables(index)
        if not all(name in iters and iters[name].kind == "spatial" for name in used):
            return None
        if isinstance(index, Var):
            return iters[index.name].binding
        place = substitute(index, {name: iters[name].binding for name in used})
        return place if self.launches and used and _grows(place) else None


@dataclass(eq=False)
class _LimitLoops(Rewriter):
    func: Func
    ends: ResultEnds
    symbols: Sequence[Var]
    names: set[str]
    inner: Mapping[str, InnerEnd]

    def visit_for(self, item: For) -> Stmt:
        rows = self.ends.in_loop(item) if item.kind in _TILED else []
        found = [(first, _end(row, self.symbols)) for first, row in rows]
        done = self.parts(item)
        cond = all_of(*(binary("lt", first, end) for first, end in found))
        if cond is None:
            cond = self._inner_condition(item)
            return done if cond is None else done.replace(body=If(cond, done.body))
        first, end = found[0]
        forms = forms_of_few_rows(done.body, first, self.func.results) if len(found) == 1 else []
        body = done.body
        for count, few in reversed(forms):
            last = binary("le", end, binary("add", first, count))
            body = If(last, renamed(few, self.names), body)
        return done.replace(body=If(cond, body))

    def _inner_condition(self, loop: For) -> Expr | None:
        """What holds where an iteration is about any place that a run has; None where that is not known.

        Where sums begin in a loop, there is the iteration in which they do, and what that reads is made.
        """
        inner = self.inner.get(loop.var.name)
        if inner is None:
            return None
        begins = any(item.init is not None for item in self.func.blocks())
        return binary("lt", inner.first, maximum(inner.end, 1) if begins else inner.end)


_GROWING = frozenset({"add", "mul", "floordiv", "floormod"})


def _grows(place: Expr) -> bool:
    """Whether it is least where all variables are 0."""
    if isinstance(place, Binary):
        return place.op in _GROWING and _grows(place.a) and _grows(place.b)
    number = int_of(place)
    return isinstance(place, Var) or (number is not None and number >= 0)


def _first(place: Expr, loop: For) -> Expr:
    """The place of the first iterations inside of a loop."""
    inner = {one.var.name: const(0) for one in statements(loop.body) if isinstance(one, For)}
    return simplify(substitute(place, inner))


def _least(place: Expr, loop: For) -> Expr | None:
    """The least of the places that an iteration of a loop is about, by that loop and those around it.

    It is that of the first iterations inside, unless places begin again there; None where it is not known.
    """
    inside = list(statements(loop.body))
    for item in reversed([one for one in inside if isinstance(one, Let)]):
        place = substitute(place, {item.var.name: item.value})
    loops = [one for one in inside if isinstance(one, For)]
    inner = {one.var.name for one in loops}
    known = Simplifier({one.var.name: (0, (int_of(one.extent) or 1) - 1) for one in (loop, *loops)})
    place = known.simplify(place)
    again = (item for item in place.walk() if isinstance(item, Binary) and item.op == "floormod")
    if not _grows(place) or any(inner & variables(item.a) for item in again):
        return None
    return _first(place, loop)


def _is_read_elsewhere(blocks: Sequence[Block], func: Func, ended: Collection[Buffer]) -> bool:
    """Whether what is computed in a loop, besides what ends where it is needed, is used outside of it."""
    made = {region.buffer for block in blocks for region in block.writes} - set(ended)
    inside = set(map(id, blocks))
    others = [item for item in func.blocks() if id(item) not in inside]
    return any((buffers_read(item) | buffers_written(item)) & made for item in others)
