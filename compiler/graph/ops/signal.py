"""Spectra: DFT, STFT, and the weights of mel bands.

A transform is a product with a matrix that is known. One that is long is split at a factor: columns are
transformed, turned by the twiddle factors and transformed along rows (Cooley and Tukey, 1965), so n * (a + b)
products for n = a * b instead of n * n. Complex numbers are pairs along the last axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.core.types import F32
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
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
    UnsupportedError,
    Values,
    no_flops,
    normal_axis,
)
from compiler.graph.ops.indexing import emit_slice

_LONGEST = 512
"""Elements up to which a transform is one product."""

# ---------------------------------------------------------------- complex products with known matrices


def _matrix(n: int, rows: int, columns: int, *, inverse: bool) -> Array:
    """e^(-+2 pi i j k / n) for k < rows, j < columns, complex; zeros are exact."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % n
    found = np.exp((2j if inverse else -2j) * np.pi * turns / n)
    real = np.where((4 * turns) % (2 * n) == n, 0, found.real)
    return np.asarray(real + 1j * np.where((2 * turns) % n == 0, 0, found.imag))


def _paired(matrix: Array, inputs: int) -> Array:
    """A complex matrix (out, in) as a real one for rows of pairs: (in * inputs, out * 2)."""
    real, imaginary = matrix.real.T, matrix.imag.T
    from_real = np.stack([real, imaginary], -1)
    if inputs == 1:
        return from_real.reshape(matrix.shape[1], -1)
    both = np.stack([from_real, np.stack([-imaginary, real], -1)], 1)
    return both.reshape(2 * matrix.shape[1], -1)


def _product(e: Emitter, value: Value, matrix: Array) -> Value:
    """(..., n, pairs or numbers) with a complex matrix (m, n): (..., m, 2)."""
    *lead, n, parts = value.type.shape
    flat = e.emit("Reshape", value, shape=(math.prod(lead), n * parts))
    known = e.constant(_paired(matrix, parts).astype(to_numpy(value.type.dtype)))
    return e.emit("Reshape", e.emit("MatMul", flat, known), shape=(*lead, matrix.shape[0], 2))


def _factor(n: int) -> int:
    """The divisor of n that is next to its square root."""
    return next(one for one in range(math.isqrt(n), 0, -1) if n % one == 0)


def _transform(e: Emitter, value: Value, n: int, rows: int, *, inverse: bool) -> Value:
    """The first `rows` of the transform of (..., n, parts): (..., rows, 2), not scaled."""
    count, (*lead, given, parts) = _factor(n), value.type.shape
    if n <= _LONGEST or count == 1:
        return _product(e, value, _matrix(n, rows, given, inverse=inverse))
    value = _padded(e, value, value.type.rank - 2, n)
    other = n // count
    batch = math.prod(lead)
    # Element j = other * a + b; result k = c + count * d.
    apart = e.emit("Reshape", value, shape=(batch, count, other, parts))
    columns = e.emit("Transpose", apart, perm=(0, 2, 1, 3))
    inner = _transform(e, columns, count, count, inverse=inverse)
    turned = _turned(e, inner, _matrix(n, other, count, inverse=inverse))
    lines = e.emit("Transpose", turned, perm=(0, 2, 1, 3))
    outer = _transform(e, lines, other, other, inverse=inverse)
    mixed = e.emit("Transpose", outer, perm=(0, 2, 1, 3))
    whole = e.emit("Reshape", mixed, shape=(*lead, n, 2))
    return emit_slice(e, whole, len(lead), 0, rows)


def _turned(e: Emitter, value: Value, factors: Array) -> Value:
    """Pairs times known complex numbers."""
    kind = to_numpy(value.type.dtype)
    last = value.type.rank - 1
    swapped = e.emit("Concat", emit_slice(e, value, last, 1, 1), emit_slice(e, value, last, 0, 1), axis=last)
    straight = e.constant(np.stack([factors.real] * 2, -1).astype(kind))
    crossed = e.constant(np.stack([-factors.imag, factors.imag], -1).astype(kind))
    return e.emit("Add", e.emit("Mul", value, straight), e.emit("Mul", swapped, crossed))


def _padded(e: Emitter, value: Value, axis: int, n: int) -> Value:
    """The first n elements along an axis, zeros where there are fewer."""
    extent, rank = value.type.shape[axis], value.type.rank
    if extent >= n:
        return emit_slice(e, value, axis, 0, n)
    after = tuple(n - extent if at == axis else 0 for at in range(rank))
    return e.emit("Pad", value, before=(0,) * rank, after=after, mode="constant", value=0.0)


# ---------------------------------------------------------------- DFT


def _dft_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given, source = Attrs(attrs), inputs[0].type
    axis = normal_axis(given.integer("axis"), source.rank)
    inverse, onesided = given.flag("inverse"), given.flag("onesided")
    if source.rank < 2 or axis == source.rank - 1 or source.shape[-1] not in (1, 2):
        raise InvalidError(f"DFT of {source} along axis {axis}")
    extent = source.shape[axis]
    default = 2 * (extent - 1) if inverse and onesided else extent
    length = given.integer("length", default)
    if length < 1:
        raise InvalidError(f"a DFT of {length} elements")
    if onesided and not inverse and source.shape[-1] == 2:
        raise InvalidError("a one-sided DFT of complex numbers")
    return inputs, {"axis": axis, "length": length, "inverse": inverse, "onesided": onesided}


def _dft_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    if not types[0].dtype.is_float:
        raise InvalidError(f"DFT of {types[0].dtype}")
    shape, length = list(types[0].shape), attrs.integer("length")
    inverse, onesided = attrs.flag("inverse"), attrs.flag("onesided")
    shape[attrs.integer("axis")] = length // 2 + 1 if onesided and not inverse else length
    shape[-1] = 1 if onesided and inverse else 2
    return (types[0].with_shape(tuple(shape)),)


def _dft_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, axis, length = arrays[0].astype(np.float64), attrs.integer("axis"), attrs.integer("length")
    signal = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    if attrs.flag("inverse") and attrs.flag("onesided"):
        return (np.fft.irfft(signal, length, axis)[..., None].astype(arrays[0].dtype),)
    found = (np.fft.ifft if attrs.flag("inverse") else np.fft.fft)(signal, length, axis)
    if attrs.flag("onesided"):
        found = np.take(found, np.arange(length // 2 + 1), axis)
    return (np.stack([found.real, found.imag], -1).astype(arrays[0].dtype),)


def _dft_expand(e: Emitter, item: Node) -> Values:
    value, attrs, rank = item.inputs[0], item.attrs, item.output.type.rank
    axis, length = attrs.integer("axis"), attrs.integer("length")
    inverse, onesided = attrs.flag("inverse"), attrs.flag("onesided")
    perm = (*(at for at in range(rank - 1) if at != axis), axis, rank - 1)
    value = e.emit("Transpose", value, perm=perm)
    given = min(value.type.shape[-2], length // 2 + 1 if inverse and onesided else length)
    value = emit_slice(e, value, rank - 2, 0, given)
    if inverse and onesided:
        value = _real_inverse(e, value, length)
    else:
        rows = item.output.type.shape[axis]
        value = _transform(e, value, length, rows, inverse=inverse)
    if inverse:
        value = e.emit("Mul", value, e.constant(np.asarray(1 / length, to_numpy(value.type.dtype))))
    back = tuple(int(at) for at in np.argsort(perm))
    return (e.emit("Transpose", value, perm=back),)


def _real_inverse(e: Emitter, value: Value, length: int) -> Value:
    """The real signal of a one-sided spectrum: what is left out is the conjugate of what is there."""
    *lead, _, parts = value.type.shape
    spectrum = _padded(e, value, len(lead), length // 2 + 1)
    mirrored = (length - 1) // 2
    if mirrored:
        rank = value.type.rank
        shape = (*lead, mirrored, parts)
        begin = tuple(mirrored if at == rank - 2 else 0 for at in range(rank))
        step = tuple(-1 if at == rank - 2 else 1 for at in range(rank))
        rest = e.emit("Slice", spectrum, begin=begin, step=step, size=shape)
        if parts == 2:
            conjugate = e.constant(np.asarray([1, -1], to_numpy(value.type.dtype)))
            rest = e.emit("Mul", rest, conjugate)
        spectrum = e.emit("Concat", spectrum, rest, axis=rank - 2)
    # Numbers at frequency 0 and at the middle count as real, as in any transform of real signals.
    if parts == 2:
        keep = np.ones((length, 2))
        keep[0, 1] = 0
        if length % 2 == 0:
            keep[length // 2, 1] = 0
        spectrum = e.emit("Mul", spectrum, e.constant(keep.astype(to_numpy(value.type.dtype))))
    found = _transform(e, spectrum, length, length, inverse=True)
    return emit_slice(e, found, value.type.rank - 1, 0, 1)


def _dft_flops(info: NodeInfo) -> int:
    return 4 * info.out_types[0].size * info.attrs.integer("length")


_SIDES = {"inverse": 0, "onesided": 0}
DFT = Op(
    "DFT", Kind.REDUCTION, _dft_infer, _dft_reference, (1, 1),
    (
        Signature(17, {**_SIDES, "axis": 1}, {1: "length"}, adapt=_dft_import, optional=frozenset({1})),
        Signature(20, {**_SIDES, "axis": -2}, {1: "length", 2: "axis"}, adapt=_dft_import,
                  optional=frozenset({1, 2})),
    ),
    expand=_dft_expand, flops=_dft_flops,
)  # fmt: skip


# ---------------------------------------------------------------- STFT


def _stft_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given, source = Attrs(attrs), inputs[0].type
    if source.rank != 3 or source.shape[-1] not in (1, 2):
        raise InvalidError(f"STFT of {source}, expected (batch, length, 1 or 2)")
    window = inputs[1].type if len(inputs) > 1 else None
    default = source.shape[1] if window is None else window.size
    length, step = given.integer("frame_length", default), given.integer("frame_step")
    if not 1 <= length <= source.shape[1] or step < 1 or (window is not None and window.shape != (length,)):
        raise InvalidError(f"STFT of {source} in frames of {length}, {step} apart, with window {window}")
    if given.flag("onesided") and source.shape[-1] == 2:
        raise InvalidError("a one-sided STFT of complex numbers")
    return inputs, {"length": length, "step": step, "onesided": given.flag("onesided")}


def _frames(extent: int, attrs: Attrs) -> int:
    return (extent - attrs.integer("length")) // attrs.integer("step") + 1


def _stft_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    source, length = types[0], attrs.integer("length")
    if not source.dtype.is_float or any(item.dtype != source.dtype for item in types):
        raise UnsupportedError(f"STFT of {source} with a window of another type is not supported")
    rows = length // 2 + 1 if attrs.flag("onesided") else length
    return (source.with_shape((source.shape[0], _frames(source.shape[1], attrs), rows, 2)),)


def _frame_places(extent: int, attrs: Attrs) -> Array:
    starts = np.arange(_frames(extent, attrs)) * attrs.integer("step")
    return np.asarray(starts[:, None] + np.arange(attrs.integer("length")), np.int64)


def _stft_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x = arrays[0][:, _frame_places(arrays[0].shape[1], attrs)].astype(np.float64)
    x = x * arrays[1][:, None] if len(arrays) > 1 else x
    found = np.fft.fft(x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0], axis=-1)
    if attrs.flag("onesided"):
        found = found[..., : attrs.integer("length") // 2 + 1]
    return (np.stack([found.real, found.imag], -1).astype(arrays[0].dtype),)


def _stft_expand(e: Emitter, item: Node) -> Values:
    source, length = item.inputs[0], item.attrs.integer("length")
    places = e.constant(_frame_places(source.type.shape[1], item.attrs))
    frames = e.emit("Gather", source, places, axis=1)
    if len(item.inputs) > 1:
        frames = e.emit("Mul", frames, e.emit("Reshape", item.inputs[1], shape=(length, 1)))
    return (_transform(e, frames, length, item.output.type.shape[2], inverse=False),)


STFT = Op(
    "STFT", Kind.REDUCTION, _stft_infer, _stft_reference, (1, 2),
    (
        Signature(17, {"onesided": 1}, {1: "frame_step", 3: "frame_length"}, adapt=_stft_import,
                  optional=frozenset({2, 3})),
    ),
    expand=_stft_expand, flops=_dft_flops,
)  # fmt: skip


# ---------------------------------------------------------------- mel bands


def _mel_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    bands, length, rate = (given.integer(name) for name in ("num_mel_bins", "dft_length", "sample_rate"))
    low, high = given.number("lower_edge_hertz"), given.number("upper_edge_hertz")
    if min(bands, length, rate) < 1 or not 0 <= low < high or 2 * high > rate:
        raise InvalidError(f"MelWeightMatrix of {bands} bands from {low} to {high} Hz at {rate} Hz")
    kind = given["output_datatype"]
    return (), {"bands": bands, "length": length, "rate": rate, "low": low, "high": high, "dtype": kind}


def _mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def _mel_reference(_arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """Triangles between neighbouring edges, which are equally far apart in mel."""
    bands, length = attrs.integer("bands"), attrs.integer("length")
    low, high = _mel(attrs.number("low")), _mel(attrs.number("high"))
    mels = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = ((length + 1) * hertz // attrs.integer("rate")).astype(np.int64)
    bins = np.arange(length // 2 + 1)[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    with np.errstate(all="ignore"):
        rising = np.where(left == centre, 1.0, (bins - left) / (centre - left))
        falling = (right - bins) / (right - centre)
    below = (bins >= left) & (bins <= centre)
    found = np.where((bins >= centre) & (bins < right), falling, np.where(below, rising, 0.0))
    return (found.astype(to_numpy(attrs.dtype("dtype"))),)


MEL_WEIGHTS = Op(
    "MelWeightMatrix", Kind.INJECTIVE,
    lambda _t, a: (TensorType(a.dtype("dtype"), (a.integer("length") // 2 + 1, a.integer("bands"))),),
    _mel_reference, (0, 0),
    (
        Signature(17, {"output_datatype": F32},
                  {0: "num_mel_bins", 1: "dft_length", 2: "sample_rate", 3: "lower_edge_hertz",
                   4: "upper_edge_hertz"}, adapt=_mel_import),
    ),
    flops=no_flops,
)  # fmt: skip

OPS = (DFT, STFT, MEL_WEIGHTS)
