"""Operators that are elementwise, with operands or types of their own: Pow, Mod, Where, Clip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.core.types import F64
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, accumulate_type, from_numpy, to_numpy
from compiler.graph.ir import Node, NodeInfo, TensorType
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
    same_dtype,
)
from compiler.graph.ops.elementwise import (
    FLOATS,
    INTS,
    check_kind,
    elementwise_form,
    elementwise_reference,
    narrow,
    widen,
)
from compiler.loops.build import Builder
from compiler.loops.ir import Binary, Buffer, Expr, Select, call, const, maximum, minimum


def _power_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    check_kind("Pow", types[0].dtype, FLOATS + INTS)
    return (TensorType(types[0].dtype, broadcast_shape(types[0].shape, types[1].shape)),)


def _power_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    kind = arrays[0].dtype
    wide = np.dtype(np.float64) if kind.kind in "iu" else to_numpy(accumulate_type(from_numpy(kind)))
    with np.errstate(all="ignore"):
        return (np.power(arrays[0].astype(wide), arrays[1].astype(wide)).astype(kind),)


def _power(a: Attrs, x: Expr, y: Expr) -> Expr:
    """Of integers in f64, as exponents may be fractions or negative."""
    wide = x.dtype if x.dtype.is_float else F64
    return Binary("pow", narrow(x, wide), narrow(y, wide))


def _power_expand(e: Emitter, item: Node) -> Values | None:
    exponent = e.known(item.inputs[1])
    base = item.inputs[0]
    if exponent is None or exponent.size != 1 or item.output.type.shape != base.type.shape:
        return None
    power = float(exponent.reshape(-1)[0])
    if power == 1:
        return (base,)
    if power == 2:
        return (e.emit("Mul", base, base),)
    if power == 3:
        return (e.emit("Mul", e.emit("Mul", base, base), base),)
    if power == 0.5 and base.type.dtype.is_float:
        return (e.emit("Sqrt", base),)
    if power == -1 and base.type.dtype.is_float:
        return (e.emit("Reciprocal", base),)
    return None


POW = Op(
    "Pow", Kind.INJECTIVE, _power_infer, _power_reference, (2, 2), (Signature(7),),
    forms={"direct": elementwise_form("Pow", _power)}, expand=_power_expand, elementwise=True,
    flops=lambda info: 20 * info.out_types[0].size,
)  # fmt: skip


def _modulo_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    if inputs[0].type.dtype.is_float and not attrs["fmod"]:
        raise InvalidError("Mod of floats needs fmod=1 before opset 28")
    return inputs, attrs


def _modulo_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    kind = same_dtype(types)
    check_kind("Mod", kind, FLOATS + INTS)
    return (TensorType(kind, broadcast_shape(types[0].shape, types[1].shape)),)


def _modulo_array(a: Attrs, x: Array, y: Array) -> Array:
    return np.fmod(x, y) if a.flag("fmod") else np.mod(x, y)


def _modulo(a: Attrs, x: Expr, y: Expr) -> Expr:
    if not x.dtype.is_float:
        return Binary("truncmod" if a.flag("fmod") else "floormod", x, y)
    rest = call("fmod", x, y)
    if a.flag("fmod"):
        return rest
    zero = const(0.0, x.dtype)
    other_sign = Binary("ne", rest.lt(zero), y.lt(zero))
    return Select(rest.eq(zero), call("copysign", zero, y), Select(other_sign, rest + y, rest))


MOD = Op(
    "Mod", Kind.INJECTIVE, _modulo_infer, elementwise_reference(_modulo_array, None), (2, 2),
    (Signature(10, {"fmod": 0}, adapt=_modulo_import), Signature(28, {"fmod": 0})),
    forms={"direct": elementwise_form("Mod", _modulo)}, elementwise=True,
)  # fmt: skip


def _where_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    if not types[0].dtype.is_bool:
        raise InvalidError(f"the condition of Where is {types[0].dtype}, not bool")
    return (TensorType(same_dtype(types[1:]), broadcast_shape(*(item.shape for item in types))),)


def _where_expand(e: Emitter, item: Node) -> Values | None:
    """A condition that is known, and the same everywhere, chooses now."""
    known = e.known(item.inputs[0])
    if known is None or not known.size or known.min() != known.max():
        return None
    chosen = item.inputs[1 if known.flat[0] else 2]
    return (chosen,) if chosen.type == item.output.type else None


WHERE = Op(
    "Where", Kind.INJECTIVE, _where_infer, lambda x, _a: (np.where(x[0], x[1], x[2]),), (3, 3),
    (Signature(9),),
    forms={"direct": elementwise_form("Where", lambda _a, c, x, y: Select(c, x, y))}, elementwise=True,
    selects=True, expand=_where_expand,
)  # fmt: skip


def _clip_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    check_kind("Clip", types[0].dtype, FLOATS + INTS)
    same_dtype(types)
    for item in types[1:]:
        if item.size != 1:
            raise InvalidError(f"a bound of Clip has shape {list(item.shape)}, expected a scalar")
    if len(types) - 1 != attrs.flag("low_input") + attrs.flag("high_input"):
        raise InvalidError("Clip has a wrong number of bounds")
    return (types[0],)


def _clip_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """Bounds that are known become attributes, those that are not stay inputs."""
    kept, made = [inputs[0]], dict(attrs)
    for index, name in ((1, "low"), (2, "high")):
        known = node.known_at(index)
        made[f"{name}_input"] = False
        if known is not None:
            if known.size != 1:
                raise InvalidError(f"a bound of Clip has shape {list(known.shape)}, expected a scalar")
            made[name] = known.item()
        elif index < len(node.inputs) and (value := node.inputs[index]) is not None:
            kept.append(value)
            made[f"{name}_input"] = True
    return tuple(kept), made


def _clip_import_old(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    bounds = {new: attrs[old] for old, new in (("min", "low"), ("max", "high")) if old in attrs}
    return inputs, {**bounds, "low_input": False, "high_input": False}


def _clip_bounds(attrs: Attrs, extra: Sequence[Any]) -> tuple[Any, Any]:
    low = extra[0] if attrs.flag("low_input") else attrs.get("low")
    high = extra[-1] if attrs.flag("high_input") else attrs.get("high")
    return low, high


def _clip_array(a: Attrs, x: Array, *extra: Array) -> Array:
    low, high = _clip_bounds(a, extra)
    x = x if low is None else np.maximum(x, np.asarray(low, x.dtype).reshape(()))
    return x if high is None else np.minimum(x, np.asarray(high, x.dtype).reshape(()))


def _clip_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    out, (source, *bounds) = info.out_types[0], inputs
    extra = [widen(bound[(0,) * len(bound.shape)]) for bound in bounds]
    low, high = _clip_bounds(info.attrs, extra)

    def at(*index: Expr) -> Expr:
        x = widen(source[index])
        x = x if low is None else maximum(x, low)
        return narrow(x if high is None else minimum(x, high), out.dtype)

    return b.compute("clip", out.shape, at, out.dtype)


def _clip_expand(e: Emitter, item: Node) -> Values | None:
    """A Clip at zero without an upper bound is a Relu; without bounds it is nothing."""
    low, high = item.attrs.get("low"), item.attrs.get("high")
    if len(item.inputs) > 1:
        return None
    no_low = low is None or low == -math.inf
    no_high = high is None or high == math.inf
    if no_low and no_high:
        return item.inputs
    return (e.emit("Relu", item.inputs[0]),) if low == 0 and no_high else None


def _clip_sign(attrs: Attrs) -> Sign:
    low, high = attrs.get("low"), attrs.get("high")
    if isinstance(low, (int, float)) and low >= 0:
        return Sign.NONNEGATIVE
    high_keeps = high is None or (isinstance(high, (int, float)) and high >= 0)
    return Sign.KEEPS if high_keeps and not attrs.flag("high_input") else Sign.UNKNOWN


CLIP = Op(
    "Clip", Kind.INJECTIVE, _clip_infer, elementwise_reference(_clip_array, None), (1, 3),
    (
        Signature(6, {"min": None, "max": None}, adapt=_clip_import_old),
        Signature(11, adapt=_clip_import, optional=frozenset({1, 2})),
    ),
    forms={"direct": Form(_clip_form)}, expand=_clip_expand, elementwise=True, sign=_clip_sign,
    flops=lambda info: 2 * info.out_types[0].size,
)  # fmt: skip

OPS = (POW, MOD, WHERE, CLIP)
