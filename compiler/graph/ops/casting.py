"""Conversions between element types: Cast, CastLike, BitCast, and ours on types that are stored only.

Such a type (`DType.is_stored`) lies in memory of a kernel as bytes: an integer as the integer, a float as
its code. The rewrite `store_narrow_types` replaces casts from and to it by these operators: `DecodeFloat` and
`EncodeFloat` between codes and f32, `WrapInteger`, and `UnpackBits` and `PackBits` where elements of fewer
than 8 bits lie packed, in the model's inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.core.types import F32, F64, I32, U8, U32, DType
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, from_numpy, packed_array, stored_type, to_numpy, unpacked_array
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
    no_change,
    no_flops,
)
from compiler.graph.ops.elementwise import elementwise_form, read_broadcast
from compiler.graph.ops.movement import ravel
from compiler.loops.build import Builder
from compiler.loops.ir import Binary, Buffer, Call, Expr, Select, call, const, maximum, minimum
from compiler.loops.ir import Cast as CastExpr

# ---------------------------------------------------------------- formats


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A float of 8 bits or fewer: bits of the fraction, bias of the exponent, largest code without the sign.

    nan: a code that is not a number, None where there is none. negative_zero: whether there is one.
    """

    mantissa: int
    bias: int
    largest: int
    nan: int | None
    negative_zero: bool


FORMATS = {
    "f8e4m3fnuz": FloatFormat(3, 8, 0x7F, 0x80, negative_zero=False),
    "f8e5m2fnuz": FloatFormat(2, 16, 0x7F, 0x80, negative_zero=False),
    "f4e2m1": FloatFormat(1, 1, 7, None, negative_zero=True),
}
"""Floats that are stored as codes; f8e8m0 is a power of two and has rules of its own."""

_E8M0 = "f8e8m0"
_LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0, "f8e4m3fnuz": 240.0, "f8e5m2fnuz": 57344.0}
"""The largest numbers of types in which Cast saturates; the value that takes the place of larger ones."""
_INFINITY = 0x7F800000
_FRACTION = 23
_ROUND_MODES = ("up", "down", "nearest")


def _u32(value: int) -> Expr:
    return const(value, U32)


def _bits_of(x: Expr) -> Expr:
    """The bits of an f32."""
    return Call("bitcast", (x,), U32)


def _f32_of(bits: Expr) -> Expr:
    return Call("bitcast", (bits,), F32)


def _shifted(op: str, a: Expr, by: int) -> Expr:
    return Binary(op, a, _u32(by)) if by else a


def _and(a: Expr, b: Expr) -> Expr:
    return Binary("bitand", a, b)


def _or(a: Expr, b: Expr) -> Expr:
    return Binary("bitor", a, b)


# ---------------------------------------------------------------- codes of floats


def _decode(a: Attrs, code: Expr) -> Expr:
    kind, code = a.dtype("of"), CastExpr(U32, code)
    if kind.name == _E8M0:
        power = Select(code.eq(0), _u32(1 << (_FRACTION - 1)), _shifted("shl", code, _FRACTION))
        return _f32_of(Select(code.eq(255), _u32(_INFINITY | 1 << (_FRACTION - 1)), power))
    form = FORMATS[kind.name]
    top = kind.bits - 1
    sign = _shifted("shl", _shifted("shr", code, top), 31)
    size = _and(code, _u32((1 << top) - 1))
    normal = _shifted("shl", size, _FRACTION - form.mantissa) + _u32((127 - form.bias) << _FRACTION)
    small = CastExpr(F32, CastExpr(I32, size)) * 2.0 ** (1 - form.bias - form.mantissa)
    value = _or(Select(size.lt(1 << form.mantissa), _bits_of(small), normal), sign)
    if form.nan is not None:
        value = Select(code.eq(form.nan), _u32(_INFINITY | 1 << (_FRACTION - 1)), value)
    return _f32_of(value)


def _decode_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    return (arrays[0].view(to_numpy(attrs.dtype("of"))).astype(np.float32),)


DECODE = Op(
    "DecodeFloat", Kind.INJECTIVE, lambda t, _a: (t[0].with_dtype(F32),), _decode_reference, (1, 1),
    forms={"direct": elementwise_form("DecodeFloat", _decode)}, elementwise=True,
)  # fmt: skip
"""Ours: the f32 that a code (u8) of the float type `of` stands for; exact."""


def _encode(a: Attrs, x: Expr) -> Expr:
    kind, bits = a.dtype("to"), _bits_of(x)
    size = _and(bits, _u32(0x7FFFFFFF))
    if kind.name == _E8M0:
        return CastExpr(U8, _encode_power(size, a.text("round_mode"), saturate=a.flag("saturate")))
    form = FORMATS[kind.name]
    shift = _FRACTION - form.mantissa
    # Normal numbers: another bias, and half of the last place is added, less one where that is even.
    odd = _and(_shifted("shr", size, shift), _u32(1))
    half = _u32((1 << (shift - 1)) - 1)
    normal = _shifted("shr", size - _u32((127 - form.bias) << _FRACTION) + odd + half, shift)
    # Subnormal ones: an addition rounds where the sum has its last place where it is wanted.
    anchor = _u32((127 + 1 - form.bias + shift) << _FRACTION)
    subnormal = _bits_of(_f32_of(size) + _f32_of(anchor)) - anchor
    code = Select(size.lt((127 + 1 - form.bias) << _FRACTION), subnormal, normal)
    sign = _shifted("shl", _shifted("shr", bits, 31), kind.bits - 1)
    most = _u32(form.largest)
    none = _u32(form.nan) if form.nan is not None else None
    rounded = _or(Select(code.gt(most), most, code), sign)
    if not form.negative_zero:
        rounded = Select(code.eq(0), _u32(0), rounded)
    if none is None:  # the rule of ml_dtypes: what is no number becomes zero, with the other sign bit
        return CastExpr(U8, Select(size.gt(_INFINITY), _u32(1 << (kind.bits - 1)), rounded))
    if not a.flag("saturate"):
        rounded = Select(code.gt(most), none, rounded)
    return CastExpr(U8, Select(size.gt(_INFINITY), none, rounded))


def _encode_power(size: Expr, mode: str, *, saturate: bool) -> Expr:
    """The code of the power of two beside a positive number of these bits (ONNX's Cast, table for E8M0)."""
    half = 1 << (_FRACTION - 1)  # as bits of a subnormal number 2^-127, the least one, which has code 0
    fraction = _and(size, _u32((1 << _FRACTION) - 1))
    most = 1 << _FRACTION
    stays = {"up": (0, half), "nearest": (half - 1, half + half // 2 - 1), "down": (most, most)}[mode]
    above = Select(size.lt(most), fraction.gt(stays[1]), fraction.gt(stays[0]))
    code = _shifted("shr", size, _FRACTION) + Select(above, _u32(1), _u32(0))
    if saturate:
        code = Select(code.gt(254), _u32(254), code)
    else:
        code = Select(size.lt(half), _u32(255), Select(code.gt(254), _u32(255), code))
    return Select(size.gt(_INFINITY), _u32(255), code)


def power_codes(x: Array, mode: str, *, saturate: bool) -> Array:
    """`EncodeFloat` to f8e8m0 in numpy, by exponents in f64: codes (u8) of f32 numbers."""
    size = np.abs(x.astype(np.float64))
    with np.errstate(all="ignore"):
        exponent = np.log2(size)
        low = np.floor(exponent)
        middle = size >= 1.5 * np.exp2(low)
        power = {"up": np.ceil(exponent), "down": low, "nearest": np.where(middle, low + 1, low)}[mode]
    code = np.clip(np.nan_to_num(power + 127, nan=255, neginf=-1, posinf=256), -1, 256)
    outside = (size < 2.0**-127) | (code > 254)
    code = np.clip(code, 0, 254) if saturate else np.where(outside, 255, code)
    return np.where(np.isnan(x), 255, code).astype(np.uint8)


def rounded_floats(x: Array, attrs: Attrs) -> Array:
    """Numbers rounded to the float type `to`, of 8 bits or fewer, as ONNX's Cast does."""
    kind = attrs.dtype("to")
    to = to_numpy(kind)
    if kind.name == _E8M0:
        wide = x.astype(np.float64) if x.dtype.kind in "iu" else x
        return power_codes(wide, _round_mode(attrs), saturate=_saturates(attrs)).view(to)
    if kind.name in _LARGEST and _saturates(attrs):
        most = _LARGEST[kind.name]
        wide = (
            x.astype(np.promote_types(x.dtype, np.float32)) if x.dtype.kind in "fiu" else x.astype(np.float32)
        )
        return np.asarray(np.clip(wide, -most, most).astype(to))
    return x.astype(to)


def _encode_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    with np.errstate(all="ignore"):
        return (rounded_floats(arrays[0], attrs).view(np.uint8),)


ENCODE = Op(
    "EncodeFloat", Kind.INJECTIVE, lambda t, _a: (t[0].with_dtype(U8),), _encode_reference, (1, 1),
    forms={"direct": elementwise_form("EncodeFloat", _encode)}, elementwise=True,
)  # fmt: skip
"""Ours: the code (u8) of an f32 in the float type `to`, rounded to nearest even."""


def _to_odd(_a: Attrs, x: Expr) -> Expr:
    rounded = CastExpr(F32, x)
    bits, back = _bits_of(rounded), CastExpr(F64, rounded)
    away = call("abs", back).gt(call("abs", x))
    inexact = Binary("and", back.ne(x), x.eq(x))
    return _f32_of(_or(bits - Select(away, _u32(1), _u32(0)), Select(inexact, _u32(1), _u32(0))))


def _to_odd_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    with np.errstate(all="ignore"):
        x, rounded = arrays[0], arrays[0].astype(np.float32)
        back = rounded.astype(np.float64)
        cut = np.where(np.abs(back) > np.abs(x), np.nextafter(rounded, np.float32(0)), rounded)
    return (np.where(np.isnan(x), rounded, (cut.view(np.uint32) | (back != x)).view(np.float32)),)


TO_ODD = Op(
    "RoundToOdd", Kind.INJECTIVE, lambda t, _a: (t[0].with_dtype(F32),), _to_odd_reference, (1, 1),
    forms={"direct": elementwise_form("RoundToOdd", _to_odd)}, elementwise=True, sign=Sign.KEEPS,
)  # fmt: skip
"""Ours: an f64 cut to f32 with the last bit set where something was cut, so that it may be rounded once more.

Boldo, Melquiond: Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd (2008).
"""

# ---------------------------------------------------------------- integers of fewer than 8 bits


def _wrap(a: Attrs, x: Expr) -> Expr:
    kind = a.dtype("to")
    low: Expr = Binary("bitand", CastExpr(I32, x), const((1 << kind.bits) - 1, I32))
    if kind.is_int and kind.is_signed:
        half = const(1 << (kind.bits - 1), I32)
        low = Binary("bitxor", low, half) - half
    return CastExpr(stored_type(kind), low)


def _wrap_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    kind = attrs.dtype("to")
    low = arrays[0].astype(np.int64) & ((1 << kind.bits) - 1)
    half = 1 << (kind.bits - 1) if kind.is_int and kind.is_signed else 0
    return (((low ^ half) - half).astype(to_numpy(stored_type(kind))),)


def _wrap_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0].with_dtype(stored_type(attrs.dtype("to"))),)


WRAP = Op(
    "WrapInteger", Kind.INJECTIVE, _wrap_infer, _wrap_reference, (1, 1),
    forms={"direct": elementwise_form("WrapInteger", _wrap)}, elementwise=True,
)  # fmt: skip
"""Ours: the lowest bits of an integer as one of the type `to`, two's complement, in a byte."""


def packed_type(kind: TensorType) -> TensorType:
    """Bytes with the elements of a tensor, packed; the first axis stays where rows are whole bytes."""
    bits = kind.size * kind.dtype.bits
    rows = kind.shape[0] if kind.rank and kind.size else 1
    if bits // rows % 8:
        return TensorType(U8, ((bits + 7) // 8,))
    return TensorType(U8, (*kind.shape[:1], bits // rows // 8))


def _place(index: Sequence[Expr], kind: TensorType, packed: TensorType) -> tuple[tuple[Expr, ...], Expr]:
    """Leading index among the packed bytes, and the position of an element in what follows."""
    if packed.rank == 1:
        return (), ravel(index, kind.shape)
    return (index[0],), ravel(index[1:], kind.shape[1:])


def _unpack(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    kind, out = info.attrs.dtype("of"), info.out_types[0]
    count = 8 // kind.bits

    def at(*index: Expr) -> Expr:
        lead, position = _place(index, out, info.in_types[0])
        byte = CastExpr(I32, inputs[0][(*lead, position // count)])
        shift = CastExpr(I32, position % count) * kind.bits
        return _wrap(Attrs({"to": kind}), Binary("shr", byte, shift))

    return b.compute("unpack", out.shape, at, out.dtype)


UNPACK = Op(
    "UnpackBits", Kind.INJECTIVE,
    lambda _t, a: (TensorType(stored_type(a.dtype("of")), a.integers("shape")),),
    lambda x, a: (_stored(unpacked_array(x[0], a.dtype("of"), a.integers("shape"))),), (1, 1),
    forms={"direct": Form(_unpack)}, flops=no_flops,
)  # fmt: skip
"""Ours: elements of the type `of`, a byte each, from bytes that hold several."""


def _stored(array: Array) -> Array:
    kind = from_numpy(array.dtype)
    return array.astype(to_numpy(stored_type(kind))) if kind.is_int else array.view(np.uint8)


def _pack(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    kind, source, out = info.attrs.dtype("of"), info.in_types[0], info.out_types[0]
    count, flat = 8 // kind.bits, TensorType(source.dtype, (source.size,))
    rest = source.shape[1:] if out.rank > 1 else source.shape

    def part(index: Sequence[Expr], number: int) -> Expr:
        position = index[-1] * count + number
        inside = position if flat.size % count == 0 or out.rank > 1 else minimum(position, flat.size - 1)
        code: Expr = CastExpr(I32, inputs[0][(*index[:-1], *_unravelled(inside, rest))])
        code = Binary("bitand", code, const((1 << kind.bits) - 1, I32))
        code = Select(position.lt(flat.size), code, const(0, I32)) if inside is not position else code
        return Binary("shl", code, const(number * kind.bits, I32)) if number else code

    def at(*index: Expr) -> Expr:
        found = part(index, 0)
        for number in range(1, count):
            found = Binary("bitor", found, part(index, number))
        return CastExpr(U8, found)

    return b.compute("pack", out.shape, at, U8)


def _unravelled(position: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
    found: list[Expr] = []
    for axis in reversed(range(len(shape))):
        found.append(position % shape[axis] if axis else position)
        position = position // shape[axis]
    return tuple(reversed(found))


PACK = Op(
    "PackBits", Kind.INJECTIVE, lambda t, a: (packed_type(t[0].with_dtype(a.dtype("of"))),),
    lambda x, a: (packed_array(_typed(x[0], a.dtype("of"))).reshape(
        packed_type(TensorType(a.dtype("of"), x[0].shape)).shape),), (1, 1),
    forms={"direct": Form(_pack)}, flops=no_flops, alone=True,
)  # fmt: skip
"""Ours: several elements of the type `of` to a byte, read from memory; unused bits of the last one are 0."""


def _typed(array: Array, kind: DType) -> Array:
    return array.astype(to_numpy(kind)) if kind.is_int else array.view(to_numpy(kind))


# ---------------------------------------------------------------- Cast


def _saturates(attrs: Attrs) -> bool:
    return attrs.flag("saturate", default=True)


def _round_mode(attrs: Attrs) -> str:
    return attrs.text("round_mode", "up")


def _cast_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """How to round is kept only where it makes a difference."""
    given = Attrs(attrs)
    to, kept = given.dtype("to"), dict[str, bool | str | DType](to=given.dtype("to"))
    if _round_mode(given) not in _ROUND_MODES:
        raise InvalidError(f"Cast has no round_mode {_round_mode(given)!r}")
    if not _saturates(given) and (to.name in _LARGEST or to.name == _E8M0):
        kept["saturate"] = False
    if _round_mode(given) != "up" and to.name == _E8M0:
        kept["round_mode"] = _round_mode(given)
    return inputs, dict(kept)


def _cast_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0].with_dtype(attrs.dtype("to")),)


def _cast_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    to, x = attrs.dtype("to"), arrays[0]
    source = from_numpy(x.dtype)
    with np.errstate(all="ignore"):
        if to.is_bool:
            return ((x.astype(np.float32) if source.is_stored else x) != 0,)
        if to.is_float and to.bits <= F32.bits // 4:
            return (rounded_floats(x, attrs),)
        if to.is_stored:  # an integer of few bits: the lowest ones of a larger one
            whole = x.astype(np.int64) if not source.is_float else x.astype(np.float32).astype(np.int32)
            return (_typed(_wrap_reference([whole], attrs)[0], to),)
        if source.is_float and source.is_stored:
            return (x.astype(np.float32).astype(to_numpy(to)),)
        return (x.astype(to_numpy(to)),)


def _cast(a: Attrs, x: Expr) -> Expr:
    to = a.dtype("to")
    if to == x.dtype:
        return x
    if to.is_bool:
        return x.ne(0)
    if x.dtype.is_bool:
        return Select(x, const(1, to), const(0, to))
    if to.name in _LARGEST and _saturates(a):
        most = _LARGEST[to.name]
        wide = x if x.dtype.is_float else CastExpr(F32, x)
        x = minimum(maximum(wide, -most), most)
    return CastExpr(to, x)


def _moves_plain_types(info: NodeInfo) -> bool:
    return not any(kind.dtype.is_stored for kind in (*info.in_types, *info.out_types))


def _cast_expand(e: Emitter, item: Node) -> Values | None:
    """From f64 to 16 bits and fewer in two steps that round as one."""
    source, to = item.inputs[0], item.attrs.dtype("to")
    if source.type.dtype == F64 and to.is_float and to.bits < F32.bits:
        return (e.emit("Cast", e.emit("RoundToOdd", source), **item.attrs),)
    return no_change(e, item)


def _cast_sign(attrs: Attrs) -> Sign:
    """An integer that is cut to fewer bits may become negative."""
    to = attrs.dtype("to")
    return Sign.UNKNOWN if to.is_int and to.is_signed else Sign.KEEPS


_ROUNDING: dict[str, AttrValue | None] = {"saturate": 1, "round_mode": "up"}


def _to_cast(e: Emitter, item: Node) -> Values:
    return (e.emit("Cast", *item.inputs, **item.attrs),)


def _cast_op(name: str, *signatures: Signature) -> Op:
    return Op(
        name, Kind.INJECTIVE, _cast_infer, _cast_reference, (1, 1), signatures,
        forms={"direct": Form(elementwise_form(name, _cast).build, _moves_plain_types)},
        expand=_cast_expand if name == "Cast" else _to_cast,
        elementwise=True, sign=_cast_sign,
    )  # fmt: skip


CAST = _cast_op(
    "Cast",
    Signature(6, {"to": None}, adapt=_cast_import),
    Signature(19, {"to": None, "saturate": 1}, adapt=_cast_import),
    Signature(24, {"to": None, **_ROUNDING}, adapt=_cast_import),
)


def _cast_like(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return _cast_import(node, inputs[:1], {**attrs, "to": inputs[1].type.dtype})


CAST_LIKE = _cast_op(
    "CastLike",
    Signature(15, adapt=_cast_like),
    Signature(19, {"saturate": 1}, adapt=_cast_like),
    Signature(24, _ROUNDING, adapt=_cast_like),
)

# ---------------------------------------------------------------- BitCast


def _bit_cast_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    source, to = types[0].dtype, attrs.dtype("to")
    if source.bits != to.bits:
        raise InvalidError(f"BitCast of {source} to {to}, which has another size")
    return (types[0].with_dtype(to),)


def _bit_cast_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    kind, to = from_numpy(arrays[0].dtype), attrs.dtype("to")
    if kind.bits < 8:
        return (unpacked_array(packed_array(arrays[0]), to, arrays[0].shape),)
    return (np.ascontiguousarray(arrays[0]).view(to_numpy(to)).reshape(arrays[0].shape),)


def _bit_cast(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    out = info.out_types[0]

    def at(*index: Expr) -> Expr:
        return Call("bitcast", (read_broadcast(inputs[0], out.shape, index),), out.dtype)

    return b.compute("bitcast", out.shape, at, out.dtype)


BIT_CAST = Op(
    "BitCast", Kind.VIEW, _bit_cast_infer, _bit_cast_reference, (1, 1), (Signature(26, {"to": None}),),
    forms={"direct": Form(_bit_cast, _moves_plain_types)}, expand=no_change, flops=no_flops,
)  # fmt: skip

OPS = (CAST, CAST_LIKE, BIT_CAST, DECODE, ENCODE, TO_ODD, WRAP, UNPACK, PACK)
