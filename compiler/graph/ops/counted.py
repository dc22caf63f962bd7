"""Operators that find as many results as their operands happen to hold: NonZero, Compress, Unique.

A record makes results of the greatest length that there may be, with something of the right type behind those
that were found, and last their number. A node of a model gets the declared length of them, which is checked;
where none is declared, `CountedPart` is as much of them as a run finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from compiler.core.types import BOOL, I32, I64
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    AtRun,
    Checked,
    Emitter,
    Form,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Sign,
    Signature,
    Types,
    Values,
    input_size,
    normal_axis,
)
from compiler.graph.ops.at_run import is_number
from compiler.graph.ops.indexing import emit_slice
from compiler.loops.build import Builder, region_at
from compiler.loops.ir import Buffer, If, Region, Stmt, Store, Var, const, seq

COUNT = TensorType(I64, ())
"""The type of the number of results that were found."""

Prepare = Callable[[OnnxNode, Attrs], tuple[Values, dict[str, AttrValue]]]
"""Operands and canonical attributes of the record, of a node as the model has it."""


def declared_part(
    op: Callable[[], Op], prepare: Prepare, axes: Callable[[Attrs], Sequence[int | None]]
) -> AtRun:
    """Of what `op` makes for a node as much as was found, along one axis of each result (None: all of it).

    How much that is, is known with the operands, else the model declares it, and the count is compared; else
    the run decides.
    """

    def compute(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
        operands, canonical = prepare(node, attrs)
        *padded, count = e.emit_all(op(), operands, Attrs(canonical))
        along, known = axes(Attrs(canonical)), e.known(count)
        extent = _declared_extent(node, along) if known is None else int(known)
        if extent is None:
            return Checked(tuple(padded), count=count, along=tuple(along))
        results = []
        for value, axis in zip(padded, along, strict=True):
            if axis is not None and extent > value.type.shape[axis]:
                raise InvalidError(
                    f"the model declares {extent} results, of {value.type.shape[axis]} at most"
                )
            results.append(value if axis is None else emit_slice(e, value, axis, 0, extent))
        return Checked(tuple(results), None if known is not None else is_number(e, count, extent))

    return compute


def _declared_extent(node: OnnxNode, axes: Sequence[int | None]) -> int | None:
    """How many results the model declares, by the first output that says so; None where none does."""
    rows = zip(axes, node.used_outputs, node.declared, strict=False)
    found = [
        (axis, kind) for axis, is_used, kind in rows if is_used and axis is not None and kind is not None
    ]
    return next((kind.shape[axis] for axis, kind in found if axis < kind.rank), None)


def given_inputs(node: OnnxNode) -> Values:
    """The operands that are not left out."""
    return tuple(value for value in node.inputs if value is not None)


# ---------------------------------------------------------------- positions of what holds


def _true_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0].with_dtype(I64),)


def _true_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    made, found = np.zeros(arrays[0].shape, np.int64), np.flatnonzero(arrays[0])
    made[: found.size] = found
    return (made,)


def _true_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    (flags,), (count,), zero = inputs, info.out_types[0].shape, (const(0),)
    target = b.local("positions", (count,), I64)

    def body(_only: Var) -> Stmt:
        def collect(found: Buffer) -> Sequence[Stmt]:
            def step(number: Var) -> Stmt:
                keep = Store(target, (found[zero],), number)
                return If(flags[number], seq(keep, Store(found, zero, found[zero] + 1)))

            return Store(found, zero, const(0)), b.repeat("flag", count, step)

        clear = b.repeat("place", count, lambda place: Store(target, (place,), const(0)))
        return seq(clear, b.with_cell("found", I64, collect))

    def touches(_only: Var) -> tuple[list[Region], list[Region]]:
        return [region_at(flags)], [region_at(target)]

    b.perform("collect", (1,), body, touches)
    return target


TRUE_POSITIONS = Op(
    "TruePositions", Kind.REDUCTION, _true_infer, _true_reference, (1, 1),
    forms={"direct": Form(_true_form)}, flops=input_size, sign=Sign.NONNEGATIVE, alone=True,
)  # fmt: skip
"""Ours: where the elements of a vector hold, in order; zeros behind."""


def emit_count(e: Emitter, flags: Value) -> Value:
    """How many elements of a vector hold."""
    return e.emit("ReduceSum", e.emit("Cast", flags, to=I64), axes=(0,), keepdims=False)


def emit_number(e: Emitter, number: int) -> Value:
    """An integer as a scalar."""
    return e.constant(np.asarray(number, np.int64))


# ---------------------------------------------------------------- NonZero, Compress


def _non_zero_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return TensorType(I64, (types[0].rank, types[0].size)), COUNT


def _non_zero_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    found = np.array(np.nonzero(np.atleast_1d(arrays[0])))[: arrays[0].ndim]
    count = int(np.count_nonzero(arrays[0]))
    made = np.zeros((arrays[0].ndim, arrays[0].size), np.int64)
    made[:, :count] = found
    return made, np.asarray(count)


def _non_zero_expand(e: Emitter, item: Node) -> Values:
    (source,) = item.inputs
    flat = e.emit("Reshape", source, shape=(source.type.size,))
    flags = flat if flat.type.dtype.is_bool else e.emit("Cast", flat, to=BOOL)
    place, rows = e.emit("TruePositions", flags), []
    for extent in reversed(source.type.shape):
        rows.append(e.emit("Mod", place, emit_number(e, max(extent, 1)), fmod=False))
        place = e.emit("Div", place, emit_number(e, max(extent, 1)))
    if not rows:
        return e.constant(np.zeros((0, 1), np.int64)), emit_count(e, flags)
    columns = [e.emit("Reshape", row, shape=(1, source.type.size)) for row in reversed(rows)]
    return e.emit("Concat", *columns, axis=0), emit_count(e, flags)


NON_ZERO: Op = Op(
    "NonZero", Kind.REDUCTION, _non_zero_infer, _non_zero_reference, (1, 1),
    (
        Signature(9, at_run=declared_part(lambda: NON_ZERO, lambda node, _a: (given_inputs(node), {}),
                                          lambda _a: (1,)), by_data=True),
    ),
    expand=_non_zero_expand, sign=Sign.NONNEGATIVE,
)  # fmt: skip


def _compress_prepare(node: OnnxNode, attrs: Attrs) -> tuple[Values, dict[str, AttrValue]]:
    """Without an axis the data counts as a vector, which the record says by axis -1."""
    operands, axis = given_inputs(node), attrs.integer("axis") if "axis" in attrs else None
    return operands, {"axis": -1 if axis is None else normal_axis(axis, operands[0].type.rank)}


def _compress_axis(attrs: Attrs) -> int:
    return max(attrs.integer("axis"), 0)


def _compress_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (data, flags), axis = types, _compress_axis(attrs)
    if not flags.dtype.is_bool or flags.rank != 1:
        raise InvalidError(f"the condition of Compress is {flags}, expected a vector of bool")
    shape = data.shape if attrs.integer("axis") >= 0 else (data.size,)
    if flags.size > shape[axis]:
        raise InvalidError(f"the condition of Compress has {flags.size} elements for {shape[axis]}")
    return data.with_shape((*shape[:axis], flags.size, *shape[axis + 1 :])), COUNT


def _compress_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    (positions,) = _true_reference(arrays[1:], attrs)
    data = arrays[0] if attrs.integer("axis") >= 0 else arrays[0].reshape(-1)
    return np.take(data, positions, axis=_compress_axis(attrs)), np.asarray(int(arrays[1].sum()))


def _compress_expand(e: Emitter, item: Node) -> Values:
    data, flags = item.inputs
    if item.attrs.integer("axis") < 0:
        data = e.emit("Reshape", data, shape=(data.type.size,))
    positions = e.emit("TruePositions", flags)
    taken = e.emit("Gather", data, positions, axis=_compress_axis(item.attrs), safe=True)
    return taken, emit_count(e, flags)


_COMPRESS_RUN = declared_part(lambda: COMPRESS, _compress_prepare, lambda attrs: (_compress_axis(attrs),))
COMPRESS: Op = Op(
    "Compress", Kind.REDUCTION, _compress_infer, _compress_reference, (2, 2),
    (
        Signature(9, {"axis": None}, at_run=_COMPRESS_RUN, by_data=True),
        Signature(11, {"axis": None}, at_run=_COMPRESS_RUN, by_data=True),
    ),
    expand=_compress_expand,
)  # fmt: skip

# ---------------------------------------------------------------- Unique


def _unique_prepare(node: OnnxNode, attrs: Attrs) -> tuple[Values, dict[str, AttrValue]]:
    """Without an axis the data counts as a vector, which the record says by axis -1."""
    operands, is_sorted = given_inputs(node), attrs.flag("sorted")
    if "axis" not in attrs:
        return operands, {"axis": -1, "sorted": is_sorted}
    return operands, {"axis": normal_axis(attrs.integer("axis"), operands[0].type.rank), "sorted": is_sorted}


def _unique_shape(shape: Sequence[int], attrs: Attrs) -> tuple[int, ...]:
    return tuple(shape) if attrs.integer("axis") >= 0 else (math.prod(shape),)


def _unique_axes(attrs: Attrs) -> Sequence[int | None]:
    return max(attrs.integer("axis"), 0), 0, None, 0


def _unique_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    shape = _unique_shape(types[0].shape, attrs)
    places = TensorType(I64, (shape[max(attrs.integer("axis"), 0)],))
    return types[0].with_shape(shape), places, places, places, COUNT


def _unique_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    axis = max(attrs.integer("axis"), 0)
    data = arrays[0].reshape(_unique_shape(arrays[0].shape, attrs))
    found: dict[tuple[object, ...], list[int]] = {}
    for number in range(data.shape[axis]):
        found.setdefault(tuple(data.take(number, axis).reshape(-1).tolist()), []).append(number)
    groups = list(found.values())
    if attrs.flag("sorted"):
        groups = [found[key] for key in sorted(found)]
    first = np.full(data.shape[axis], groups[0][0] if groups else 0, np.int64)
    inverse, counts = np.zeros_like(first), np.zeros_like(first)
    for number, members in enumerate(groups):
        first[number], counts[number], inverse[members] = members[0], len(members), number
    return data.take(first, axis), first, inverse, counts, np.asarray(len(groups))


def _unique_expand(e: Emitter, item: Node) -> Values:
    """Rows in order; where one differs from that before it, a group of equal ones begins."""
    axis, source = max(item.attrs.integer("axis"), 0), item.inputs[0]
    data = e.emit("Reshape", source, shape=item.output.type.shape)
    count = data.type.shape[axis]
    if not count:
        empty = e.constant(np.zeros(0, np.int64))
        return data, empty, empty, empty, emit_number(e, 0)
    rows = _as_rows(e, data, axis)
    order = _order_of(e, rows)
    begins = _begins(e, e.emit("Gather", rows, order, axis=0))
    group = _numbered(e, begins)
    first = e.emit("Gather", order, e.emit("TruePositions", begins), axis=0)
    nothing, ones = (e.constant(np.full(count, fill, np.int64)) for fill in (0, 1))
    inverse = e.emit("ScatterElements", nothing, order, group, axis=0, reduction="none")
    counts = e.emit("ScatterElements", nothing, group, ones, axis=0, reduction="add")
    if not item.attrs.flag("sorted"):
        first, inverse, counts = _by_appearance(e, first, inverse, counts)
    return e.emit("Gather", data, first, axis=axis), first, inverse, counts, emit_count(e, begins)


def _as_rows(e: Emitter, data: Value, axis: int) -> Value:
    """A matrix whose rows are the slices along an axis."""
    shape = data.type.shape
    front = (axis, *(at for at in range(len(shape)) if at != axis))
    moved = data if axis == 0 else e.emit("Transpose", data, perm=front)
    return e.emit("Reshape", moved, shape=(shape[axis], data.type.size // shape[axis]))


def _order_of(e: Emitter, rows: Value) -> Value:
    count, width = rows.type.shape
    kind = rows.type.dtype
    keys = e.emit("Cast", rows, to=I32) if kind.is_bool else rows
    if width == 1:
        flat = e.emit("Reshape", keys, shape=(count,))
        return e.emit("TopPositions", flat, axis=0, k=count, largest=False)
    return e.emit("SlicePositions", keys)


def _begins(e: Emitter, rows: Value) -> Value:
    """Whether each row differs from that before it; the first one does."""
    count = rows.type.shape[0]
    before, after = (emit_slice(e, rows, 0, at, count - 1) for at in (0, 1))
    same = e.emit("Cast", e.emit("Equal", before, after), to=I32)
    differ = e.emit("Not", e.emit("Cast", e.emit("ReduceMin", same, axes=(1,), keepdims=False), to=BOOL))
    return e.emit("Concat", e.constant(np.ones(1, np.bool_)), differ, axis=0)


def _numbered(e: Emitter, flags: Value) -> Value:
    """For each place how many elements hold before the next one begins, from 0."""
    total = e.emit("CumSum", e.emit("Cast", flags, to=I64), axis=0, exclusive=False, reverse=False)
    return e.emit("Sub", total, emit_number(e, 1))


def _by_appearance(e: Emitter, first: Value, inverse: Value, counts: Value) -> Values:
    """The groups in the order of their first members."""
    count = first.type.size
    none, yes = (e.constant(np.full(count, fill, to_numpy(BOOL))) for fill in (False, True))
    leads = e.emit("ScatterElements", none, first, yes, axis=0, reduction="none")
    places = e.emit("TruePositions", leads)
    renumbered = e.emit("Gather", _numbered(e, leads), first, axis=0)  # a group's new number
    old = e.emit("Gather", inverse, places, axis=0)
    found = e.emit("Less", e.constant(np.arange(count)), emit_count(e, leads))
    kept = e.emit("Where", found, e.emit("Gather", counts, old, axis=0), emit_number(e, 0))
    lead = emit_slice(e, places, 0, 0, 1)
    return (
        e.emit("Where", found, places, lead),
        e.emit("Gather", renumbered, inverse, axis=0),
        kept,
    )


_UNIQUE_RUN = declared_part(lambda: UNIQUE, _unique_prepare, _unique_axes)
UNIQUE: Op = Op(
    "Unique", Kind.REDUCTION, _unique_infer, _unique_reference, (1, 1),
    (Signature(11, {"axis": None, "sorted": 1}, outputs=4, at_run=_UNIQUE_RUN, by_data=True),),
    expand=_unique_expand,
)  # fmt: skip

# ---------------------------------------------------------------- as much as a run finds


def _part_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    axis, shape = attrs.integer("axis"), types[0].shape
    return (types[0].with_shape((*shape[:axis], attrs.integer("extent"), *shape[axis + 1 :])),)


def _part_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    data, axis, extent = arrays[0], attrs.integer("axis"), attrs.integer("extent")
    more = max(extent - data.shape[axis], 0)
    longer = np.pad(data, [(0, more if at == axis else 0) for at in range(data.ndim)])
    return (np.ascontiguousarray(longer.take(range(extent), axis)),)


def _part_expand(e: Emitter, item: Node) -> Values:
    data, axis = item.inputs[0], item.attrs.integer("axis")
    more = item.output.type.shape[axis] - data.type.shape[axis]
    if more <= 0:
        return (emit_slice(e, data, axis, 0, item.output.type.shape[axis]) if more else data,)
    shape = (more if at == axis else extent for at, extent in enumerate(data.type.shape))
    nothing = e.constant(np.zeros(tuple(shape), to_numpy(data.type.dtype)))
    return (e.emit("Concat", data, nothing, axis=axis),)


COUNTED_PART = Op(
    "CountedPart", Kind.INJECTIVE, _part_infer, _part_reference, (2, 2), expand=_part_expand,
    sign=Sign.KEEPS,
)  # fmt: skip
"""Ours: as much of a tensor along an axis as its second operand says, a number that only the run knows.

Attribute `extent` is a size that is supposed; in a graph for all sizes the largest. `symbol` is the name of
what is counted, `counts` the operator that counts.
"""

OPS = (TRUE_POSITIONS, NON_ZERO, COMPRESS, UNIQUE, COUNTED_PART)
