"""Elementwise operators: each output element depends on the input elements at the same (broadcast) place.

One line per operator: its name, its meaning in numpy, and its loop expression. The reference of a small
float type (f16, bf16) is computed in f32 and rounded once; so are the loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.core.types import BOOL, F32, DType
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, accumulate_type, from_numpy, is_small_float, to_numpy
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    Emitter,
    Form,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Sign,
    Signature,
    UnsupportedError,
    broadcast_shape,
    one,
    same_dtype,
)
from compiler.loops.build import Builder
from compiler.loops.ir import Binary, Buffer, Expr, Select, Unary, call, const, maximum, minimum, wrap
from compiler.loops.ir import Cast as CastExpr

Numpy = Callable[..., Array]
Loop = Callable[..., Expr]

FLOATS, INTS, BOOLS = "f", "i", "b"
"""Which element types an operator takes; a record names several, as in "fi"."""


def _kind_of(kind: DType) -> str:
    return FLOATS if kind.is_float else BOOLS if kind.is_bool else INTS


def _check_kind(name: str, kind: DType, allowed: str) -> None:
    if _kind_of(kind) not in allowed:
        raise UnsupportedError(f"{name} of {kind} is not supported")


def read_broadcast(buffer: Buffer, shape: Sequence[int], index: Sequence[Expr]) -> Expr:
    """The element of `buffer` (of the given shape) that meets `index` under broadcasting."""
    lead = len(index) - len(shape)
    at = tuple(const(0) if extent == 1 else index[lead + axis] for axis, extent in enumerate(shape))
    return buffer[at]


def _widen(value: Expr) -> Expr:
    return CastExpr(F32, value) if is_small_float(value.dtype) else value


def _narrow(value: Expr, to: DType) -> Expr:
    return value if value.dtype == to else CastExpr(to, value)


def elementwise_form(name: str, loop: Loop) -> Form:
    """The one form of an elementwise operator: `loop(attrs, *elements)` at every point."""

    def build(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
        out = info.out_types[0]

        def at(*index: Expr) -> Expr:
            pairs = zip(inputs, info.in_types, strict=True)
            elements = [_widen(read_broadcast(buffer, kind.shape, index)) for buffer, kind in pairs]
            return _narrow(loop(info.attrs, *elements), out.dtype)

        return b.compute(name.lower(), out.shape, at, out.dtype)

    return one(build)


def _reference(fn: Numpy, result: DType | None) -> Callable[[Sequence[Array], Attrs], Sequence[Array]]:
    def reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
        kind = from_numpy(arrays[-1].dtype)
        wide = to_numpy(accumulate_type(kind))
        with np.errstate(all="ignore"):
            found = fn(attrs, *(item.astype(wide) if item.dtype.kind != "b" and wide != item.dtype else item
                                for item in arrays))  # fmt: skip
        return (np.asarray(found, to_numpy(result or kind)),)

    return reference


def _make(
    name: str,
    fn: Numpy,
    loop: Loop,
    count: tuple[int, int | None],
    types: str,
    result: DType | None = None,
    **more: Any,
) -> Op:
    def infer(in_types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:  # noqa: ARG001
        kind = same_dtype(in_types)
        _check_kind(name, kind, types)
        return (TensorType(result or kind, broadcast_shape(*(item.shape for item in in_types))),)

    return Op(
        name,
        Kind.INJECTIVE,
        infer,
        _reference(fn, result),
        count,
        forms={"direct": elementwise_form(name, loop)},
        elementwise=True,
        **more,
    )


# ---------------------------------------------------------------- one operand


def unary(
    name: str,
    fn: Numpy,
    loop: Loop,
    types: str = FLOATS,
    attrs: Mapping[str, AttrValue | None] | None = None,
    sign: Sign = Sign.UNKNOWN,
    cost: int = 1,
    since: int = 1,
    result: DType | None = None,
) -> Op:
    """An operator of one operand; `fn(attrs, x)` in numpy, `loop(attrs, x)` in loops; `cost` in FLOPs."""
    return _make(
        name, fn, loop, (1, 1), types, result,
        signatures=(Signature(since, attrs or {}, ignored=frozenset({"consumed_inputs"})),),
        sign=sign, flops=lambda info: cost * info.out_types[0].size,
    )  # fmt: skip


def erf_array(x: Array) -> Array:
    """The error function, evaluated in f64."""
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)


def _exp(x: Expr) -> Expr:
    return call("exp", x)


def _sigmoid(x: Expr) -> Expr:
    return 1.0 / (1.0 + _exp(-x))


def _sigmoid_array(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _clamp(x: Expr, low: float, high: float) -> Expr:
    return minimum(maximum(x, low), high)


def _choose(cond: Expr, a: Expr | float, b: Expr | float, like: Expr) -> Expr:
    return Select(cond, wrap(a, like.dtype), wrap(b, like.dtype))


_SQRT_HALF = math.sqrt(0.5)
_TANH_GELU = math.sqrt(2 / math.pi)


def _gelu_array(a: Attrs, x: Array) -> Array:
    if a.text("approximate") == "tanh":
        return 0.5 * x * (1 + np.tanh(_TANH_GELU * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf_array(x * _SQRT_HALF))


def _gelu(a: Attrs, x: Expr) -> Expr:
    if a.text("approximate") == "tanh":
        return x * 0.5 * (call("tanh", (x + x * x * x * 0.044715) * _TANH_GELU) + 1.0)
    return x * 0.5 * (call("erf", x * _SQRT_HALF) + 1.0)


def _softplus_array(x: Array) -> Array:
    return np.logaddexp(x, np.zeros((), x.dtype))


def _softplus(x: Expr) -> Expr:
    # log(1 + exp(x)) without overflow: max(x, 0) + log(1 + exp(-|x|))
    return maximum(x, 0.0) + call("log", _exp(-call("abs", x)) + 1.0)


def _sign_of(a: Attrs, x: Expr) -> Expr:  # noqa: ARG001
    return _choose(x.gt(0), 1, _choose(x.lt(0), wrap(-1, x.dtype), wrap(0, x.dtype), x), x)


_NONNEG, _KEEPS = Sign.NONNEGATIVE, Sign.KEEPS
_A = "alpha"

UNARY = (
    unary("Relu", lambda _a, x: np.maximum(x, 0), lambda _a, x: maximum(x, 0), "fi", sign=_NONNEG),
    unary("Neg", lambda _a, x: -x, lambda _a, x: -x, "fi"),
    unary("Abs", lambda _a, x: np.abs(x), lambda _a, x: call("abs", x), "fi", sign=_NONNEG),
    unary("Sign", lambda _a, x: np.sign(x), _sign_of, "fi"),
    unary("Floor", lambda _a, x: np.floor(x), lambda _a, x: call("floor", x), sign=_KEEPS),
    unary("Ceil", lambda _a, x: np.ceil(x), lambda _a, x: call("ceil", x), sign=_KEEPS),
    unary("Round", lambda _a, x: np.rint(x), lambda _a, x: call("round", x), sign=_KEEPS, since=11),
    unary("Sqrt", lambda _a, x: np.sqrt(x), lambda _a, x: call("sqrt", x), sign=_NONNEG),
    unary("Reciprocal", lambda _a, x: 1 / x, lambda _a, x: 1.0 / x, sign=_KEEPS),
    unary("Exp", lambda _a, x: np.exp(x), lambda _a, x: _exp(x), sign=_NONNEG, cost=8),
    unary("Log", lambda _a, x: np.log(x), lambda _a, x: call("log", x), cost=8),
    unary("Sin", lambda _a, x: np.sin(x), lambda _a, x: call("sin", x), cost=8),
    unary("Cos", lambda _a, x: np.cos(x), lambda _a, x: call("cos", x), cost=8),
    unary("Tanh", lambda _a, x: np.tanh(x), lambda _a, x: call("tanh", x), cost=10),
    unary("Erf", lambda _a, x: erf_array(x), lambda _a, x: call("erf", x), cost=12, since=9),
    unary("Sigmoid", lambda _a, x: _sigmoid_array(x), lambda _a, x: _sigmoid(x), sign=_NONNEG, cost=10),
    unary("Softplus", lambda _a, x: _softplus_array(x), lambda _a, x: _softplus(x), sign=_NONNEG, cost=18),
    unary("Softsign", lambda _a, x: x / (1 + np.abs(x)), lambda _a, x: x / (call("abs", x) + 1.0), cost=3),
    unary("Gelu", _gelu_array, _gelu, attrs={"approximate": "none"}, cost=16, since=20),
    unary("LeakyRelu", lambda a, x: np.where(x < 0, x * x.dtype.type(a.number(_A)), x),
          lambda a, x: _choose(x.lt(0), x * a.number(_A), x, x), attrs={_A: 0.01}, cost=2),
    unary("ThresholdedRelu", lambda a, x: np.where(x > a.number(_A), x, 0),
          lambda a, x: _choose(x.gt(a.number(_A)), x, 0.0, x), attrs={_A: 1.0}, since=10),
    unary("Elu", lambda a, x: np.where(x < 0, a.number(_A) * np.expm1(np.minimum(x, 0)), x),
          lambda a, x: _choose(x.lt(0), (_exp(minimum(x, 0.0)) - 1.0) * a.number(_A), x, x),
          attrs={_A: 1.0}, cost=10),
    unary("Celu", lambda a, x: np.maximum(x, 0) + np.minimum(0, a.number(_A) * np.expm1(x / a.number(_A))),
          lambda a, x: maximum(x, 0.0) + minimum((_exp(x * (1 / a.number(_A))) - 1.0) * a.number(_A), 0.0),
          attrs={_A: 1.0}, cost=10, since=12),
    unary("Selu", lambda a, x: a.number("gamma") * np.where(x > 0, x, a.number(_A) * np.expm1(np.minimum(x, 0))),
          lambda a, x: _choose(x.gt(0), x, (_exp(minimum(x, 0.0)) - 1.0) * a.number(_A), x) * a.number("gamma"),
          attrs={_A: 1.67326319217681884765625, "gamma": 1.05070102214813232421875}, cost=10),
    unary("HardSigmoid", lambda a, x: np.clip(x * a.number(_A) + a.number("beta"), 0, 1),
          lambda a, x: _clamp(x * a.number(_A) + a.number("beta"), 0.0, 1.0),
          attrs={_A: 0.2, "beta": 0.5}, sign=_NONNEG, cost=4),
    unary("HardSwish", lambda _a, x: x * np.clip(x / 6 + 0.5, 0, 1),
          lambda _a, x: x * _clamp(x * (1 / 6) + 0.5, 0.0, 1.0), cost=5, since=14),
    unary("Mish", lambda _a, x: x * np.tanh(_softplus_array(x)), lambda _a, x: x * call("tanh", _softplus(x)),
          cost=28, since=18),
    unary("Swish", lambda a, x: x * _sigmoid_array(x * a.number(_A)), lambda a, x: x * _sigmoid(x * a.number(_A)),
          attrs={_A: 1.0}, cost=12, since=24),
    unary("Not", lambda _a, x: ~x, lambda _a, x: Unary("not", x), "b"),
    unary("IsNaN", lambda _a, x: np.isnan(x), lambda _a, x: x.ne(x), result=BOOL, since=9),
)  # fmt: skip


# ---------------------------------------------------------------- two operands


def binary_op(
    name: str,
    fn: Numpy,
    loop: Loop,
    types: str = FLOATS + INTS,
    sign: Sign = Sign.UNKNOWN,
    result: DType | None = None,
    since: int = 7,
) -> Op:
    """An operator of two operands of one type; broadcast."""
    return _make(name, fn, loop, (2, 2), types, result, signatures=(Signature(since),), sign=sign)


def _divide_array(a: Attrs, x: Array, y: Array) -> Array:  # noqa: ARG001
    if x.dtype.kind == "f":
        return x / y
    quotient = np.floor_divide(x, y)  # ONNX follows C: integers are cut towards zero
    return np.where((x % y != 0) & ((x < 0) != (y < 0)), quotient + 1, quotient)


def _divide(a: Attrs, x: Expr, y: Expr) -> Expr:  # noqa: ARG001
    return Binary("div" if x.dtype.is_float else "truncdiv", x, y)


def _logic(op: str) -> Loop:
    return lambda _a, x, y: Binary(op, x, y)


BINARY = (
    binary_op("Add", lambda _a, x, y: x + y, lambda _a, x, y: x + y, sign=_KEEPS),
    binary_op("Sub", lambda _a, x, y: x - y, lambda _a, x, y: x - y),
    binary_op("Mul", lambda _a, x, y: x * y, lambda _a, x, y: x * y, sign=_KEEPS),
    binary_op("Div", _divide_array, _divide, sign=_KEEPS),
    binary_op("Equal", lambda _a, x, y: x == y, lambda _a, x, y: x.eq(y), "fib", result=BOOL),
    binary_op("Less", lambda _a, x, y: x < y, lambda _a, x, y: x.lt(y), result=BOOL),
    binary_op("LessOrEqual", lambda _a, x, y: x <= y, lambda _a, x, y: x.le(y), result=BOOL, since=12),
    binary_op("Greater", lambda _a, x, y: x > y, lambda _a, x, y: x.gt(y), result=BOOL),
    binary_op("GreaterOrEqual", lambda _a, x, y: x >= y, lambda _a, x, y: x.ge(y), result=BOOL, since=12),
    binary_op("And", lambda _a, x, y: x & y, _logic("and"), "b"),
    binary_op("Or", lambda _a, x, y: x | y, _logic("or"), "b"),
    binary_op("Xor", lambda _a, x, y: x ^ y, _logic("ne"), "b"),
    binary_op("PRelu", lambda _a, x, y: np.where(x < 0, x * y, x), lambda _a, x, y: Select(x.lt(0), x * y, x)),
)


# ---------------------------------------------------------------- any number of operands


def _expand_chain(op: str) -> Callable[[Emitter, Node], tuple[Value, ...] | None]:
    def expand(e: Emitter, item: Node) -> tuple[Value, ...] | None:
        if len(item.inputs) == 2 and item.op.name == op:
            return None
        result = item.inputs[0]
        for other in item.inputs[1:]:
            result = e.emit(op, result, other)
        return (result,)

    return expand


def _expand_mean(e: Emitter, item: Node) -> tuple[Value, ...]:
    (total,) = _expand_chain("Add")(e, item) or (item.inputs[0],)
    scale = np.asarray(1 / len(item.inputs), to_numpy(item.output.type.dtype))
    return (e.emit("Mul", total, e.constant(scale)),)


def _fold(fn: Callable[[Array, Array], Array]) -> Numpy:
    def over_all(a: Attrs, *arrays: Array) -> Array:  # noqa: ARG001
        result = arrays[0]
        for item in arrays[1:]:
            result = fn(result, item)
        return result

    return over_all


def _fold_loop(fn: Callable[[Expr, Expr], Expr]) -> Loop:
    def over_all(a: Attrs, *elements: Expr) -> Expr:  # noqa: ARG001
        result = elements[0]
        for item in elements[1:]:
            result = fn(result, item)
        return result

    return over_all


def _many(name: str, fn: Numpy, loop: Loop, types: str = FLOATS + INTS, **more: Any) -> Op:
    return _make(name, fn, loop, (1, None), types, signatures=(Signature(6),), sign=_KEEPS, **more)


VARIADIC = (
    _many("Max", _fold(np.maximum), _fold_loop(maximum), expand=_expand_chain("Max")),
    _many("Min", _fold(np.minimum), _fold_loop(minimum), expand=_expand_chain("Min")),
    _many("Sum", _fold(np.add), _fold_loop(lambda x, y: x + y), FLOATS, expand=_expand_chain("Add")),
    _many("Mean", lambda a, *x: _fold(np.add)(a, *x) / len(x),
          lambda a, *x: _fold_loop(lambda p, q: p + q)(a, *x) * (1 / len(x)), FLOATS, expand=_expand_mean),
)  # fmt: skip


# ---------------------------------------------------------------- those with types or inputs of their own


def _power_infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:  # noqa: ARG001
    _check_kind("Pow", types[0].dtype, FLOATS + INTS)
    return (TensorType(types[0].dtype, broadcast_shape(types[0].shape, types[1].shape)),)


def _power_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:  # noqa: ARG001
    kind = arrays[0].dtype
    wide = to_numpy(accumulate_type(from_numpy(kind)))
    with np.errstate(all="ignore"):
        if kind.kind in "iu":
            return (np.power(arrays[0].astype(np.float64), arrays[1].astype(np.float64)).astype(kind),)
        return (np.power(arrays[0].astype(wide), arrays[1].astype(wide)).astype(kind),)


def _power_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    out = info.out_types[0]
    base, exponent = info.in_types

    def at(*index: Expr) -> Expr:
        x = _widen(read_broadcast(inputs[0], base.shape, index))
        y = _narrow(_widen(read_broadcast(inputs[1], exponent.shape, index)), x.dtype)
        return _narrow(Binary("pow", x, y), out.dtype)

    return b.compute("pow", out.shape, at, out.dtype)


def _power_expand(e: Emitter, item: Node) -> tuple[Value, ...] | None:
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
    forms={"direct": one(_power_form)}, expand=_power_expand, elementwise=True,
    flops=lambda info: 20 * info.out_types[0].size,
)  # fmt: skip


def _modulo_infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    kind = same_dtype(types)
    _check_kind("Mod", kind, FLOATS + INTS)
    if kind.is_float:
        if not attrs.flag("fmod"):
            raise InvalidError("Mod of floats needs fmod=1")
    return (TensorType(kind, broadcast_shape(types[0].shape, types[1].shape)),)


def _modulo_array(a: Attrs, x: Array, y: Array) -> Array:
    return np.fmod(x, y) if a.flag("fmod") else np.mod(x, y)


def _modulo(a: Attrs, x: Expr, y: Expr) -> Expr:
    if x.dtype.is_float:
        return call("fmod", x, y)
    return Binary("truncmod" if a.flag("fmod") else "floormod", x, y)


MOD = Op(
    "Mod", Kind.INJECTIVE, _modulo_infer, _reference(_modulo_array, None), (2, 2),
    (Signature(10, {"fmod": 0}),), forms={"direct": elementwise_form("Mod", _modulo)}, elementwise=True,
)  # fmt: skip


def _where_infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:  # noqa: ARG001
    if not types[0].dtype.is_bool:
        raise InvalidError(f"the condition of Where is {types[0].dtype}, not bool")
    return (TensorType(same_dtype(types[1:]), broadcast_shape(*(item.shape for item in types))),)


WHERE = Op(
    "Where", Kind.INJECTIVE, _where_infer, lambda x, _a: (np.where(x[0], x[1], x[2]),), (3, 3), (Signature(9),),
    forms={"direct": elementwise_form("Where", lambda _a, c, x, y: Select(c, x, y))}, elementwise=True,
)  # fmt: skip


def _cast_infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0].with_dtype(attrs.dtype("to")),)


def _cast_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    target = attrs.dtype("to")
    with np.errstate(all="ignore"):
        if target.is_bool:
            return (arrays[0] != 0,)
        return (arrays[0].astype(to_numpy(target)),)


def _cast(a: Attrs, x: Expr) -> Expr:
    target = a.dtype("to")
    if target == x.dtype:
        return x
    if target.is_bool:
        return x.ne(0)
    if x.dtype.is_bool:
        return Select(x, const(1, target), const(0, target))
    return CastExpr(target, x)


def _cast_expand(e: Emitter, item: Node) -> tuple[Value, ...] | None:  # noqa: ARG001
    return item.inputs if item.attrs.dtype("to") == item.inputs[0].type.dtype else None


CAST = Op(
    "Cast", Kind.INJECTIVE, _cast_infer, _cast_reference, (1, 1),
    (Signature(6, {"to": None}, ignored=frozenset({"saturate", "round_mode"})),),
    forms={"direct": elementwise_form("Cast", _cast)}, expand=_cast_expand, elementwise=True, sign=_KEEPS,
)  # fmt: skip


def _cast_like(node: OnnxNode, inputs: tuple[Value, ...], attrs: dict[str, AttrValue]) -> Imported:  # noqa: ARG001
    return inputs[:1], {"to": inputs[1].type.dtype}


CAST_LIKE = Op(
    "CastLike", Kind.INJECTIVE, _cast_infer, _cast_reference, (1, 1),
    (Signature(15, ignored=frozenset({"saturate", "round_mode"}), adapt=_cast_like),),
    forms={"direct": elementwise_form("CastLike", _cast)}, elementwise=True, sign=_KEEPS,
    expand=lambda e, item: (e.emit("Cast", item.inputs[0], to=item.attrs.dtype("to")),),
)  # fmt: skip


def _clip_infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    _check_kind("Clip", types[0].dtype, FLOATS + INTS)
    same_dtype(types)
    for item in types[1:]:
        if item.size != 1:
            raise InvalidError(f"a bound of Clip has shape {list(item.shape)}, expected a scalar")
    if len(types) - 1 != attrs.flag("low_input") + attrs.flag("high_input"):
        raise InvalidError("Clip has a wrong number of bounds")
    return (types[0],)


def _clip_import(node: OnnxNode, inputs: tuple[Value, ...], attrs: dict[str, AttrValue]) -> Imported:
    """Bounds that are known become attributes, those that are not stay inputs."""
    kept, made = [inputs[0]], dict(attrs)
    for index, name in ((1, "low"), (2, "high")):
        known = node.known_at(index)
        made[f"{name}_input"] = False
        if known is not None:
            if known.size != 1:
                raise InvalidError(f"a bound of Clip has shape {list(known.shape)}, expected a scalar")
            made[name] = known.reshape(-1)[0].item()
        elif node.has(index):
            value = node.inputs[index]
            assert value is not None
            kept.append(value)
            made[f"{name}_input"] = True
    return tuple(kept), made


def _clip_import_old(node: OnnxNode, inputs: tuple[Value, ...], attrs: dict[str, AttrValue]) -> Imported:  # noqa: ARG001
    bounds = {new: attrs[old] for old, new in (("min", "low"), ("max", "high")) if old in attrs}
    return inputs, {**bounds, "low_input": False, "high_input": False}


def _clip_bounds(attrs: Attrs, extra: Sequence[Any]) -> tuple[Any, Any]:
    rest = list(extra)
    low = rest.pop(0) if attrs.flag("low_input") else attrs.get("low")
    high = rest.pop(0) if attrs.flag("high_input") else attrs.get("high")
    return low, high


def _clip_array(a: Attrs, x: Array, *extra: Array) -> Array:
    low, high = _clip_bounds(a, extra)
    x = x if low is None else np.maximum(x, np.asarray(low, x.dtype).reshape(()))
    return x if high is None else np.minimum(x, np.asarray(high, x.dtype).reshape(()))


def _clip_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    out = info.out_types[0]

    def at(*index: Expr) -> Expr:
        x = _widen(inputs[0][index])
        pairs = zip(inputs[1:], info.in_types[1:], strict=True)
        low, high = _clip_bounds(info.attrs, [_widen(item[(0,) * kind.rank]) for item, kind in pairs])
        x = x if low is None else maximum(x, low)
        return _narrow(x if high is None else minimum(x, high), out.dtype)

    return b.compute("clip", out.shape, at, out.dtype)


def _clip_expand(e: Emitter, item: Node) -> tuple[Value, ...] | None:
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
    "Clip", Kind.INJECTIVE, _clip_infer, _reference(_clip_array, None), (1, 3),
    (
        Signature(6, {"min": None, "max": None}, adapt=_clip_import_old),
        Signature(11, adapt=_clip_import, optional=frozenset({1, 2})),
    ),
    forms={"direct": one(_clip_form)}, expand=_clip_expand, elementwise=True, sign=_clip_sign,
    flops=lambda info: 2 * info.out_types[0].size,
)  # fmt: skip

OPS = (*UNARY, *BINARY, *VARIADIC, POW, MOD, WHERE, CAST, CAST_LIKE, CLIP)
