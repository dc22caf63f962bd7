"""Element types of numpy arrays; bf16 and the small types come from `ml_dtypes`, one element a byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from compiler.core.types import F32, I8, U8, DType, dtype

Array = npt.NDArray[Any]

_NUMPY: dict[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz), "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu), "f4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "i64": np.dtype(np.int64), "i32": np.dtype(np.int32), "i16": np.dtype(np.int16), "i8": np.dtype(np.int8),
    "u64": np.dtype(np.uint64), "u32": np.dtype(np.uint32), "u16": np.dtype(np.uint16),
    "u8": np.dtype(np.uint8),
    "i4": np.dtype(ml_dtypes.int4), "u4": np.dtype(ml_dtypes.uint4),
    "i2": np.dtype(ml_dtypes.int2), "u2": np.dtype(ml_dtypes.uint2),
    "bool": np.dtype(np.bool_),
}  # fmt: skip
_NAMES = {kind: name for name, kind in _NUMPY.items()}


def to_numpy(kind: DType) -> np.dtype[Any]:
    """The numpy type that holds one element of `kind`."""
    return _NUMPY[kind.name]


def from_numpy(kind: np.dtype[Any]) -> DType:
    """The element type of a numpy type; raises ValueError for what no tensor holds (strings, ...)."""
    name = _NAMES.get(kind)
    if name is None:
        raise ValueError(f"tensors of {kind} are not supported")
    return dtype(name)


def stored_type(kind: DType) -> DType:
    """The type in which a kernel finds elements of `kind`: itself, or a byte with the integer or the code."""
    if not kind.is_stored:
        return kind
    return I8 if kind.is_int and kind.is_signed else U8


def stored_array(array: Array) -> Array:
    """An array as kernels find it in memory of one byte an element; see `stored_type`."""
    kind = from_numpy(array.dtype)
    if not kind.is_stored:
        return array
    stored = to_numpy(stored_type(kind))
    return array.astype(stored) if kind.is_int else array.view(stored)


def packed_array(array: Array) -> Array:
    """Elements of fewer than 8 bits as ONNX packs them (u8, flat): the first in a byte's lowest bits."""
    kind = from_numpy(array.dtype)
    count = 8 // kind.bits
    codes = stored_array(array).astype(np.uint8).reshape(-1) & ((1 << kind.bits) - 1)
    rows = np.pad(codes, (0, -codes.size % count)).reshape(-1, count)
    packed: Array = np.bitwise_or.reduce(
        rows << (np.arange(count, dtype=np.uint8) * kind.bits), 1, dtype=np.uint8
    )
    return packed


def unpacked_array(data: Array, kind: DType, shape: Sequence[int]) -> Array:
    """The elements that `packed_array` packed into bytes."""
    count, size = 8 // kind.bits, math.prod(shape)
    shifts = np.arange(count, dtype=np.uint8) * kind.bits
    codes = (data.reshape(-1, 1) >> shifts).reshape(-1)[:size] & ((1 << kind.bits) - 1)
    if not kind.is_int:
        return codes.view(to_numpy(kind)).reshape(shape)
    signs = (1 << (kind.bits - 1)) if kind.is_signed else 0
    return ((codes.astype(np.int8) ^ signs) - signs).astype(to_numpy(kind)).reshape(shape)


def accumulate_type(kind: DType) -> DType:
    """The type in which sums over elements of `kind` are kept: f32 for f16, bf16 and f8, else itself."""
    return F32 if kind.is_float and kind.bits < 32 else kind


def widened_array(x: Array) -> Array:
    """An array in the type in which sums over its elements are kept."""
    return x.astype(to_numpy(accumulate_type(from_numpy(x.dtype))), copy=False)
