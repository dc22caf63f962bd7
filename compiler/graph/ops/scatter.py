"""Operators that pick or write elements at places that a tensor of indices gives.

Indices that count from the end are wrapped once, and clamped to the axis. Updates of one place happen in the
order in which they lie in memory, whatever the target: a row of them is written by one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from compiler.core.types import INDEX
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    PIECES,
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
    UnsupportedError,
    Values,
    no_flops,
    normal_axis,
)
from compiler.graph.ops.elementwise import narrow, widen
from compiler.graph.ops.indexing import emit_slice
from compiler.graph.ops.repeating import along_axis, clamped_index
from compiler.loops.build import Builder, region_at
from compiler.loops.ir import (
    Binary,
    Buffer,
    Expr,
    Region,
    Select,
    Stmt,
    Store,
    Var,
    all_of,
    const,
    maximum,
    minimum,
    wrap,
)

# ---------------------------------------------------------------- along one axis


def _check_indices(name: str, data: TensorType, indices: TensorType, axis: int) -> None:
    if indices.dtype.name not in ("i32", "i64"):
        raise InvalidError(f"the indices of {name} are {indices.dtype}, expected i32 or i64")
    fits = indices.rank == data.rank and all(
        count <= extent or at == axis
        for at, (count, extent) in enumerate(zip(indices.shape, data.shape, strict=False))
    )
    if not fits:
        raise InvalidError(f"indices {indices} do not fit {data} along axis {axis}")
    if indices.size and not data.shape[axis]:
        raise InvalidError(f"{name} takes elements of an axis of extent 0")


def _places(indices: Array, axis: int, extent: int) -> tuple[Array, ...]:
    """The numpy index of the elements that indices along an axis name."""
    wrapped = np.where(indices < 0, indices + extent, indices).clip(0, max(extent - 1, 0))
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = wrapped
    return tuple(places)


def _plain_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    inputs, attrs = along_axis(node, inputs, attrs)
    return inputs, {**attrs, "reduction": "none"}


def _gather_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    _check_indices("GatherElements", types[0], types[1], attrs.integer("axis"))
    return (types[0].with_shape(types[1].shape),)


def _gather_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    (data, indices), axis = arrays, attrs.integer("axis")
    return (np.asarray(data[_places(indices, axis, data.shape[axis])]),)


def _gather_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    axis, out = info.attrs.integer("axis"), info.out_types[0]
    extent = info.in_types[0].shape[axis]

    def at(*index: Expr) -> Expr:
        found = clamped_index(narrow(inputs[1][index], INDEX), extent)
        return inputs[0][(*index[:axis], found, *index[axis + 1 :])]

    return b.compute("gather_elements", out.shape, at, out.dtype)


GATHER_ELEMENTS = Op(
    "GatherElements", Kind.INJECTIVE, _gather_infer, _gather_reference, (2, 2),
    (Signature(11, {"axis": 0}, adapt=along_axis),),
    forms={"direct": Form(_gather_form)}, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip


# ---------------------------------------------------------------- what an update does

_REDUCTIONS: dict[str, tuple[str, Callable[..., Array] | None]] = {
    "none": ("", None),
    "add": ("add", np.add),
    "mul": ("mul", np.multiply),
    "max": ("max", np.maximum),
    "min": ("min", np.minimum),
}
"""ONNX's name of a reduction -> the operation of the loop IR and numpy's."""


def _check_reduction(types: Types, attrs: Attrs) -> None:
    data, updates, reduction = types[0].dtype, types[2].dtype, attrs.text("reduction")
    if updates != data:
        raise InvalidError(f"updates are {updates}, the data is {data}")
    if reduction not in _REDUCTIONS:
        raise InvalidError(f"there is no reduction {reduction!r}")
    if data.is_bool and reduction in ("add", "mul"):
        raise UnsupportedError(f"reduction {reduction} of bool is not supported")


def _updated(target: Expr, value: Expr, attrs: Attrs) -> Expr:
    """What a place holds after an update, each rounded to the element type."""
    op, _ = _REDUCTIONS[attrs.text("reduction")]
    return narrow(Binary(op, widen(target), widen(value)), target.dtype) if op else value


def _write(data: Array, places: tuple[Array, ...], updates: Array, attrs: Attrs) -> Array:
    """The data with its elements (or parts) at `places` updated one after the other."""
    made = np.array(data)
    _, combine = _REDUCTIONS[attrs.text("reduction")]
    common = np.broadcast_shapes(*(item.shape for item in places))
    spread = [np.broadcast_to(item, common) for item in places]
    for number in np.ndindex(common):
        place = tuple(int(item[number]) for item in spread)
        made[place] = updates[number] if combine is None else combine(made[place], updates[number])
    return made


def _store(target: Buffer, place: tuple[Expr, ...], value: Expr, attrs: Attrs) -> Stmt:
    return Store(target, place, _updated(target[place], value, attrs))


# ---------------------------------------------------------------- ScatterElements


def _scatter_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    _check_reduction(types, attrs)
    _check_indices("ScatterElements", types[0], types[1], attrs.integer("axis"))
    if types[1].shape != types[2].shape:
        raise InvalidError(f"there are indices {types[1]} for updates {types[2]}")
    return (types[0],)


def _scatter_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    (data, indices, updates), axis = arrays, attrs.integer("axis")
    if not indices.size:
        return (np.array(data),)
    return (_write(data, _places(indices, axis, data.shape[axis]), updates, attrs),)


def _scatter_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """A copy of the data, then for each row along the axis its updates in order."""
    (data, indices, updates), axis, out = inputs, info.attrs.integer("axis"), info.out_types[0]
    shape = info.in_types[1].shape
    target = b.compute("scatter", out.shape, lambda *i: data[i], out.dtype)
    if not math.prod(shape):
        return target

    rank = out.rank

    def body(*loops: Var) -> Stmt:
        row = loops[: rank - 1]

        def step(number: Var) -> Stmt:
            source = (*row[:axis], number, *row[axis:])
            found = clamped_index(narrow(indices[source], INDEX), out.shape[axis])
            return _store(target, (*row[:axis], found, *row[axis:]), updates[source], info.attrs)

        return b.repeat("update", shape[axis], step)

    def touches(*loops: Var) -> tuple[list[Region], list[Region]]:
        row = loops[: rank - 1]
        whole = (*row[:axis], None, *row[axis:])
        return [region_at(item, *whole) for item in (indices, updates, target)], [region_at(target, *whole)]

    b.perform("scatter_updates", [*shape[:axis], *shape[axis + 1 :]] or [1], body, touches)
    return target


_AXIS: Raw = {"axis": 0, "reduction": "none"}
SCATTER_ELEMENTS = Op(
    "ScatterElements", Kind.REDUCTION, _scatter_infer, _scatter_reference, (3, 3),
    (
        Signature(11, {"axis": 0}, adapt=_plain_import),
        Signature(16, _AXIS, adapt=along_axis),
    ),
    forms={PIECES: Form(_scatter_form)}, flops=no_flops, alone=True,
)  # fmt: skip


def _old_expand(e: Emitter, item: Node) -> Values:
    return (e.emit("ScatterElements", *item.inputs, **item.attrs),)


SCATTER = Op(
    "Scatter", Kind.REDUCTION, _scatter_infer, _scatter_reference, (3, 3),
    (Signature(9, {"axis": 0}, adapt=_plain_import),), expand=_old_expand, flops=no_flops,
)  # fmt: skip
"""What opsets 9 and 10 call ScatterElements."""

# ---------------------------------------------------------------- ScatterND


def _nd_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return inputs, {"reduction": "none", **attrs}


def _nd_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    data, indices, updates = types
    _check_reduction(types, attrs)
    if indices.dtype.name not in ("i32", "i64"):
        raise InvalidError(f"the indices of ScatterND are {indices.dtype}, expected i64")
    if not indices.rank or not 0 < indices.shape[-1] <= data.rank:
        raise InvalidError(f"ScatterND has indices {indices} into {data}")
    expected = (*indices.shape[:-1], *data.shape[indices.shape[-1] :])
    if updates.shape != expected:
        raise InvalidError(f"ScatterND has updates {updates}, expected {list(expected)}")
    if indices.size and not math.prod(data.shape[: indices.shape[-1]]):
        raise InvalidError(f"ScatterND has indices into {data}, which has no elements")
    return (data,)


def _nd_places(indices: Array, shape: Sequence[int]) -> tuple[Array, ...]:
    """The index of each update, one array for each of the first axes of the data."""
    extents = np.array(shape[: indices.shape[-1]])
    wrapped = np.where(indices < 0, indices + extents, indices).clip(0, np.maximum(extents - 1, 0))
    return tuple(np.moveaxis(wrapped, -1, 0))


def _nd_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    data, indices, updates = arrays
    places = _nd_places(indices, data.shape)
    return (_write(data, places, updates, attrs) if updates.size else np.array(data),)


_TOGETHER = 16
"""Neighbours that one thread updates, so that an index serves them all."""


def _nd_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """A copy of the data, then for each run of neighbours all updates in order."""
    (data, indices, updates), out = inputs, info.out_types[0]
    *lead, count = info.in_types[1].shape
    rest = out.shape[count:]
    target = b.compute("scatter", out.shape, lambda *i: data[i], out.dtype)
    if not math.prod(info.in_types[2].shape):
        return target
    run = math.gcd(rest[-1], _TOGETHER) if rest else 1

    def body(*loops: Var) -> Stmt:
        def update(*lead_at: Var) -> Stmt:
            found = (
                clamped_index(narrow(indices[(*lead_at, wrap(at, INDEX))], INDEX), out.shape[at])
                for at in range(count)
            )
            place = tuple(found)

            def element(lane: Var) -> Stmt:
                inner = (*loops[:-1], loops[-1] * run + lane) if rest else ()
                return _store(target, (*place, *inner), updates[(*lead_at, *inner)], info.attrs)

            return b.repeat("neighbour", run, element)

        return b.repeat("update", lead, update)

    def touches(*loops: Var) -> tuple[list[Region], list[Region]]:
        def box(buffer: Buffer, before: int) -> Region:
            found = region_at(buffer, *(None,) * before, *loops[: len(rest)])
            if not rest:
                return found
            begin, extent = (*found.begin[:-1], loops[-1] * run), (*found.extent[:-1], const(run))
            return found.replace(begin=begin, extent=extent)

        return [region_at(indices), box(updates, len(lead)), box(target, count)], [box(target, count)]

    b.perform("scatter_updates", (*rest[:-1], rest[-1] // run) if rest else (1,), body, touches)
    return target


# ---------------------------------------------------------------- known places

_MOST_ROWS = 1 << 16
"""A table of where each part of a result comes from is no longer than this."""


def _nd_expand(e: Emitter, item: Node) -> Values | None:
    """Known places: a box of the data is replaced by the updates, or each part is taken from its source."""
    data, indices, updates = item.inputs
    known = e.known(indices)
    if not updates.type.size:
        return (data,)
    if known is None:
        return None
    count = known.shape[-1]
    places = np.stack(_nd_places(known, data.type.shape), -1).reshape(-1, count)
    box = _box_of(places)
    if box is not None:
        return (_replaced(e, data, updates, box, item.attrs.text("reduction")),)
    extents, rest = data.type.shape[:count], data.type.shape[count:]
    if item.attrs.text("reduction") != "none" or math.prod(extents) > _MOST_ROWS:
        return None
    source = np.arange(math.prod(extents))
    for number, place in enumerate(np.ravel_multi_index(tuple(places.T), extents).tolist()):
        source[place] = source.size + number  # the last one stays
    parts = (
        e.emit("Reshape", one, shape=(one.type.size // math.prod(rest), *rest)) for one in (data, updates)
    )
    both = e.emit("Concat", *parts, axis=0)
    taken = e.emit("Gather", both, e.constant(source.astype(np.int64)), axis=0, safe=True)
    return (e.emit("Reshape", taken, shape=data.type.shape),)


def _box_of(places: Array) -> tuple[range, ...] | None:
    """The box whose elements places are, in order; None where they are something else."""
    low, high = places.min(0), places.max(0) + 1
    if math.prod((high - low).tolist()) != len(places):
        return None
    box = np.stack(np.meshgrid(*map(np.arange, low, high), indexing="ij"), -1).reshape(places.shape)
    same = np.array_equal(box, places)
    return tuple(map(range, low.tolist(), high.tolist())) if same else None


_COMBINED = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}


def _replaced(e: Emitter, data: Value, updates: Value, box: tuple[range, ...], reduction: str) -> Value:
    """The data with a box of it updated: what is before and behind the box along each axis stays."""
    inside, around = data, []
    for axis, taken in enumerate(box):
        extent = data.type.shape[axis]
        before = emit_slice(e, inside, axis, 0, taken.start) if taken.start else None
        after = emit_slice(e, inside, axis, taken.stop, extent - taken.stop) if taken.stop < extent else None
        around.append((before, after))
        inside = emit_slice(e, inside, axis, taken.start, len(taken))
    made = updates
    if made.type.shape != inside.type.shape:
        made = e.emit("Reshape", made, shape=inside.type.shape)
    if reduction != "none":
        made = e.emit(_COMBINED[reduction], inside, made)
    for axis, (before, after) in reversed(list(enumerate(around))):
        parts = [one for one in (before, made, after) if one is not None]
        made = e.emit("Concat", *parts, axis=axis) if len(parts) > 1 else made
    return made


SCATTER_ND = Op(
    "ScatterND", Kind.REDUCTION, _nd_infer, _nd_reference, (3, 3),
    (Signature(11, adapt=_nd_import), Signature(16, {"reduction": "none"})),
    forms={PIECES: Form(_nd_form)}, expand=_nd_expand, flops=no_flops, alone=True,
)  # fmt: skip

# ---------------------------------------------------------------- TensorScatter


def _cache_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return inputs, {**attrs, "axis": normal_axis(Attrs(attrs).integer("axis"), inputs[0].type.rank)}


def _cache_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (data, update, *given), axis = types, attrs.integer("axis")
    if attrs.text("mode") not in ("linear", "circular"):
        raise InvalidError(f"TensorScatter has no mode {attrs.text('mode')!r}")
    if axis == 0 or data.dtype != update.dtype or data.rank != update.rank:
        raise InvalidError(f"TensorScatter cannot write {update} into {data} along axis {axis}")
    fits = all(a == b or at == axis for at, (a, b) in enumerate(zip(data.shape, update.shape, strict=True)))
    if not fits or update.shape[axis] > data.shape[axis]:
        raise InvalidError(f"TensorScatter cannot write {update} into {data} along axis {axis}")
    if any(item.shape != data.shape[:1] for item in given):
        raise InvalidError(f"TensorScatter begins at {given[0]}, expected one index for each sample")
    return (data,)


def _cache_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    (data, update, *given), axis = arrays, attrs.integer("axis")
    made, extent = np.array(data), data.shape[axis]
    begins = given[0] if given else np.zeros(data.shape[0], np.int64)
    for sample, begin in enumerate(begins.tolist()):
        rows, new = np.moveaxis(made[sample], axis - 1, 0), np.moveaxis(update[sample], axis - 1, 0)
        for number in range(update.shape[axis]):
            place = begin + number
            if attrs.text("mode") == "circular":
                place %= extent
            if 0 <= place < extent:
                rows[place] = new[number]
    return (made,)


def _cache_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """Each element asks whether it is among those that are new."""
    (data, update, *given), axis, out = inputs, info.attrs.integer("axis"), info.out_types[0]
    extent, count = out.shape[axis], info.in_types[1].shape[axis]

    def at(*index: Expr) -> Expr:
        begin = narrow(given[0][index[0]], INDEX) if given else wrap(0, INDEX)
        number = index[axis] - begin
        if info.attrs.text("mode") == "circular":
            number = number % extent
        inside = all_of(number.ge(0), number.lt(count))
        source = (*index[:axis], minimum(maximum(number, 0), count - 1), *index[axis + 1 :])
        return data[index] if inside is None or not count else Select(inside, update[source], data[index])

    return b.compute("tensor_scatter", out.shape, at, out.dtype)


TENSOR_SCATTER = Op(
    "TensorScatter", Kind.INJECTIVE, _cache_infer, _cache_reference, (2, 3),
    (Signature(24, {"axis": -2, "mode": "linear"}, adapt=_cache_import, optional=frozenset({2})),),
    forms={"direct": Form(_cache_form)}, flops=no_flops,
)  # fmt: skip

OPS = (GATHER_ELEMENTS, SCATTER_ELEMENTS, SCATTER, SCATTER_ND, TENSOR_SCATTER)
