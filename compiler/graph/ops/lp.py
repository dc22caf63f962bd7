"""Lp norms: of sliding windows, of whole images, and along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import (
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
    input_size,
    normal_axis,
    rounded_once,
)
from compiler.graph.ops.elementwise import FLOATS, check_kind, emit_scalar
from compiler.graph.ops.pooling import (
    global_infer,
    import_pool,
    infer_pool,
    over_taps,
    pool_flops,
)
from compiler.graph.ops.windows import windows_of


def _exponent(attrs: Raw) -> int:
    p = Attrs(attrs).integer("p")
    if p < 1:
        raise InvalidError(f"p is {p}, expected a positive number")
    return p


def _powers(e: Emitter, value: Value, p: int) -> Value:
    """|x| ** p."""
    if p == 2:
        return e.emit("Mul", value, value)
    size = e.emit("Abs", value)
    return size if p == 1 else e.emit("Pow", size, emit_scalar(e, p, value))


def _root(e: Emitter, value: Value, p: int) -> Value:
    if p == 1:
        return value
    return e.emit("Sqrt", value) if p == 2 else e.emit("Pow", value, emit_scalar(e, 1 / p, value))


def _lp_pool_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    p = _exponent(attrs)
    inputs, made = import_pool(node, inputs, {name: attrs[name] for name in attrs if name != "p"})
    return inputs, {**made, "p": p}


def _lp_pool_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    check_kind("LpPool", types[0].dtype, FLOATS)
    return infer_pool(types, attrs)


@rounded_once
def _lp_pool_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    p = attrs.integer("p")
    return np.asarray(over_taps(np.abs(arrays[0]) ** p, attrs, np.add) ** (1 / p))


def _lp_pool_expand(e: Emitter, item: Node) -> Values:
    p = item.attrs.integer("p")
    total = e.emit("SumPool", _powers(e, item.inputs[0], p), **windows_of(item.attrs).attrs())
    return (_root(e, total, p),)


_WINDOWS: dict[str, AttrValue | None] = {
    "kernel_shape": None, "strides": None, "pads": None, "auto_pad": "NOTSET", "p": 2,
}  # fmt: skip

LP_POOL = Op(
    "LpPool", Kind.REDUCTION, _lp_pool_infer, _lp_pool_reference, (1, 1),
    (
        Signature(2, _WINDOWS, adapt=_lp_pool_import),
        Signature(18, {**_WINDOWS, "ceil_mode": 0, "dilations": None}, adapt=_lp_pool_import),
    ),
    expand=_lp_pool_expand, flops=pool_flops, sign=Sign.NONNEGATIVE,
)  # fmt: skip


def _global_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return inputs, {"p": _exponent(attrs)}


@rounded_once
def _global_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    x, p = arrays[0], attrs.integer("p")
    return np.asarray(np.sum(np.abs(x) ** p, axis=tuple(range(2, x.ndim)), keepdims=True) ** (1 / p))


def _global_expand(e: Emitter, item: Node) -> Values:
    source, p = item.inputs[0], item.attrs.integer("p")
    axes = tuple(range(2, source.type.rank))
    return (_root(e, e.emit("ReduceSum", _powers(e, source, p), axes=axes, keepdims=True), p),)


GLOBAL_LP_POOL = Op(
    "GlobalLpPool", Kind.REDUCTION, global_infer, _global_reference, (1, 1),
    (Signature(2, {"p": 2}, adapt=_global_import),),
    expand=_global_expand, flops=input_size, sign=Sign.NONNEGATIVE,
)  # fmt: skip


def _normal_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    axis = normal_axis(Attrs(attrs).integer("axis"), inputs[0].type.rank)
    return inputs, {"axis": axis, "p": _exponent(attrs)}


def _normal_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    check_kind("LpNormalization", types[0].dtype, FLOATS)
    return (types[0],)


@rounded_once
def _normal_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    """Where the norm is 0, so is the result."""
    x, p = arrays[0], attrs.integer("p")
    norm = np.sum(np.abs(x) ** p, axis=attrs.integer("axis"), keepdims=True) ** (1 / p)
    return np.asarray(np.divide(x, norm, where=norm != 0, out=np.zeros_like(x)))


def _normal_expand(e: Emitter, item: Node) -> Values:
    source, p = item.inputs[0], item.attrs.integer("p")
    axes = (item.attrs.integer("axis"),)
    norm = _root(e, e.emit("ReduceSum", _powers(e, source, p), axes=axes, keepdims=True), p)
    nothing = e.emit("Equal", norm, emit_scalar(e, 0, source))
    divisor = e.emit("Where", nothing, emit_scalar(e, 1, source), norm)
    return (e.emit("Div", source, divisor),)


LP_NORMALIZATION = Op(
    "LpNormalization", Kind.REDUCTION, _normal_infer, _normal_reference, (1, 1),
    (Signature(1, {"axis": -1, "p": 2}, adapt=_normal_import),),
    expand=_normal_expand, flops=lambda info: 4 * input_size(info), sign=Sign.KEEPS,
)  # fmt: skip

OPS = (LP_POOL, GLOBAL_LP_POOL, LP_NORMALIZATION)
