"""Elementwise operators: each output element depends on the input elements at the same (broadcast) place.

One line per operator: its name, its meaning in numpy, and its loop expression. The reference of a small
float type (f16, bf16) is computed in f32 and rounded once; so are the loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from compiler.core.types import BOOL, F64, DType
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, accumulate_type, from_numpy, to_numpy
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    Emitter,
    Expand,
    Form,
    Kind,
    Op,
    Reference,
    Sign,
    Signature,
    Types,
    UnsupportedError,
    Values,
    broadcast_shape,
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


def check_kind(name: str, kind: DType, allowed: str) -> None:
    """Raise UnsupportedError for an element type that is not among the allowed ones."""
    if _kind_of(kind) not in allowed:
        raise UnsupportedError(f"{name} of {kind} is not supported")


def read_broadcast(buffer: Buffer, shape: Sequence[int], index: Sequence[Expr]) -> Expr:
    """The element of `buffer` (of the given shape) that meets `index` under broadcasting."""
    lead = len(index) - len(shape)
    at = tuple(const(0) if extent == 1 else index[lead + axis] for axis, extent in enumerate(shape))
    return buffer[at]


def widen(value: Expr) -> Expr:
    """An element in the type in which it is computed with."""
    return narrow(value, accumulate_type(value.dtype))


def narrow(value: Expr, to: DType) -> Expr:
    """A result rounded to the type in which it is stored."""
    return value if value.dtype == to else CastExpr(to, value)


def elementwise_form(name: str, loop: Loop) -> Form:
    """The one form of an elementwise operator: `loop(attrs, *elements)` at every point."""

    def build(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
        out = info.out_types[0]

        def at(*index: Expr) -> Expr:
            pairs = zip(inputs, info.in_types, strict=True)
            elements = [widen(read_broadcast(buffer, kind.shape, index)) for buffer, kind in pairs]
            return narrow(loop(info.attrs, *elements), out.dtype)

        return b.compute(name.lower(), out.shape, at, out.dtype)

    return Form(build)


def elementwise_reference(fn: Numpy, result: DType | None) -> Reference:
    """The numpy meaning of an elementwise operator; the result has the type of its last operand."""

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
    def infer(in_types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
        kind = same_dtype(in_types)
        check_kind(name, kind, types)
        return (TensorType(result or kind, broadcast_shape(*(item.shape for item in in_types))),)

    return Op(
        name,
        Kind.INJECTIVE,
        infer,
        elementwise_reference(fn, result),
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


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _erf_array(x: Array) -> Array:
    """The error function, evaluated in f64."""
    return np.asarray(_erf(x.astype(np.float64))).astype(x.dtype)


def _exp(x: Expr) -> Expr:
    return call("exp", x)


def _sigmoid(x: Expr) -> Expr:
    return call("sigmoid", x)


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
        return np.asarray(0.5 * x * (1 + np.tanh(_TANH_GELU * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + _erf_array(x * _SQRT_HALF)))


def _gelu(a: Attrs, x: Expr) -> Expr:
    if a.text("approximate") == "tanh":
        return x * 0.5 * (call("tanh", (x + x * x * x * 0.044715) * _TANH_GELU) + 1.0)
    return x * 0.5 * (call("erf", x * _SQRT_HALF) + 1.0)


def _softplus_array(x: Array) -> Array:
    return np.logaddexp(x, np.zeros((), x.dtype))


def _softplus(x: Expr) -> Expr:
    # log(1 + exp(x)) without overflow: max(x, 0) + log(1 + exp(-|x|))
    return maximum(x, 0.0) + call("log", _exp(-call("abs", x)) + 1.0)


def _sign_of(a: Attrs, x: Expr) -> Expr:
    return _choose(x.gt(0), 1, _choose(x.lt(0), wrap(-1, x.dtype), wrap(0, x.dtype), x), x)


def _shrink_array(a: Attrs, x: Array) -> Array:
    below, above = x < -a.number(_L), x > a.number(_L)
    wide = x if x.dtype.kind == "f" else x.astype(np.float64)
    return np.where(below, wide + a.number(_B), np.where(above, wide - a.number(_B), 0)).astype(x.dtype)


def _shrink(a: Attrs, x: Expr) -> Expr:
    """Of integers in f64, as bounds and bias may be fractions."""
    kind, x = x.dtype, x if x.dtype.is_float else CastExpr(F64, x)
    bound, bias = a.number(_L), a.number(_B)
    return narrow(_choose(x.lt(-bound), x + bias, _choose(x.gt(bound), x - bias, 0.0, x), x), kind)


def _infinite_array(a: Attrs, x: Array) -> Array:
    return (bool(a.flag(_NEG)) & np.isneginf(x)) | (bool(a.flag(_POS)) & np.isposinf(x))


def _infinite(a: Attrs, x: Expr) -> Expr:
    wanted = [value for name, value in ((_POS, math.inf), (_NEG, -math.inf)) if a.flag(name)]
    found = [x.eq(const(value, x.dtype)) for value in wanted]
    return reduce(partial(Binary, "or"), found) if found else const(0, BOOL)


_L, _B, _POS, _NEG = "lambd", "bias", "detect_positive", "detect_negative"
_NONNEG, _KEEPS = Sign.NONNEGATIVE, Sign.KEEPS
_A, _G = "alpha", "gamma"


def _function(name: str, fn: Numpy, since: int) -> Op:
    """A function that every language has under the operator's name."""
    return unary(name, lambda _a, x: fn(x), lambda _a, x: call(name.lower(), x), cost=10, since=since)


_FUNCTIONS: tuple[tuple[str, Numpy, int], ...] = (
    ("Tan", np.tan, 7), ("Asin", np.arcsin, 7), ("Acos", np.arccos, 7), ("Atan", np.arctan, 7),
    ("Sinh", np.sinh, 9), ("Cosh", np.cosh, 9), ("Asinh", np.arcsinh, 9), ("Acosh", np.arccosh, 9),
    ("Atanh", np.arctanh, 9),
)  # fmt: skip

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
    *(_function(*row) for row in _FUNCTIONS),
    unary("Tanh", lambda _a, x: np.tanh(x), lambda _a, x: call("tanh", x), cost=10),
    unary("Erf", lambda _a, x: _erf_array(x), lambda _a, x: call("erf", x), cost=12, since=9),
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
    unary("Selu", lambda a, x: a.number(_G) * np.where(x > 0, x, a.number(_A) * np.expm1(np.minimum(x, 0))),
          lambda a, x: _choose(x.gt(0), x, (_exp(minimum(x, 0.0)) - 1.0) * a.number(_A), x) * a.number(_G),
          attrs={_A: 1.67326319217681884765625, _G: 1.05070102214813232421875}, cost=10),
    unary("HardSigmoid", lambda a, x: np.clip(x * a.number(_A) + a.number("beta"), 0, 1),
          lambda a, x: _clamp(x * a.number(_A) + a.number("beta"), 0.0, 1.0),
          attrs={_A: 0.2, "beta": 0.5}, sign=_NONNEG, cost=4),
    unary("HardSwish", lambda _a, x: x * np.clip(x / 6 + 0.5, 0, 1),
          lambda _a, x: x * _clamp(x * (1 / 6) + 0.5, 0.0, 1.0), cost=5, since=14),
    unary("Mish", lambda _a, x: x * np.tanh(_softplus_array(x)), lambda _a, x: x * call("tanh", _softplus(x)),
          cost=28, since=18),
    unary("Swish", lambda a, x: x * _sigmoid_array(x * a.number(_A)),
          lambda a, x: x * _sigmoid(x * a.number(_A)), attrs={_A: 1.0}, cost=12, since=24),
    unary("Not", lambda _a, x: ~x, lambda _a, x: Unary("not", x), "b"),
    unary("Shrink", _shrink_array, _shrink, "fi", attrs={_L: 0.5, _B: 0.0}, cost=3, since=9),
    unary("IsInf", _infinite_array, _infinite, attrs={_NEG: 1, _POS: 1}, result=BOOL, since=10),
    unary("IsNaN", lambda _a, x: np.isnan(x), lambda _a, x: x.ne(x), result=BOOL, since=9),
)  # fmt: skip


# ---------------------------------------------------------------- two operands


def _binary_op(
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


def _divide_array(a: Attrs, x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return x / y
    quotient = np.floor_divide(x, y)  # ONNX follows C: integers are cut towards zero
    return np.where((x % y != 0) & ((x < 0) != (y < 0)), quotient + 1, quotient)


def _divide(a: Attrs, x: Expr, y: Expr) -> Expr:
    return Binary("div" if x.dtype.is_float else "truncdiv", x, y)


BINARY = (
    _binary_op("Add", lambda _a, x, y: x + y, lambda _a, x, y: x + y, sign=_KEEPS),
    _binary_op("Sub", lambda _a, x, y: x - y, lambda _a, x, y: x - y),
    _binary_op("Mul", lambda _a, x, y: x * y, lambda _a, x, y: x * y, sign=_KEEPS),
    _binary_op("Div", _divide_array, _divide, sign=_KEEPS),
    _binary_op("Equal", lambda _a, x, y: x == y, lambda _a, x, y: x.eq(y), "fib", result=BOOL),
    _binary_op("Less", lambda _a, x, y: x < y, lambda _a, x, y: x.lt(y), result=BOOL),
    _binary_op("LessOrEqual", lambda _a, x, y: x <= y, lambda _a, x, y: x.le(y), result=BOOL, since=12),
    _binary_op("Greater", lambda _a, x, y: x > y, lambda _a, x, y: x.gt(y), result=BOOL),
    _binary_op("GreaterOrEqual", lambda _a, x, y: x >= y, lambda _a, x, y: x.ge(y), result=BOOL, since=12),
    _binary_op("And", lambda _a, x, y: x & y, lambda _a, x, y: Binary("and", x, y), "b"),
    _binary_op("Or", lambda _a, x, y: x | y, lambda _a, x, y: Binary("or", x, y), "b"),
    _binary_op("Xor", lambda _a, x, y: x ^ y, lambda _a, x, y: Binary("ne", x, y), "b"),
    _binary_op(
        "PRelu", lambda _a, x, y: np.where(x < 0, x * y, x), lambda _a, x, y: Select(x.lt(0), x * y, x)
    ),
)


QUOTIENT = _make(
    "Quotient", lambda _a, x, y: x / y, lambda _a, x, y: x / y, (2, 2), FLOATS, sign=_KEEPS,
)  # fmt: skip
"""Ours: a division that is never a multiplication with the reciprocal, as what follows rounds to integers."""


# ---------------------------------------------------------------- any number of operands


def _expand_chain(op: str) -> Expand:
    def expand(e: Emitter, item: Node) -> Values | None:
        if len(item.inputs) == 2 and item.op.name == op:
            return None
        return (reduce(partial(e.emit, op), item.inputs),)

    return expand


def _expand_mean(e: Emitter, item: Node) -> Values:
    total = reduce(partial(e.emit, "Add"), item.inputs)
    return (e.emit("Mul", total, emit_scalar(e, 1 / len(item.inputs), item.output)),)


def emit_scalar(e: Emitter, value: float, like: Value) -> Value:
    """A constant scalar of the element type of `like`."""
    return e.constant(np.asarray(value, to_numpy(like.type.dtype)))


def _many(name: str, fn: Numpy, loop: Loop, expand: Expand, types: str = FLOATS + INTS) -> Op:
    return _make(
        name, fn, loop, (1, None), types, signatures=(Signature(6),), sign=_KEEPS, expand=expand,
    )  # fmt: skip


VARIADIC = (
    _many("Max", lambda _a, *x: reduce(np.maximum, x), lambda _a, *x: reduce(maximum, x),
          _expand_chain("Max")),
    _many("Min", lambda _a, *x: reduce(np.minimum, x), lambda _a, *x: reduce(minimum, x),
          _expand_chain("Min")),
    _many("Sum", lambda _a, *x: reduce(add, x), lambda _a, *x: reduce(add, x), _expand_chain("Add"), FLOATS),
    _many("Mean", lambda _a, *x: reduce(add, x) / len(x), lambda _a, *x: reduce(add, x) * (1 / len(x)),
          _expand_mean, FLOATS),
)  # fmt: skip


OPS = (*UNARY, *BINARY, QUOTIENT, *VARIADIC)
