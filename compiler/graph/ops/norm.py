"""Normalisation: batch, layer, instance, group, local response; Softmax.

All but LRN and Softmax expand: batch normalisation into a multiplication and an addition with known factors,
the others into `Standardize` (unit variance over the trailing axes) and elementwise operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, accumulate_type
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    Build,
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
    broadcast_shape,
    everywhere,
    normal_axis,
    rounded_once,
    same_dtype,
)
from compiler.graph.ops.elementwise import FLOATS, check_kind, emit_scalar, narrow, widen
from compiler.graph.ops.repeating import emit_repeated
from compiler.loops.annotations import STAGE
from compiler.loops.build import Builder
from compiler.loops.ir import Binary, Buffer, Expr, call, const


def _same_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    check_kind("normalisation", types[0].dtype, FLOATS)
    return (types[0],)


def _per_channel(e: Emitter, value: Value, rank: int) -> Value:
    """A vector over channels, shaped to broadcast against (N, C, ...)."""
    return e.emit("Reshape", value, shape=(value.type.size, *([1] * (rank - 2))))


# ---------------------------------------------------------------- batch normalisation


def _batch_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    if Attrs(attrs).flag("training_mode", default=False):
        raise UnsupportedError("BatchNormalization in training mode is not supported")
    if not Attrs(attrs).flag("spatial", default=True):
        raise UnsupportedError("BatchNormalization with spatial=0 is not supported")
    return inputs, {"epsilon": attrs["epsilon"]}


def _batch_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    found = _same_infer(types, attrs)
    if types[0].rank < 2:
        raise InvalidError(f"BatchNormalization needs batch and channels, got {types[0]}")
    for item in types[1:]:
        if item.shape != (types[0].shape[1],):
            raise InvalidError(
                f"a parameter of BatchNormalization is {item}, expected {types[0].shape[1]} elements"
            )
    return found


@rounded_once
def _batch_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    x, *parameters = arrays
    shape = (-1, *([1] * (x.ndim - 2)))
    scale, bias, mean, var = (item.reshape(shape) for item in parameters)
    return (x - mean) / np.sqrt(var + attrs.number("epsilon")) * scale + bias


def _batch_expand(e: Emitter, item: Node) -> Values:
    x, scale, bias, mean, var = item.inputs
    spread = e.emit("Sqrt", e.emit("Add", var, emit_scalar(e, item.attrs.number("epsilon"), var)))
    factor = e.emit("Div", scale, spread)
    shift = e.emit("Sub", bias, e.emit("Mul", mean, factor))
    rank = x.type.rank
    return (e.emit("Add", e.emit("Mul", x, _per_channel(e, factor, rank)), _per_channel(e, shift, rank)),)


_EPSILON = 1e-5
_FORGET = frozenset({"momentum"})
BATCH = Op(
    "BatchNormalization", Kind.INJECTIVE, _batch_infer, _batch_reference, (5, 5),
    (
        Signature(7, {"epsilon": _EPSILON, "spatial": 1}, ignored=_FORGET, adapt=_batch_import),
        Signature(9, {"epsilon": _EPSILON}, ignored=_FORGET, adapt=_batch_import),
        Signature(14, {"epsilon": _EPSILON, "training_mode": 0}, ignored=_FORGET, adapt=_batch_import),
    ),
    expand=_batch_expand, flops=lambda info: 2 * info.out_types[0].size,
)  # fmt: skip

# ---------------------------------------------------------------- unit variance, mostly of zero mean


def _standardized(x: Array, axis: int, epsilon: float, *, centred: bool = True) -> Array:
    axes = tuple(range(axis, x.ndim))
    distance = x - x.mean(axes, keepdims=True) if centred else x
    return np.asarray(distance / np.sqrt((distance * distance).mean(axes, keepdims=True) + epsilon))


@rounded_once
def _standardize_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    axis, epsilon = attrs.integer("axis"), attrs.number("epsilon")
    return _standardized(arrays[0], axis, epsilon, centred=attrs.flag("centred"))


def _standardize_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """One sum per row, of squares; before it one of the elements, where those are taken from their mean."""
    axis, out = info.attrs.integer("axis"), info.out_types[0]
    rows, inner = out.shape[:axis], out.shape[axis:]
    count, kind = math.prod(inner), accumulate_type(out.dtype)
    mean = _mean_of_rows(b, inputs[0], info) if info.attrs.flag("centred") else None

    def distance(*index: Expr) -> Expr:
        element = widen(inputs[0][index])
        return element if mean is None else element - mean[index[:axis]]

    spread = b.reduce("spread", rows, inner, lambda *i: distance(*i) * distance(*i), "sum", kind)
    epsilon = info.attrs.number("epsilon")
    scale = b.compute("scale", rows, lambda *i: 1.0 / call("sqrt", spread[i] * (1 / count) + epsilon), kind)

    def result(*index: Expr) -> Expr:
        return narrow(distance(*index) * scale[index[:axis]], out.dtype)

    return b.compute("standardize", out.shape, result, out.dtype)


def _mean_of_rows(b: Builder, source: Buffer, info: NodeInfo) -> Buffer:
    axis, out = info.attrs.integer("axis"), info.out_types[0]
    rows, inner, kind = out.shape[:axis], out.shape[axis:], accumulate_type(out.dtype)
    total = b.reduce("total", rows, inner, lambda *i: widen(source[i]), "sum", kind)
    return b.compute("mean", rows, lambda *i: total[i] * (1 / math.prod(inner)), kind)


STANDARDIZE = Op(
    "Standardize", Kind.REDUCTION, _same_infer, _standardize_reference, (1, 1),
    forms={"direct": Form(_standardize_form)}, flops=lambda info: 6 * info.out_types[0].size,
    reads_once=everywhere,
)  # fmt: skip
"""Ours: (x - mean) / sqrt(variance + epsilon) over the axes from `axis` on.

Not `centred`: x / sqrt(mean of squares + epsilon).
"""


def emit_standardized(e: Emitter, value: Value, axis: int, epsilon: float, *, centred: bool = True) -> Value:
    """Emit `Standardize` of the axes from `axis` on."""
    return e.emit("Standardize", value, axis=axis, epsilon=epsilon, centred=centred)


def _layer_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    if given.integer("stash_type") != 1:
        raise UnsupportedError("normalisation with stash_type other than f32 is not supported")
    axis = normal_axis(given.integer("axis"), inputs[0].type.rank)
    return inputs, {"axis": axis, "epsilon": given.number("epsilon")}


def _layer_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    found = _same_infer(types, attrs)
    same_dtype(types)
    if broadcast_shape(*(item.shape for item in types)) != types[0].shape:
        raise InvalidError(f"scale or bias does not broadcast to {types[0]}")
    return found


@rounded_once
def _layer_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    x, scale, *rest = arrays
    found = _standardized(x, attrs.integer("axis"), attrs.number("epsilon")) * scale
    return found + rest[0] if rest else found


def _scaled(e: Emitter, value: Value, factors: Sequence[Value]) -> Value:
    value = e.emit("Mul", value, factors[0])
    return e.emit("Add", value, factors[1]) if len(factors) > 1 else value


def _layer_expand(e: Emitter, item: Node) -> Values:
    x, *factors = item.inputs
    core = emit_standardized(e, x, item.attrs.integer("axis"), item.attrs.number("epsilon"))
    return (_scaled(e, core, factors),)


LAYER = Op(
    "LayerNormalization", Kind.REDUCTION, _layer_infer, _layer_reference, (2, 3),
    (Signature(17, {"axis": -1, "epsilon": _EPSILON, "stash_type": 1}, adapt=_layer_import,
               optional=frozenset({2})),),
    expand=_layer_expand, flops=lambda info: 8 * info.out_types[0].size,
)  # fmt: skip


@rounded_once
def _rms_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    x, scale = arrays
    found = _standardized(x, attrs.integer("axis"), attrs.number("epsilon"), centred=False)
    return np.asarray(found * scale)


def _rms_expand(e: Emitter, item: Node) -> Values:
    x, scale = item.inputs
    axis, epsilon = item.attrs.integer("axis"), item.attrs.number("epsilon")
    return (e.emit("Mul", emit_standardized(e, x, axis, epsilon, centred=False), scale),)


RMS = Op(
    "RMSNormalization", Kind.REDUCTION, _layer_infer, _rms_reference, (2, 2),
    (Signature(23, {"axis": -1, "epsilon": _EPSILON, "stash_type": 1}, adapt=_layer_import),),
    expand=_rms_expand, flops=lambda info: 5 * info.out_types[0].size,
)  # fmt: skip


def _instance_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    found = _same_infer(types, attrs)
    if types[0].rank < 3:
        raise InvalidError(f"normalisation over spatial axes of {types[0]}, which has none")
    return found


@rounded_once
def _instance_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    x, *factors = arrays
    flat = x.reshape(x.shape[0], attrs.integer("num_groups", x.shape[1]), -1)
    found = _standardized(flat, 2, attrs.number("epsilon")).reshape(x.shape)
    # Where there are fewer factors than channels there is one per group.
    each = (np.repeat(item, x.shape[1] // item.size) for item in factors)
    scale, bias = (item.reshape(-1, *([1] * (x.ndim - 2))) for item in each)
    return np.asarray(found * scale + bias)


def _instance_expand(e: Emitter, item: Node) -> Values:
    x, *factors = item.inputs
    (batch, channels, *_), rank = x.type.shape, x.type.rank
    group = item.attrs.integer("num_groups", channels)
    flat = e.emit("Reshape", x, shape=(batch, group, x.type.size // (batch * group)))
    core = emit_standardized(e, flat, 2, item.attrs.number("epsilon"))
    back = e.emit("Reshape", core, shape=x.type.shape)
    return (_scaled(e, back, [_per_channel(e, _each_channel(e, f, channels), rank) for f in factors]),)


def _each_channel(e: Emitter, factor: Value, channels: int) -> Value:
    count = factor.type.size
    return factor if count == channels else emit_repeated(e, factor, channels // count)


INSTANCE = Op(
    "InstanceNormalization", Kind.REDUCTION, _instance_infer, _instance_reference, (3, 3),
    (Signature(6, {"epsilon": _EPSILON}),), expand=_instance_expand,
    flops=lambda info: 8 * info.out_types[0].size,
)  # fmt: skip
GROUP = Op(
    "GroupNormalization", Kind.REDUCTION, _instance_infer, _instance_reference, (3, 3),
    (
        Signature(18, {"epsilon": _EPSILON, "num_groups": None}),
        Signature(21, {"epsilon": _EPSILON, "num_groups": None}, ignored=frozenset({"stash_type"})),
    ),
    expand=_instance_expand,
    flops=lambda info: 8 * info.out_types[0].size,
)  # fmt: skip

# ---------------------------------------------------------------- local response


def _lrn_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    if inputs[0].type.rank < 3 or Attrs(attrs).integer("size") < 1:
        raise InvalidError(f"LRN of {inputs[0].type} over {attrs.get('size')} channels")
    return inputs, attrs


@rounded_once
def _lrn_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    x, size = arrays[0], attrs.integer("size")
    low = (size - 1) // 2
    squares = np.pad(x * x, [(0, 0), (low, size - 1 - low), *[(0, 0)] * (x.ndim - 2)])
    total = sum(squares[:, at : at + x.shape[1]] for at in range(size))
    base = attrs.number("bias") + attrs.number("alpha") / size * total
    return np.asarray(x / np.power(base, attrs.number("beta")))


def _power(base: Expr, exponent: float) -> Expr:
    """`base` to a known exponent; multiples of a quarter need square roots only."""
    root = call("sqrt", base)
    if exponent == 0.5:
        return root
    if exponent == 0.75:
        return root * call("sqrt", root)
    return base if exponent == 1 else Binary("pow", base, const(exponent, base.dtype))


def _lrn_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """Squares with zeros before the first and after the last channel, so that all windows are alike."""
    out, size, attrs = info.out_types[0], info.attrs.integer("size"), info.attrs
    squares, scale = _padded_squares(b, inputs[0], info), attrs.number("alpha") / size

    def result(n: Expr, c: Expr, *space: Expr) -> Expr:
        total: Expr = squares[(n, c, *space)]
        for step in range(1, size):
            total = total + squares[(n, c + step, *space)]
        base = total * scale + attrs.number("bias")
        return narrow(widen(inputs[0][(n, c, *space)]) / _power(base, attrs.number("beta")), out.dtype)

    return b.compute("lrn", out.shape, result, out.dtype)


def _padded_squares(b: Builder, source: Buffer, info: NodeInfo) -> Buffer:
    (batch, channels, *space), size = info.out_types[0].shape, info.attrs.integer("size")
    kind, low = accumulate_type(info.out_types[0].dtype), (size - 1) // 2
    squares = b.local("squares", (batch, channels + size - 1, *space), kind)
    stage = ((STAGE, "window"),)

    def inside(n: Expr, c: Expr, *rest: Expr) -> tuple[tuple[Expr, ...], Expr]:
        element = widen(source[(n, c, *rest)])
        return (n, c + low, *rest), element * element

    for first, count in ((0, low), (low + channels, size - 1 - low)):
        if count:

            def outside(n: Expr, c: Expr, *rest: Expr, at: int = first) -> tuple[tuple[Expr, ...], Expr]:
                return (n, c + at, *rest), const(0, kind)

            b.write("squares_outside", squares, (batch, count, *space), outside, stage)
    b.write("squares_inside", squares, (batch, channels, *space), inside, stage)
    return squares


LRN = Op(
    "LRN", Kind.REDUCTION, _same_infer, _lrn_reference, (1, 1),
    (Signature(1, {"size": None, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}, adapt=_lrn_import),),
    forms={"direct": Form(_lrn_form)}, sign=Sign.KEEPS,
    flops=lambda info: (2 * info.attrs.integer("size") + 20) * info.out_types[0].size, channels=True,
)  # fmt: skip

# ---------------------------------------------------------------- softmax


def _softmax_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return inputs, {"axis": normal_axis(Attrs(attrs).integer("axis"), inputs[0].type.rank), "flatten": False}


def _softmax_import_old(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """Before opset 13 all axes from `axis` on are one row."""
    rank = inputs[0].type.rank
    axis = normal_axis(Attrs(attrs).integer("axis"), rank)
    trailing = inputs[0].type.shape[axis + 1 :]
    return inputs, {"axis": axis, "flatten": any(extent != 1 for extent in trailing)}


def _softmax_axes(rank: int, attrs: Attrs) -> tuple[int, ...]:
    axis = attrs.integer("axis")
    return tuple(range(axis, rank)) if attrs.flag("flatten") else (axis,)


def _softmax_array(x: Array, axes: tuple[int, ...]) -> Array:
    powers = np.exp(x - x.max(axes, keepdims=True))
    return np.asarray(powers / powers.sum(axes, keepdims=True))


def _log_softmax_array(x: Array, axes: tuple[int, ...]) -> Array:
    shifted = x - x.max(axes, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axes, keepdims=True)))


def _softmax_expand(e: Emitter, item: Node) -> Values | None:
    """Rows that span several axes are flattened, so that there is one axis."""
    if not item.attrs.flag("flatten"):
        return None
    shape, axis = item.output.type.shape, item.attrs.integer("axis")
    rows = math.prod(shape[:axis])
    flat = e.emit("Reshape", item.inputs[0], shape=(rows, math.prod(shape[axis:])))
    return (e.emit("Reshape", e.emit(item.op.name, flat, axis=1, flatten=False), shape=shape),)


def _softmax_form(*, log: bool) -> Build:
    """Largest element of each row, exponentials of the distances from it, their sum, the quotient."""

    def form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
        axis, out = info.attrs.integer("axis"), info.out_types[0]
        kind = accumulate_type(out.dtype)
        rows, inner = (*out.shape[:axis], *out.shape[axis + 1 :]), (out.shape[axis],)

        def row(index: Sequence[Expr]) -> tuple[Expr, ...]:
            return (*index[:axis], *index[axis + 1 :])

        def full(index: Sequence[Expr]) -> tuple[Expr, ...]:
            return (*index[:axis], index[-1], *index[axis:-1])

        top = b.reduce("largest", rows, inner, lambda *i: widen(inputs[0][full(i)]), "max", kind)

        def power(*index: Expr) -> Expr:
            return call("exp_nonpositive", widen(inputs[0][index]) - top[row(index)])

        powers = b.compute("powers", out.shape, power, kind)
        total = b.reduce("total", rows, inner, lambda *i: powers[full(i)], "sum", kind)

        def result(*index: Expr) -> Expr:
            if log:
                found = widen(inputs[0][index]) - top[row(index)] - call("log", total[row(index)])
            else:
                found = powers[index] * (1.0 / total[row(index)])  # one division for a row
            return narrow(found, out.dtype)

        return b.compute("softmax", out.shape, result, out.dtype)

    return form


def _is_one_axis(info: NodeInfo) -> bool:
    return not info.attrs.flag("flatten")


def _softmax(name: str, fn: Callable[[Array, tuple[int, ...]], Array], sign: Sign, *, log: bool) -> Op:
    @rounded_once
    def reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
        return fn(arrays[0], _softmax_axes(arrays[0].ndim, attrs))

    return Op(
        name, Kind.REDUCTION, _same_infer, reference, (1, 1),
        (
            Signature(1, {"axis": 1}, adapt=_softmax_import_old),
            Signature(13, {"axis": -1}, adapt=_softmax_import),
        ),
        forms={"direct": Form(_softmax_form(log=log), _is_one_axis)}, expand=_softmax_expand,
        flops=lambda info: 12 * info.out_types[0].size, sign=sign, reads_once=everywhere, weighs=not log,
    )  # fmt: skip


SOFTMAX = _softmax("Softmax", _softmax_array, Sign.NONNEGATIVE, log=False)
LOG_SOFTMAX = _softmax("LogSoftmax", _log_softmax_array, Sign.UNKNOWN, log=True)

OPS = (BATCH, STANDARDIZE, LAYER, RMS, INSTANCE, GROUP, LRN, SOFTMAX, LOG_SOFTMAX)
