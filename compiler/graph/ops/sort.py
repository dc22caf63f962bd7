"""Operators that order elements: TopK.

What is no number counts as the largest of all. Equal elements keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.core.types import I64, INDEX
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, NodeInfo, TensorType
from compiler.graph.op import (
    Checked,
    Emitter,
    Form,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Sign,
    Signature,
    Types,
    Values,
    input_size,
    normal_axis,
)
from compiler.graph.ops.at_run import declared_type, is_number
from compiler.graph.ops.elementwise import FLOATS, INTS, check_kind, widen
from compiler.loops.build import Builder, region_at
from compiler.loops.ir import (
    Binary,
    Buffer,
    Expr,
    If,
    Region,
    Stmt,
    Store,
    Var,
    const,
    maximum,
    minimum,
    seq,
)

# ---------------------------------------------------------------- meaning


def _import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    axis, count = normal_axis(given.integer("axis"), inputs[0].type.rank), given["k"]
    count = count[0] if isinstance(count, tuple) and len(count) == 1 else count
    if not isinstance(count, int):
        raise InvalidError(f"its k is {count}, expected one integer")
    return inputs, {"axis": axis, "k": count, "largest": given.flag("largest", default=True)}


def _positions_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (source,), axis, count = types, attrs.integer("axis"), attrs.integer("k")
    check_kind("TopK", source.dtype, FLOATS + INTS)
    if not 0 <= count <= source.shape[axis]:
        raise InvalidError(f"TopK takes {count} elements of axis {axis} of {source}")
    return (TensorType(I64, (*source.shape[:axis], count, *source.shape[axis + 1 :])),)


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (positions,) = _positions_infer(types, attrs)
    return positions.with_dtype(types[0].dtype), positions


def _positions_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    (source,), axis = arrays, attrs.integer("axis")
    if attrs.flag("largest"):  # the last of the reversed row is the first of the row
        extent = source.shape[axis]
        order = np.flip(extent - 1 - np.argsort(np.flip(source, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(source, axis, kind="stable")
    return (np.take(order, np.arange(attrs.integer("k")), axis).astype(np.int64),)


def _reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    (positions,) = _positions_reference(arrays, attrs)
    return np.take_along_axis(arrays[0], positions, attrs.integer("axis")), positions


def _expand(e: Emitter, item: Node) -> Values:
    (source,) = item.inputs
    positions = e.emit("TopPositions", source, **item.attrs)
    values = e.emit("GatherElements", source, positions, axis=item.attrs.integer("axis"))
    return values, positions


# ---------------------------------------------------------------- loops

_FEW = 32
"""So many elements are found by insertion; more by merging sorted runs."""

Before = Callable[[Expr, Expr], Expr]
"""Whether the element at one position of a row must come before that at another one."""

Choose = Callable[[Expr, Expr, Stmt, Stmt], Stmt]
"""Runs the first statement where what is at one position must come before another, else the second."""


def _before(a: Expr, b: Expr, *, largest: bool) -> Expr:
    a, b = widen(a), widen(b)
    smaller = a.lt(b) if not largest else b.lt(a)
    if not a.dtype.is_float:
        return smaller
    last, other = (a, b) if largest else (b, a)  # what is no number is the largest
    return Binary("or", smaller, Binary("and", last.ne(last), other.eq(other)))


def _positions_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    (source,), out, axis = inputs, info.out_types[0], info.attrs.integer("axis")
    extent, count = info.in_types[0].shape[axis], info.attrs.integer("k")
    target = b.local("positions", out.shape, out.dtype)
    if not out.size:
        return target
    runs = [] if count <= _FEW else [_whole_row(b, info, name) for name in ("runs", "merged")]

    def body(*loops: Var) -> Stmt:
        row = loops[: out.rank - 1]

        def at(place: Expr) -> tuple[Expr, ...]:
            return (*row[:axis], place, *row[axis:])

        def before(one: Expr, other: Expr) -> Expr:
            return _before(source[at(one)], source[at(other)], largest=info.attrs.flag("largest"))

        def by_order(one: Expr, other: Expr, first: Stmt, second: Stmt) -> Stmt:
            return If(before(one, other), first, second)

        if not runs:
            return _inserted(b, _Row(target, at), extent, count, before)
        return _merged(b, [_Row(item, at) for item in runs], _Row(target, at), (extent, count), by_order)

    def touches(*loops: Var) -> tuple[list[Region], list[Region]]:
        whole = (*loops[:axis], None, *loops[axis : out.rank - 1])
        return [region_at(source, *whole)], [region_at(item, *whole) for item in (target, *runs)]

    b.perform("order_row", (*out.shape[:axis], *out.shape[axis + 1 :]) or (1,), body, touches)
    return target


def _whole_row(b: Builder, info: NodeInfo, name: str) -> Buffer:
    return b.local(name, info.in_types[0].shape, I64)


class _Row:
    """One row of a buffer of positions along the axis."""

    def __init__(self, buffer: Buffer, at: Callable[[Expr], tuple[Expr, ...]]) -> None:
        self.buffer, self.at = buffer, at

    def __getitem__(self, place: Expr) -> Expr:
        return self.buffer[self.at(place)]

    def put(self, place: Expr, value: Expr) -> Stmt:
        return Store(self.buffer, self.at(place), value)


def _inserted(b: Builder, row: _Row, extent: int, count: int, before: Before) -> Stmt:
    """Each element goes to its place among the best so far, if it has one; worse ones move on."""

    def insert(number: Expr, held: Expr) -> Stmt:
        """`held` places are taken; the element may be in as many, and one more."""

        def move(step: Var) -> Stmt:
            place = maximum(held - step, 0)  # where it would be less, nothing is done
            here = If(before(number, row[place]), row.put(place, number))
            previous = maximum(place - 1, 0)
            moved = If(before(number, row[previous]), row.put(place, row[previous]), here)
            first = If(before(number, row[place]), row.put(place, number))
            return If(place.ge(1), moved, first)

        return b.repeat("step", count, lambda step: If(step.le(held), move(step)))

    def begin(number: Var) -> Stmt:
        return seq(row.put(number, number), insert(number, number))

    def go_on(number: Var) -> Stmt:
        later = number + count
        return If(before(later, row[const(count - 1)]), insert(later, const(count - 1)))

    return seq(b.repeat("first", count, begin), b.repeat("later", extent - count, go_on))


def _merged(b: Builder, runs: Sequence[_Row], target: _Row, sizes: tuple[int, int], choose: Choose) -> Stmt:
    """Runs of one element, then of twice as many in each round, until one run is the whole row."""
    extent, count = sizes
    now, later = runs
    steps = [b.repeat("place", extent, lambda place: now.put(place, place))]
    length = 1
    while length < extent:
        steps.append(_round(b, now, later, (extent, length), choose))
        now, later, length = later, now, 2 * length
    return seq(*steps, b.repeat("place", count, lambda place: target.put(place, now[place])))


def _round(b: Builder, source: _Row, target: _Row, sizes: tuple[int, int], choose: Choose) -> Stmt:
    """Merge neighbouring runs of `length` elements, two at a time."""
    extent, length = sizes
    zero = const(0)

    def merge(left: Buffer, right: Buffer) -> Stmt:
        def step(place: Var) -> Stmt:
            start = place - place % (2 * length)
            middle = minimum(start + length, extent)
            end = minimum(start + 2 * length, extent)
            i, j = left[zero], right[zero]
            reset = seq(Store(left, (zero,), start), Store(right, (zero,), middle))
            from_left = seq(target.put(place, source[i]), Store(left, (zero,), i + 1))
            from_right = seq(target.put(place, source[j]), Store(right, (zero,), j + 1))
            smaller = choose(source[j], source[i], from_right, from_left)
            choice = If(i.ge(middle), from_right, If(j.ge(end), from_left, smaller))
            return seq(If(place.eq(start), reset), choice)

        return b.repeat("place", extent, step)

    return b.with_cell(
        "left", INDEX, lambda left: [b.with_cell("right", INDEX, lambda right: [merge(left, right)])]
    )


def _slices_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(I64, types[0].shape[:1]),)


def _slices_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    (rows,) = arrays
    keys = rows.T[::-1] if rows.shape[1] else np.zeros((1, rows.shape[0]))
    return (np.lexsort(tuple(keys)).astype(np.int64),)


def _slices_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """Sorted runs are merged; two rows are compared by their first elements that differ."""
    (source,), (count, width), zero = inputs, info.in_types[0].shape, (const(0),)
    target = b.local("positions", (count,), I64)
    runs = [b.local(name, (count,), I64) for name in ("runs", "merged")]

    def choose(one: Expr, other: Expr, first: Stmt, second: Stmt) -> Stmt:
        def compared(sign: Buffer) -> Sequence[Stmt]:
            def step(at: Var) -> Stmt:
                x, y = source[one, at], source[other, at]
                later = If(_before(y, x, largest=False), Store(sign, zero, const(1)))
                return If(
                    sign[zero].eq(0), If(_before(x, y, largest=False), Store(sign, zero, const(-1)), later)
                )

            reset = Store(sign, zero, const(0))
            return reset, b.repeat("column", width, step), If(sign[zero].lt(0), first, second)

        return b.with_cell("sign", INDEX, compared)

    def body(_only: Var) -> Stmt:
        rows = [_Row(item, lambda place: (place,)) for item in (*runs, target)]
        return _merged(b, rows[:2], rows[2], (count, count), choose)

    def touches(_only: Var) -> tuple[list[Region], list[Region]]:
        return [region_at(source)], [region_at(item) for item in (target, *runs)]

    b.perform("order_slices", (1,), body, touches)
    return target


SLICE_POSITIONS = Op(
    "SlicePositions", Kind.REDUCTION, _slices_infer, _slices_reference, (1, 1),
    forms={"direct": Form(_slices_form)}, flops=input_size, sign=Sign.NONNEGATIVE, alone=True,
)  # fmt: skip
"""Ours: the order of a matrix's rows, the smallest first; the first elements that differ decide."""

TOP_POSITIONS = Op(
    "TopPositions", Kind.REDUCTION, _positions_infer, _positions_reference, (1, 1),
    forms={"direct": Form(_positions_form)}, flops=input_size, sign=Sign.NONNEGATIVE, alone=True,
)  # fmt: skip
"""Ours: where the `k` largest (or smallest) elements along an axis are, the first of them first."""


def _at_run(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """As many elements as the declared results have along the axis."""
    source, count = (given for given in node.inputs if given is not None)
    axis = normal_axis(attrs.integer("axis"), source.type.rank)
    asked = declared_type(node, int(not node.used_outputs[0])).shape[axis]
    largest = attrs.flag("largest", default=True)
    positions = e.emit("TopPositions", source, axis=axis, k=asked, largest=largest)
    values = e.emit("GatherElements", source, positions, axis=axis)
    return Checked((values, positions), is_number(e, count, asked))


_ATTRS: Raw = {"axis": -1, "largest": 1, "sorted": 1}
TOP_K = Op(
    "TopK", Kind.REDUCTION, _infer, _reference, (1, 1),
    (
        Signature(1, {"axis": -1, "k": None}, adapt=_import, outputs=2),
        Signature(10, {"axis": -1}, {1: "k"}, adapt=_import, outputs=2, at_run=_at_run),
        Signature(11, _ATTRS, {1: "k"}, adapt=_import, outputs=2, at_run=_at_run),
    ),
    expand=_expand, flops=input_size,
)  # fmt: skip

OPS = (TOP_POSITIONS, SLICE_POSITIONS, TOP_K)
