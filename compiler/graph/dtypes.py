"""Element types of numpy arrays; bf16, f8 and 4-bit types come from `ml_dtypes`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from compiler.core.types import F32, DType, dtype

Array = npt.NDArray[Any]

_NUMPY: dict[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i64": np.dtype(np.int64), "i32": np.dtype(np.int32), "i16": np.dtype(np.int16), "i8": np.dtype(np.int8),
    "u64": np.dtype(np.uint64), "u32": np.dtype(np.uint32), "u16": np.dtype(np.uint16),
    "u8": np.dtype(np.uint8),
    "i4": np.dtype(ml_dtypes.int4), "u4": np.dtype(ml_dtypes.uint4),
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


def accumulate_type(kind: DType) -> DType:
    """The type in which sums over elements of `kind` are kept: f32 for f16, bf16 and f8, else itself."""
    return F32 if kind.is_float and kind.bits < 32 else kind


def widened_array(x: Array) -> Array:
    """An array in the type in which sums over its elements are kept."""
    return x.astype(to_numpy(accumulate_type(from_numpy(x.dtype))), copy=False)
