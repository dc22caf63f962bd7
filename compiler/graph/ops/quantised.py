"""Quantised operators: QuantizeLinear, DequantizeLinear, products and convolutions of quantised integers.

All of them are plain arithmetic: sums of products are i32 and exact, what is scaled is f32 (or as the node
says), rounding is to nearest even. Canonical attributes: `axis` counts from the front; `block` is 0 but where
`block_size` is given; `zeros` says which zero points are given, as they are the operands behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from compiler.core.types import F32, F64, I32, U8, DType
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, from_numpy, to_numpy
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import (
    Emitter,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Signature,
    Types,
    Values,
    normal_axis,
)
from compiler.graph.ops.casting import rounded_floats
from compiler.graph.ops.linear import WINDOW, conv_reference, conv_type, import_conv, product_shape

_T = TypeVar("_T")

# ---------------------------------------------------------------- scales and zero points


def _spread_shape(shape: Sequence[int], rank: int, axis: int) -> tuple[int, ...]:
    """The shape under which a scale broadcasts: one number, a vector along `axis`, or as it is."""
    if len(shape) == 1 and rank:
        return tuple(shape[0] if at == axis else 1 for at in range(rank))
    return tuple(shape)


def _blocks(kind: TensorType, source: TensorType, axis: int, block: int) -> int:
    """How many elements along `axis` share a number; 0 where it simply broadcasts."""
    if kind.size == 1 or kind.rank < 2:
        if kind.size not in (1, source.shape[axis] if source.rank else 1):
            raise InvalidError(f"a scale {kind} does not fit {source}, axis {axis}")
        return 0
    if kind.rank != source.rank:
        raise InvalidError(f"a scale {kind} for blocks of {source} has another rank")
    size = block or -(-source.shape[axis] // max(kind.shape[axis], 1))
    wanted = tuple(-(-n // size) if at == axis else n for at, n in enumerate(source.shape))
    if kind.shape != wanted:
        raise InvalidError(f"a scale {kind} is not {list(wanted)}, as blocks of {size} on axis {axis} need")
    return size


def _spread(e: Emitter, value: Value, source: TensorType, item: Node) -> Value:
    """A scale or zero point in a shape that broadcasts to the tensor it is for."""
    axis, kind = item.attrs.integer("axis"), value.type
    size = _blocks(kind, source, axis, item.attrs.integer("block"))
    if kind.size == 1:
        return e.emit("Reshape", value, shape=())
    if not size:
        return e.emit("Reshape", value, shape=_spread_shape(kind.shape, source.rank, axis))
    shape = kind.shape
    apart = e.emit("Reshape", value, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
    wide = e.emit("Expand", apart, shape=(*shape[: axis + 1], size, *shape[axis + 1 :]))
    whole = e.emit("Reshape", wide, shape=(*shape[:axis], shape[axis] * size, *shape[axis + 1 :]))
    zeros, ones = (0,) * len(shape), (1,) * len(shape)
    return e.emit("Slice", whole, begin=zeros, step=ones, size=source.shape)


def _spread_array(x: Array, shape: Sequence[int], attrs: Attrs) -> Array:
    axis, block = attrs.integer("axis"), attrs.integer("block")
    if x.size == 1:
        return x.reshape(())
    if x.ndim < 2:
        return x.reshape(_spread_shape(x.shape, len(shape), axis))
    size = block or -(-shape[axis] // x.shape[axis])
    return np.repeat(x, size, axis)[tuple(slice(n) for n in shape)]


def _cast(e: Emitter, value: Value, to: DType) -> Value:
    return value if value.type.dtype == to else e.emit("Cast", value, to=to)


def _range(kind: DType) -> tuple[int, int]:
    low = -(1 << (kind.bits - 1)) if kind.is_signed else 0
    return low, low + (1 << kind.bits) - 1


def _saturated(e: Emitter, value: Value, to: DType) -> Value:
    """A whole number in floats as an integer type, the nearest that there is."""
    low, high = (e.constant(np.asarray(n, to_numpy(value.type.dtype))) for n in _range(to))
    return e.emit("Cast", e.emit("Min", e.emit("Max", value, low), high), to=to)


# ---------------------------------------------------------------- QuantizeLinear, DequantizeLinear


def _axis_of(inputs: Values, given: Attrs) -> int:
    """The axis; of no meaning where the scale is one number."""
    rank, axis = inputs[0].type.rank, given.integer("axis", 1)
    return normal_axis(axis, rank) if inputs[1].type.size > 1 else 0


def _quantise_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    zero = inputs[2].type.dtype if node.has(2) else None
    to = given.dtype("output_dtype") if "output_dtype" in given else zero or U8
    if zero is not None and zero != to:
        raise InvalidError(f"output_dtype is {to}, and the zero point is {zero}")
    precision = given.dtype("precision") if "precision" in given else inputs[1].type.dtype
    return inputs, {
        "axis": _axis_of(inputs, given),
        "block": given.integer("block_size", 0),
        "to": to,
        "precision": precision if precision.is_float else F32,
        "saturate": given.flag("saturate", default=True),
    }


def _quantise_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    for kind in types[1:]:
        _blocks(kind, types[0], attrs.integer("axis"), attrs.integer("block"))
    return (types[0].with_dtype(attrs.dtype("to")),)


def _quantise_expand(e: Emitter, item: Node) -> Values:
    source, scale, *zero = item.inputs
    to, precision = item.attrs.dtype("to"), item.attrs.dtype("precision")
    scale = _spread(e, scale, source.type, item)
    scaled = e.emit("Quotient", _cast(e, source, precision), _cast(e, scale, precision))
    wide = scaled if precision == F64 else _cast(e, scaled, F32)
    if to.is_int:
        wide = e.emit("Round", wide)
    for point in zero:
        wide = e.emit("Add", wide, _cast(e, _spread(e, point, source.type, item), wide.type.dtype))
    if to.is_int:
        return (_saturated(e, wide, to),)
    return (e.emit("Cast", wide, to=to, saturate=item.attrs.flag("saturate")),)


def _quantise_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, scale, *zero = arrays
    to, precision = attrs.dtype("to"), to_numpy(attrs.dtype("precision"))
    with np.errstate(all="ignore"):
        wide = x.astype(precision) / _spread_array(scale, x.shape, attrs).astype(precision)
        wide = wide if precision == np.float64 else wide.astype(np.float32)
        wide = np.rint(wide) if to.is_int else wide
        for point in zero:
            wide = wide + _spread_array(point, x.shape, attrs).astype(wide.dtype)
        if to.is_int:
            return (np.clip(wide, *_range(to)).astype(np.int32).astype(to_numpy(to)).reshape(x.shape),)
        return (rounded_floats(wide, attrs).reshape(x.shape),)


_AXIS = {"axis": 1}
_NEWER = {**_AXIS, "saturate": 1, "block_size": 0, "output_dtype": None}
_ZERO = frozenset({2})
QUANTISE = Op(
    "QuantizeLinear", Kind.INJECTIVE, _quantise_infer, _quantise_reference, (2, 3),
    (
        Signature(10, optional=_ZERO, adapt=_quantise_import),
        Signature(13, _AXIS, optional=_ZERO, adapt=_quantise_import),
        Signature(19, {**_AXIS, "saturate": 1}, optional=_ZERO, adapt=_quantise_import),
        Signature(21, _NEWER, optional=_ZERO, adapt=_quantise_import),
        Signature(23, {**_NEWER, "precision": None}, optional=_ZERO, adapt=_quantise_import),
    ),
    expand=_quantise_expand,
)  # fmt: skip


def _dequantise_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    to = given.dtype("output_dtype") if "output_dtype" in given else inputs[1].type.dtype
    return inputs, {"axis": _axis_of(inputs, given), "block": given.integer("block_size", 0), "to": to}


def _dequantise_expand(e: Emitter, item: Node) -> Values:
    """Differences of integers of 32 bits are exact; smaller ones are so in f32, too."""
    source, scale, *zero = item.inputs
    wide = source if source.type.dtype == I32 and zero else _cast(e, source, F32)
    for point in zero:
        wide = e.emit("Sub", wide, _cast(e, _spread(e, point, source.type, item), wide.type.dtype))
    factor = _cast(e, _spread(e, scale, source.type, item), F32)
    return (_cast(e, e.emit("Mul", _cast(e, wide, F32), factor), item.attrs.dtype("to")),)


def _dequantise_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, scale, *zero = arrays
    with np.errstate(all="ignore"):
        wide = x if x.dtype == np.int32 and zero else x.astype(np.float32)
        for point in zero:
            wide = wide - _spread_array(point, x.shape, attrs).astype(wide.dtype)
        found = wide.astype(np.float32) * _spread_array(scale, x.shape, attrs).astype(np.float32)
    return (np.asarray(found).astype(to_numpy(attrs.dtype("to"))).reshape(x.shape),)


DEQUANTISE = Op(
    "DequantizeLinear", Kind.INJECTIVE, _quantise_infer, _dequantise_reference, (2, 3),
    (
        Signature(10, optional=_ZERO, adapt=_dequantise_import),
        Signature(13, _AXIS, optional=_ZERO, adapt=_dequantise_import),
        Signature(21, {**_AXIS, "block_size": 0}, optional=_ZERO, adapt=_dequantise_import),
        Signature(23, {**_AXIS, "block_size": 0, "output_dtype": None}, optional=_ZERO,
                  adapt=_dequantise_import),
    ),
    expand=_dequantise_expand,
)  # fmt: skip

# ---------------------------------------------------------------- sums of products


def _left(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a number for each row of a left operand."""
    return (shape[0], 1) if len(shape) == 1 and shape[0] != 1 else tuple(shape)


def _filters(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """The shape of a number for each filter."""
    return (shape[0], *(1,) * (rank - 1)) if len(shape) == 1 and shape[0] != 1 else ()


def _channels(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """The shape of a number for each channel of a result."""
    return (1, shape[0], *(1,) * (rank - 2)) if len(shape) == 1 and shape[0] != 1 else ()


def _whole(e: Emitter, value: Value, zero: Value | None, shape: Sequence[int] = ()) -> Value:
    """A quantised tensor without its zero point, in i32."""
    wide = _cast(e, value, I32)
    if zero is None:
        return wide
    return e.emit("Sub", wide, e.emit("Reshape", _cast(e, zero, I32), shape=tuple(shape)))


def _whole_array(x: Array, zero: Array | None, shape: Sequence[int] = ()) -> Array:
    wide = x.astype(np.int32)
    return wide if zero is None else wide - zero.astype(np.int32).reshape(tuple(shape))


def _zeros_given(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return inputs, {**attrs, "zeros": tuple(int(node.has(at)) for at in (2, 3))}


def _zeros(operands: Sequence[_T], attrs: Attrs) -> tuple[_T | None, _T | None]:
    """The zero points of both factors, of the operands behind these."""
    rest = iter(operands[2:])
    a, b = (next(rest) if given else None for given in attrs.integers("zeros"))
    return a, b


def _product_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(I32, product_shape(types[0].shape, types[1].shape)),)


def _product_expand(e: Emitter, item: Node) -> Values:
    a, b = item.inputs[:2]
    zero_a, zero_b = _zeros(item.inputs, item.attrs)
    left = _whole(e, a, zero_a, _left(zero_a.type.shape) if zero_a else ())
    return (e.emit("MatMul", left, _whole(e, b, zero_b, zero_b.type.shape if zero_b else ())),)


def _product_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    zero_a, zero_b = _zeros(arrays, attrs)
    left = _whole_array(arrays[0], zero_a, _left(zero_a.shape) if zero_a is not None else ())
    right = _whole_array(arrays[1], zero_b, zero_b.shape if zero_b is not None else ())
    return (np.asarray(np.matmul(left, right)),)


PRODUCT = Op(
    "MatMulInteger", Kind.REDUCTION, _product_infer, _product_reference, (2, 4),
    (Signature(10, optional=frozenset({2, 3}), adapt=_zeros_given),), expand=_product_expand,
)  # fmt: skip


def _convolve_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return _zeros_given(node, inputs, import_conv(node, inputs[:2], attrs)[1])


def _conv_attrs(attrs: Attrs) -> Raw:
    return {name: value for name, value in attrs.items() if name != "zeros"}


def _convolve_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return conv_type([types[0].with_dtype(I32), types[1].with_dtype(I32)], Attrs(_conv_attrs(attrs)))


def _convolve_expand(e: Emitter, item: Node) -> Values:
    x, w = item.inputs[:2]
    zero_x, zero_w = _zeros(item.inputs, item.attrs)
    filters = _whole(e, w, zero_w, _filters(zero_w.type.shape, w.type.rank) if zero_w else ())
    return (e.emit("Conv", _whole(e, x, zero_x), filters, **_conv_attrs(item.attrs)),)


def _convolve_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, w = arrays[:2]
    zero_x, zero_w = _zeros(arrays, attrs)
    filters = _whole_array(w, zero_w, _filters(zero_w.shape, w.ndim) if zero_w is not None else ())
    return conv_reference([_whole_array(x, zero_x), filters], Attrs(_conv_attrs(attrs)))


CONVOLVE = Op(
    "ConvInteger", Kind.REDUCTION, _convolve_infer, _convolve_reference, (2, 4),
    (Signature(10, WINDOW, optional=frozenset({2, 3}), adapt=_convolve_import),), expand=_convolve_expand,
)  # fmt: skip

# ---------------------------------------------------------------- quantised results


def _requantised(e: Emitter, sums: Value, scales: Sequence[Value], zero: Value, to: DType) -> Value:
    """Sums in i32 scaled by two scales over the third one, rounded, shifted and saturated."""
    a, b, y = (_cast(e, scale, F32) for scale in scales)
    factor = e.emit("Quotient", e.emit("Mul", a, b), y)
    rounded = e.emit("Round", e.emit("Mul", _cast(e, sums, F32), factor))
    return _saturated(e, e.emit("Add", rounded, _cast(e, zero, F32)), to)


def _requantised_array(sums: Array, scales: Sequence[Array], zero: Array) -> Array:
    a, b, y = (scale.astype(np.float32) for scale in scales)
    found = np.rint(sums.astype(np.float32) * (a * b / y)) + zero.astype(np.float32)
    return np.asarray(np.clip(found, *_range(from_numpy(zero.dtype))).astype(zero.dtype))


def _reshaped(e: Emitter, value: Value, shape: Sequence[int]) -> Value:
    return e.emit("Reshape", value, shape=tuple(shape))


def _quantised_product_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(types[7].dtype, product_shape(types[0].shape, types[3].shape)),)


def _quantised_product_expand(e: Emitter, item: Node) -> Values:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = item.inputs
    left, right = _whole(e, a, a_zero, _left(a_zero.type.shape)), _whole(e, b, b_zero, b_zero.type.shape)
    scale_a, scale_y = (_reshaped(e, one, _left(one.type.shape)) for one in (a_scale, y_scale))
    zero = _reshaped(e, y_zero, _left(y_zero.type.shape))
    sums = e.emit("MatMul", left, right)
    return (_requantised(e, sums, (scale_a, b_scale, scale_y), zero, item.output.type.dtype),)


def _quantised_product_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = arrays
    sums = np.matmul(_whole_array(a, a_zero, _left(a_zero.shape)), _whole_array(b, b_zero, b_zero.shape))
    scales = [a_scale.reshape(_left(a_scale.shape)), b_scale, y_scale.reshape(_left(y_scale.shape))]
    found = _requantised_array(sums, scales, y_zero.reshape(_left(y_zero.shape)))
    return (found.reshape(np.shape(sums)),)


QUANTISED_PRODUCT = Op(
    "QLinearMatMul", Kind.REDUCTION, _quantised_product_infer, _quantised_product_reference, (8, 8),
    (Signature(10),), expand=_quantised_product_expand,
)  # fmt: skip


def _quantised_conv_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return inputs, import_conv(node, (inputs[0], inputs[3]), attrs)[1]


def _quantised_conv_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    kinds = [types[0].with_dtype(I32), types[3].with_dtype(I32), *types[8:]]
    return (conv_type(kinds, attrs)[0].with_dtype(types[7].dtype),)


def _quantised_conv_expand(e: Emitter, item: Node) -> Values:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = item.inputs
    filters = _whole(e, w, w_zero, _filters(w_zero.type.shape, w.type.rank))
    sums = e.emit("Conv", _whole(e, x, x_zero), filters, *bias, **item.attrs)
    rank = sums.type.rank
    scales = [_reshaped(e, one, _channels(one.type.shape, rank)) for one in (x_scale, w_scale, y_scale)]
    zero = _reshaped(e, y_zero, _channels(y_zero.type.shape, rank))
    return (_requantised(e, sums, scales, zero, item.output.type.dtype),)


def _quantised_conv_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = arrays
    filters = _whole_array(w, w_zero, _filters(w_zero.shape, w.ndim))
    (sums,) = conv_reference([_whole_array(x, x_zero), filters, *bias], attrs)
    scales = [one.reshape(_channels(one.shape, sums.ndim)) for one in (x_scale, w_scale, y_scale)]
    return (_requantised_array(sums, scales, y_zero.reshape(_channels(y_zero.shape, sums.ndim))),)


QUANTISED_CONV = Op(
    "QLinearConv", Kind.REDUCTION, _quantised_conv_infer, _quantised_conv_reference, (8, 9),
    (Signature(10, WINDOW, optional=frozenset({8}), adapt=_quantised_conv_import),),
    expand=_quantised_conv_expand,
)  # fmt: skip

OPS = (QUANTISE, DEQUANTISE, PRODUCT, CONVOLVE, QUANTISED_PRODUCT, QUANTISED_CONV)
