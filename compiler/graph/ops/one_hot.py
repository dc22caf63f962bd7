"""Operators that mark one place of each row: Hardmax, OneHot. Both expand into comparisons with places."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.core.types import I64
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import (
    Checked,
    Emitter,
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
    normal_axis,
)
from compiler.graph.ops.at_run import declared_type, is_number
from compiler.graph.ops.elementwise import FLOATS, check_kind
from compiler.graph.ops.indexing import emit_slice


def _emit_places(e: Emitter, extent: int, axis: int, rank: int) -> Value:
    """0, 1, ... along one axis of a tensor of this rank."""
    shape = tuple(extent if at == axis else 1 for at in range(rank))
    return e.constant(np.arange(extent).reshape(shape))


# ---------------------------------------------------------------- Hardmax


def _hardmax_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return inputs, {"axis": normal_axis(Attrs(attrs).integer("axis"), inputs[0].type.rank), "flatten": False}


def _hardmax_import_old(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """Before opset 13 all axes from `axis` on are one row."""
    rank = inputs[0].type.rank
    return inputs, {"axis": normal_axis(Attrs(attrs).integer("axis"), rank, extra=1), "flatten": True}


def _hardmax_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    check_kind("Hardmax", types[0].dtype, FLOATS)
    return (types[0],)


def _hardmax_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, axis = arrays[0], attrs.integer("axis")
    if attrs.flag("flatten"):
        rows = x.reshape(math.prod(x.shape[:axis]), -1) if x.size else x
        return (_marked(rows, rows.ndim - 1).reshape(x.shape),)
    return (_marked(x, axis),)


def _marked(x: Array, axis: int) -> Array:
    made = np.zeros_like(x)
    if x.size:
        np.put_along_axis(made, np.expand_dims(np.argmax(x, axis), axis), 1, axis)
    return made


def _hardmax_expand(e: Emitter, item: Node) -> Values:
    source, axis = item.inputs[0], item.attrs.integer("axis")
    shape = source.type.shape
    if item.attrs.flag("flatten"):
        flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        source, axis = e.emit("Reshape", source, shape=flat), 1
    best = e.emit("ArgMax", source, axes=(axis,), keepdims=True, last=False)
    places = _emit_places(e, source.type.shape[axis], axis, source.type.rank)
    marked = e.emit("Cast", e.emit("Equal", best, places), to=source.type.dtype)
    return (marked if marked.type.shape == shape else e.emit("Reshape", marked, shape=shape),)


HARDMAX = Op(
    "Hardmax", Kind.REDUCTION, _hardmax_infer, _hardmax_reference, (1, 1),
    (
        Signature(1, {"axis": 1}, adapt=_hardmax_import_old),
        Signature(13, {"axis": -1}, adapt=_hardmax_import),
    ),
    expand=_hardmax_expand, sign=Sign.NONNEGATIVE,
)  # fmt: skip

# ---------------------------------------------------------------- OneHot


def _one_hot_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    depth = attrs["depth"]
    depth = depth[0] if isinstance(depth, tuple) and len(depth) == 1 else depth
    if isinstance(depth, tuple | str) or int(depth) < 0:  # type: ignore[arg-type]  # it is a number
        raise InvalidError(f"its depth is {depth}, expected one number")
    axis = normal_axis(Attrs(attrs).integer("axis"), inputs[0].type.rank, extra=1)
    return inputs, {"axis": axis, "depth": int(depth)}  # type: ignore[arg-type]  # as above


def _one_hot_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (indices, values), axis = types, attrs.integer("axis")
    if values.shape != (2,):
        raise InvalidError(f"the values of OneHot are {values}, expected two")
    return (values.with_shape((*indices.shape[:axis], attrs.integer("depth"), *indices.shape[axis:])),)


def _one_hot_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    (indices, values), axis, depth = arrays, attrs.integer("axis"), attrs.integer("depth")
    whole = indices.astype(np.int64)
    marks = np.expand_dims(np.where(whole < 0, whole + depth, whole), axis)
    places = np.arange(depth).reshape([-1 if at == axis else 1 for at in range(marks.ndim)])
    return (np.where(marks == places, values[1], values[0]),)


def _one_hot_expand(e: Emitter, item: Node) -> Values:
    indices, values = item.inputs
    axis, depth = item.attrs.integer("axis"), item.attrs.integer("depth")
    shape = indices.type.shape
    whole = e.emit("Cast", indices, to=I64)
    last = e.emit("Add", whole, e.constant(np.asarray(depth)))
    marks = e.emit("Where", e.emit("Less", whole, e.constant(np.asarray(0))), last, whole)
    column = e.emit("Reshape", marks, shape=(*shape[:axis], 1, *shape[axis:]))
    found = e.emit("Equal", column, _emit_places(e, depth, axis, len(shape) + 1))
    off, on = (e.emit("Reshape", emit_slice(e, values, 0, at, 1), shape=()) for at in (0, 1))
    return (e.emit("Where", found, on, off),)


def _one_hot_at_run(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """With the declared extent of the new axis as its depth."""
    indices, depth, values = (given for given in node.inputs if given is not None)
    shape = declared_type(node).shape
    axis = normal_axis(attrs.integer("axis"), indices.type.rank, extra=1)
    made = e.emit("OneHot", indices, values, axis=axis, depth=shape[axis])
    return Checked((made,), is_number(e, depth, shape[axis]))


ONE_HOT = Op(
    "OneHot", Kind.INJECTIVE, _one_hot_infer, _one_hot_reference, (2, 2),
    (Signature(9, {"axis": -1}, {1: "depth"}, adapt=_one_hot_import, at_run=_one_hot_at_run),),
    expand=_one_hot_expand,
)  # fmt: skip

OPS = (HARDMAX, ONE_HOT)
