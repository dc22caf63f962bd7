"""Operators that pick elements by index, repeat them or reorder an axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from compiler.core.types import INDEX
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
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
    broadcast_shape,
    everywhere,
    moved,
    no_change,
    no_flops,
    normal_axis,
    where_to_read,
)
from compiler.graph.ops import at_run
from compiler.graph.ops.elementwise import narrow, read_broadcast
from compiler.graph.ops.indexing import emit_slice
from compiler.loops.build import Builder
from compiler.loops.ir import Buffer, Expr, Select, maximum, minimum, wrap


def along_axis(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """The axis from the front; raises InvalidError where it, or an index that is known, is out of range."""
    axis = normal_axis(Attrs(attrs).integer("axis"), inputs[0].type.rank)
    extent, known = inputs[0].type.shape[axis], node.known_at(1)
    if known is not None and known.size and not (-extent <= known.min() and known.max() < extent):
        raise InvalidError(f"an index is {known.min()} or {known.max()}, on an axis of extent {extent}")
    return inputs, {**attrs, "axis": axis}


def _gather_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    axis, shape = attrs.integer("axis"), types[0].shape
    if types[1].dtype.name not in ("i32", "i64"):
        raise InvalidError(f"the indices of Gather are {types[1].dtype}, expected i32 or i64")
    return (types[0].with_shape((*shape[:axis], *types[1].shape, *shape[axis + 1 :])),)


def _gather_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    extent = arrays[0].shape[attrs.integer("axis")]
    indices = np.where(arrays[1] < 0, arrays[1] + extent, arrays[1]).clip(0, max(extent - 1, 0))
    return (np.take(arrays[0], indices, axis=attrs.integer("axis")),)


def _gather_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """Indices known to be within the axis (`safe`) are used as they are, others wrapped once and clamped."""
    axis, out, count = info.attrs.integer("axis"), info.out_types[0], info.in_types[1].rank
    extent = info.in_types[0].shape[axis]

    def at(*index: Expr) -> Expr:
        found = narrow(inputs[1][index[axis : axis + count]], INDEX)
        if not info.attrs.flag("safe", default=False):
            found = clamped_index(found, extent)
        return inputs[0][(*index[:axis], found, *index[axis + count :])]

    return b.compute("gather", out.shape, at, out.dtype)


def clamped_index(index: Expr, extent: int) -> Expr:
    """An index that may count from the end, wrapped once and clamped."""
    wrapped = Select(index.lt(0), index + extent, index)
    return minimum(maximum(wrapped, 0), extent - 1)


def _gather_expand(e: Emitter, item: Node) -> Values | None:
    """Known indices: one index or a run of them is a Slice; others are counted from the front."""
    known, axis = e.known(item.inputs[1]), item.attrs.integer("axis")
    if known is None or item.attrs.flag("safe", default=False) or not known.size:
        return None
    data = item.inputs[0]
    indices = np.where(known < 0, known + data.type.shape[axis], known)
    flat = indices.reshape(-1)
    if np.array_equal(flat, np.arange(flat[0], flat[0] + flat.size)):
        piece = emit_slice(e, data, axis, int(flat[0]), flat.size)
        if piece.type.shape == item.output.type.shape:
            return (piece,)
        return (e.emit("Reshape", piece, shape=item.output.type.shape),)
    return (e.emit("Gather", data, e.constant(indices.astype(known.dtype)), axis=axis, safe=True),)


GATHER = Op(
    "Gather", Kind.INJECTIVE, _gather_infer, _gather_reference, (2, 2),
    (Signature(1, {"axis": 0}, adapt=along_axis),),
    forms={"direct": Form(_gather_form)}, expand=_gather_expand, flops=no_flops,
    keeps_channels=lambda info: info.attrs.integer("axis") > 1 and info.in_types[1].rank == 1,
    sign=Sign.KEEPS,
)  # fmt: skip


def _gather_nd_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (data, indices), batch = types, attrs.integer("batch_dims")
    if indices.dtype.name != "i64":
        raise InvalidError(f"the indices of GatherND are {indices.dtype}, expected i64")
    if indices.rank <= batch or data.shape[:batch] != indices.shape[:batch]:
        raise InvalidError(f"{data} and {indices} have no {batch} dimensions in common")
    cut = batch + indices.shape[-1]
    if not batch < cut <= data.rank:
        raise InvalidError(f"GatherND takes {indices.shape[-1]} indices into {data}")
    return (data.with_shape((*indices.shape[:-1], *data.shape[cut:])),)


def _gather_nd_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    (data, indices), batch = arrays, attrs.integer("batch_dims")
    places = np.indices(indices.shape[:-1], sparse=True)[:batch]
    extents = data.shape[batch : batch + indices.shape[-1]]
    wrapped = np.where(indices < 0, indices + extents, indices).clip(0, np.maximum(np.array(extents) - 1, 0))
    return (data[(*places, *np.moveaxis(wrapped, -1, 0))],)


def _gather_nd_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """Indices are wrapped once and clamped."""
    batch, (data, indices) = info.attrs.integer("batch_dims"), info.in_types
    lead, out = indices.rank - 1, info.out_types[0]

    def at(*index: Expr) -> Expr:
        found = (
            clamped_index(
                narrow(inputs[1][(*index[:lead], wrap(number, INDEX))], INDEX), data.shape[batch + number]
            )
            for number in range(indices.shape[-1])
        )
        return inputs[0][(*index[:batch], *found, *index[lead:])]

    return b.compute("gather_nd", out.shape, at, out.dtype)


def _gather_nd_expand(e: Emitter, item: Node) -> Values | None:
    """Known indices: those of a Gather from the data with its indexed dimensions in one."""
    known, data = e.known(item.inputs[1]), item.inputs[0]
    if known is None or item.attrs.integer("batch_dims") or not known.size:
        return None
    count = known.shape[-1]
    extents, rest = data.type.shape[:count], data.type.shape[count:]
    wrapped = np.where(known < 0, known + extents, known)
    flat = np.ravel_multi_index(tuple(np.moveaxis(wrapped, -1, 0)), extents, mode="clip")
    rows = e.emit("Reshape", data, shape=(math.prod(extents), *rest))
    return (e.emit("Gather", rows, e.constant(np.asarray(flat, np.int64)), axis=0),)


GATHER_ND = Op(
    "GatherND", Kind.INJECTIVE, _gather_nd_infer, _gather_nd_reference, (2, 2),
    (Signature(11, {"batch_dims": 0}),),
    forms={"direct": Form(_gather_nd_form)}, expand=_gather_nd_expand, flops=no_flops,
    sign=Sign.KEEPS,
)  # fmt: skip


def _expand_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return inputs, {"shape": broadcast_shape(inputs[0].type.shape, Attrs(attrs).integers("shape"))}


def _expand_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    shape = attrs.integers("shape")
    if broadcast_shape(types[0].shape, shape) != shape:
        raise InvalidError(f"{types[0]} does not expand to {list(shape)}")
    return (types[0].with_shape(shape),)


def _expand_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    out, source = info.out_types[0], info.in_types[0].shape
    return b.compute("expand", out.shape, lambda *i: read_broadcast(inputs[0], source, i), out.dtype)


EXPAND = Op(
    "Expand", Kind.INJECTIVE, _expand_infer, lambda x, a: (np.broadcast_to(x[0], a.integers("shape")),),
    (1, 1),
    (Signature(8, known={1: "shape"}, adapt=_expand_import, at_run=at_run.expanded),),
    forms={"direct": Form(_expand_form)}, expand=no_change, flops=no_flops, sign=Sign.KEEPS,
    inline=where_to_read,
)  # fmt: skip


def emit_repeated(e: Emitter, vector: Value, times: int) -> Value:
    """Every element of a vector so many times, one after the other."""
    count = vector.type.size
    column = e.emit("Reshape", vector, shape=(count, 1))
    return e.emit("Reshape", e.emit("Expand", column, shape=(count, times)), shape=(count * times,))


def _tile_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    repeats = attrs.integers("repeats")
    if len(repeats) != types[0].rank or min(repeats, default=1) < 0:
        raise InvalidError(f"repeats {list(repeats)} do not fit {types[0]}")
    return _repeat_infer(types, attrs)


def _tiled(info: NodeInfo, index: Sequence[Expr]) -> Iterator[Expr]:
    extents = zip(index, info.in_types[0].shape, info.out_types[0].shape, strict=True)
    return (i if n == m else i % n for i, n, m in extents)


TILE = Op(
    "Tile", Kind.INJECTIVE, _tile_infer, lambda x, a: (np.tile(x[0], a.integers("repeats")),), (1, 1),
    (Signature(6, known={1: "repeats"}, at_run=at_run.tiled),),
    forms=moved("tile", _tiled), expand=no_change, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip


def _repeat_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    repeats = attrs.integers("repeats")
    return (types[0].with_shape(tuple(n * times for n, times in zip(types[0].shape, repeats, strict=True))),)


def _repeat_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x = arrays[0]
    for axis, times in enumerate(attrs.integers("repeats")):
        x = np.repeat(x, times, axis) if times != 1 else x
    return (x,)


def _repeated(info: NodeInfo, index: Sequence[Expr]) -> Iterator[Expr]:
    return (i // times for i, times in zip(index, info.attrs.integers("repeats"), strict=True))


REPEAT = Op(
    "Repeat", Kind.INJECTIVE, _repeat_infer, _repeat_reference, (1, 1),
    forms=moved("repeat", _repeated), keeps_channels=everywhere,
    expand=no_change, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip
"""Ours: every element repeated in place along each axis (nearest-neighbour enlargement by whole factors)."""


def _shuffle_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    axis, groups = attrs.integer("axis"), attrs.integer("groups")
    if types[0].shape[axis] % groups:
        raise InvalidError(f"axis {axis} of {types[0]} does not divide into {groups} groups")
    return (types[0],)


def _shuffle_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    axis, groups, x = attrs.integer("axis"), attrs.integer("groups"), arrays[0]
    apart = x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])
    return (apart.swapaxes(axis, axis + 1).reshape(x.shape),)


def _shuffled(info: NodeInfo, index: Sequence[Expr]) -> tuple[Expr, ...]:
    axis, groups = info.attrs.integer("axis"), info.attrs.integer("groups")
    members = info.out_types[0].shape[axis] // groups
    source = index[axis] % groups * members + index[axis] // groups
    return (*index[:axis], source, *index[axis + 1 :])


def _shuffle_inline(info: NodeInfo, reader: Node) -> bool:
    """A convolution that sums over channels takes them one by one, in any order."""
    any_order = reader.op.name == "Conv" and reader.inputs[1].type.shape[1] > 1
    return any_order and info.attrs.integer("axis") == 1


SHUFFLE = Op(
    "ChannelShuffle", Kind.INJECTIVE, _shuffle_infer, _shuffle_reference, (1, 1),
    forms=moved("shuffle", _shuffled), flops=no_flops, sign=Sign.KEEPS, inline=_shuffle_inline,
)  # fmt: skip
"""Ours: element i * members + j of an axis, seen as (groups, members), goes to j * groups + i."""


def _reverse_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given, rank = Attrs(attrs), inputs[0].type.rank
    return inputs, {name: normal_axis(given.integer(name), rank) for name in ("batch_axis", "time_axis")}


def _reverse_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (data, lengths), batch, time = types, attrs.integer("batch_axis"), attrs.integer("time_axis")
    if batch == time or lengths.shape != (data.shape[batch],):
        raise InvalidError(f"ReverseSequence of {data} along axis {time} has lengths {lengths}")
    return (data,)


def _reverse_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    (data, lengths), axes = arrays, (attrs.integer("batch_axis"), attrs.integer("time_axis"))
    made = np.array(data)
    old, new = np.moveaxis(data, axes, (0, 1)), np.moveaxis(made, axes, (0, 1))
    for number, length in enumerate(lengths.tolist()):
        count = min(max(length, 0), old.shape[1])
        new[number, :count] = old[number, :count][::-1]
    return (made,)


def _reverse_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    out, batch, time = info.out_types[0], info.attrs.integer("batch_axis"), info.attrs.integer("time_axis")

    def at(*index: Expr) -> Expr:
        count = minimum(narrow(inputs[1][index[batch]], INDEX), out.shape[time])
        source = Select(index[time].lt(count), count - index[time] - 1, index[time])
        return inputs[0][(*index[:time], source, *index[time + 1 :])]

    return b.compute("reverse", out.shape, at, out.dtype)


REVERSE_SEQUENCE = Op(
    "ReverseSequence", Kind.INJECTIVE, _reverse_infer, _reverse_reference, (2, 2),
    (Signature(10, {"batch_axis": 1, "time_axis": 0}, adapt=_reverse_import),),
    forms={"direct": Form(_reverse_form)}, flops=no_flops,
)  # fmt: skip

OPS = (GATHER, GATHER_ND, EXPAND, TILE, REPEAT, SHUFFLE, REVERSE_SEQUENCE)
