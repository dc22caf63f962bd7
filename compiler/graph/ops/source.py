"""Operators without run-time inputs: once shapes are known they are constants, folded by the importer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.core.types import I64
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, from_numpy, to_numpy
from compiler.graph.ir import TensorType
from compiler.graph.op import (
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Signature,
    UnsupportedError,
    Values,
    no_flops,
)
from compiler.graph.ops import at_run


def _shape_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given, shape = Attrs(attrs), inputs[0].type.shape
    return (), {"values": shape[slice(given.integer("start"), given.integer("end", len(shape)))]}


SHAPE = Op(
    "Shape", Kind.INJECTIVE, lambda _t, a: (TensorType(I64, (len(a.integers("values")),)),),
    lambda _x, a: (np.asarray(a.integers("values"), np.int64),), (0, 0),
    (
        Signature(1, {"start": 0}, adapt=_shape_import),
        Signature(15, {"start": 0, "end": None}, adapt=_shape_import),
    ),
    flops=no_flops,
)  # fmt: skip


def _size_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return (), {"value": inputs[0].type.size}


SIZE = Op(
    "Size", Kind.INJECTIVE, lambda _t, _a: (TensorType(I64, ()),),
    lambda _x, a: (np.asarray(a.integer("value"), np.int64),), (0, 0),
    (Signature(1, adapt=_size_import),), flops=no_flops,
)  # fmt: skip


def _fill_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = node.attrs.get("value")
    value = given if isinstance(given, np.ndarray) else np.zeros(1, np.float32)
    if value.size != 1:
        raise InvalidError(f"the value of ConstantOfShape has {value.size} elements, expected 1")
    shape = Attrs(attrs).integers("shape")
    if min(shape, default=0) < 0:
        raise InvalidError(f"{list(shape)} is no shape")
    return (), {"shape": shape, "fill": value.reshape(-1)[0].item(), "dtype": from_numpy(value.dtype)}


def _fill_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    value = np.asarray(attrs["fill"], to_numpy(attrs.dtype("dtype")))
    return (np.broadcast_to(value, attrs.integers("shape")),)  # one element in memory, whatever the shape


FILL = Op(
    "ConstantOfShape", Kind.INJECTIVE, lambda _t, a: (TensorType(a.dtype("dtype"), a.integers("shape")),),
    _fill_reference, (0, 0),
    (Signature(9, ignored=frozenset({"value"}), known={0: "shape"}, adapt=_fill_import,
               at_run=at_run.filled),), flops=no_flops,
)  # fmt: skip


def _range_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    known = node.known_at(0)
    assert known is not None
    # One element with a dimension is no scalar, but ONNX's own expansions write it.
    plain = {
        name: value[0] if isinstance(value, tuple) and len(value) == 1 else value
        for name, value in attrs.items()
    }
    if Attrs(plain).number("delta") == 0:
        raise InvalidError("the delta of Range is 0")
    return (), {**plain, "dtype": from_numpy(known.dtype)}


def _range(attrs: Attrs) -> Array:
    bounds = (attrs.number(name) for name in ("start", "limit", "delta"))
    if attrs.dtype("dtype").is_int:
        bounds = (attrs.integer(name) for name in ("start", "limit", "delta"))
    return np.arange(*bounds, dtype=to_numpy(attrs.dtype("dtype")))


RANGE = Op(
    "Range", Kind.INJECTIVE, lambda _t, a: (TensorType(a.dtype("dtype"), _range(a).shape),),
    lambda _x, a: (_range(a),), (0, 0),
    (Signature(11, known={0: "start", 1: "limit", 2: "delta"}, adapt=_range_import,
               at_run=at_run.stepped),), flops=no_flops,
)  # fmt: skip


def _eye_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    kind = inputs[0].type
    if kind.rank != 2:
        raise UnsupportedError(f"EyeLike of {kind} is not supported, only of matrices")
    return (), {"shape": kind.shape, "k": Attrs(attrs).integer("k"), "dtype": attrs.get("dtype", kind.dtype)}


def _eye(attrs: Attrs) -> Array:
    rows, columns = attrs.integers("shape")
    return np.eye(rows, columns, attrs.integer("k"), to_numpy(attrs.dtype("dtype")))


EYE = Op(
    "EyeLike", Kind.INJECTIVE, lambda _t, a: (TensorType(a.dtype("dtype"), a.integers("shape")),),
    lambda _x, a: (_eye(a),), (0, 0),
    (Signature(9, {"k": 0, "dtype": None}, adapt=_eye_import),), flops=no_flops,
)  # fmt: skip

OPS = (SHAPE, SIZE, FILL, RANGE, EYE)
