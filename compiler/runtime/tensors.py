"""numpy arrays as DLTensors of a model."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.core.diagnostics import BadInputError, HostError, did_you_mean
from compiler.runtime.abi import CPU, DLTensor
from compiler.runtime.specs import SMALL, TensorSpec

Array = NDArray[Any]

_ALIGNMENT = 64


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a name; raises HostError where numpy needs a package for it that is missing."""
    if name in _SMALL_TYPES:
        try:
            import ml_dtypes  # adds small types to numpy; needed for such models only
        except ImportError as error:
            raise HostError(f"numpy knows no {name}", hint="pip install ml_dtypes") from error
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
    return np.dtype(name)


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array that starts on a cache line."""
    raw = np.empty(math.prod(shape) * dtype.itemsize + _ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, raw, -_address_of(raw) % _ALIGNMENT)


def _address_of(array: Array) -> int:
    """Where an array's first element lies."""
    address: int = array.__array_interface__["data"][0]
    return address


class DeviceTensor:
    """A tensor in a device's memory, where its owner keeps it: any object with DLPack's two methods.

    Nothing waits for work that is still to fill it: that is the business of the stream it was put on.
    Raises BadInputError when the owner does not hand it out.
    """

    __slots__ = ("_capsule", "owner", "tensor")

    def __init__(self, name: str, owner: Any) -> None:
        self.owner = owner
        kind = int(owner.__dlpack_device__()[0])
        try:
            self._capsule = owner.__dlpack__(stream=_NO_WAIT) if kind in _STREAMED else owner.__dlpack__()
        except (BufferError, RuntimeError, TypeError) as error:
            raise BadInputError(f"{name!r} cannot be read through DLPack", why=str(error)) from error
        # A DLManagedTensor, which begins with its DLTensor; the capsule frees it with this object.
        address = _capsule_pointer(self._capsule, b"dltensor")
        self.tensor = DLTensor.from_address(address)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        return tuple(self.tensor.shape[: self.tensor.ndim])


# kDLCUDA, kDLROCM, kDLCUDAManaged: their owners take a stream to wait for, and -1 for none.
_STREAMED = (2, 10, 13)
_NO_WAIT = -1
_HOSTS = (CPU, 3, 11)  # kDLCPU, and host memory that CUDA or ROCm pinned
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def lies_on_device(value: object) -> bool:
    """Whether a DLPack object keeps its elements where the host does not reach them."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return False
    return int(value.__dlpack_device__()[0]) not in _HOSTS


def as_input(info: TensorSpec, value: object) -> Array | DeviceTensor:
    """A dense array of an input: an array as it is, or what a DLPack object holds. Never converts elements.

    Raises BadInputError for anything else.
    """
    if lies_on_device(value):
        return DeviceTensor(info.name, value)
    if not isinstance(value, np.ndarray):
        value = _from_dlpack(info, value)
    if value.dtype.isnative and value.flags.c_contiguous:
        return value
    return np.ascontiguousarray(value, value.dtype.newbyteorder("="))


def _from_dlpack(info: TensorSpec, value: Any) -> Array:
    if isinstance(value, np.generic):
        return np.asarray(value)
    if not hasattr(value, "__dlpack__"):
        raise BadInputError(
            f"input {info.name!r} is neither an array nor a DLPack object",
            why=f"it is a {type(value).__name__}",
            hint=f"pass numpy.asarray(value, {info.dtype!r})",
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise BadInputError(
            f"input {info.name!r} cannot be read through DLPack",
            why=str(error),
            hint="move it to the CPU first",
        ) from error


def pick(
    kind: str, infos: Sequence[TensorSpec], given: Mapping[str, object], optional: Collection[str] = ()
) -> None:
    """Check the names in `given`; raises BadInputError for an unknown one or a missing input."""
    names = [info.name for info in infos]
    if len(given) == len(names) and all(name in given for name in names):
        return
    for name in given:
        if name not in names:
            raise BadInputError(
                f"the model has no {kind} {name!r}",
                why=f"its {kind}s are {', '.join(map(repr, names))}",
                hint=did_you_mean(name, names),
            )
    missing = [name for name in names if name not in given and name not in optional]
    if kind == "input" and missing:
        raise BadInputError(
            f"input {missing[0]!r} is missing", why=f"the model has the inputs {', '.join(names)}"
        )


# struct DLTensor: data, device_type, device_id, ndim, dtype (code, bits, lanes), shape, strides, byte_offset
_DLTENSOR = struct.Struct("=QiiiBBHQQQ")


class TensorArray:
    """A C array of DLTensors with room for their shapes; the arrays that they point to are kept alive."""

    __slots__ = ("_arrays", "_shapes", "count", "tensors")

    def __init__(self, arrays: Sequence[Array | DeviceTensor | PackedArray]) -> None:
        self.count = len(arrays)
        self._arrays = tuple(arrays)
        extents = [extent for array in arrays for extent in array.shape]
        self._shapes = (ctypes.c_int64 * len(extents))(*extents)
        self.tensors = (DLTensor * self.count)()
        shape = ctypes.addressof(self._shapes)
        for index, array in enumerate(arrays):
            place = index * _DLTENSOR.size
            if isinstance(array, DeviceTensor):
                self.tensors[index] = array.tensor
                self.tensors[index].shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
            else:
                code, bits = _dlpack_dtype(array.dtype)
                held = array.memory if isinstance(array, PackedArray) else array
                values = (_address_of(held), CPU, 0, len(array.shape), code, bits, 1, shape, 0, 0)
                _DLTENSOR.pack_into(self.tensors, place, *values)
            shape += 8 * len(array.shape)


@cache
def _dlpack_dtype(dtype: np.dtype[Any]) -> tuple[int, int]:
    """DLPack's code and bits of a numpy dtype; an unknown one becomes an opaque type that no model has."""
    if dtype.name in _SMALL_TYPES:
        return _SMALL_TYPES[dtype.name]
    codes = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
    return codes.get(dtype.kind, 3), min(255, dtype.itemsize * 8)


_SMALL_TYPES = {
    "bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8), "float4_e2m1fn": (17, 4),
    "int4": (0, 4), "uint4": (1, 4), "int2": (0, 2), "uint2": (1, 2),
}  # fmt: skip
"""DLPack's code and bits of what ml_dtypes adds to numpy."""


# ---------------------------------------------------------------- several elements to a byte


class PackedArray:
    """An array of elements of fewer than 8 bits beside memory that holds them packed, as a model takes them.

    The first element lies in the lowest bits of a byte.
    """

    __slots__ = ("_bits", "array", "memory")

    def __init__(self, array: Array) -> None:
        self.array = array
        self._bits = _SMALL_TYPES[array.dtype.name][1]
        self.memory = np.zeros(-(-array.size * self._bits // 8), np.uint8)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the array's elements."""
        return self.array.dtype

    @property
    def _shifts(self) -> Array:
        return np.arange(0, 8, self._bits, dtype=np.uint8)

    def pack(self) -> None:
        """From the array to the memory."""
        codes = self.array.reshape(-1).view(np.uint8) & ((1 << self._bits) - 1)
        rows = np.pad(codes, (0, -codes.size % self._shifts.size)).reshape(-1, self._shifts.size)
        self.memory[:] = np.bitwise_or.reduce(rows << self._shifts, axis=1, dtype=np.uint8)

    def unpack(self) -> None:
        """From the memory to the array."""
        codes = (self.memory[:, None] >> self._shifts).reshape(-1)[: self.array.size] & (
            (1 << self._bits) - 1
        )
        if self.array.dtype.name.startswith("int"):  # the sign goes into the unused bits
            half = np.uint8(1 << (self._bits - 1))
            codes = (codes ^ half) - half
        self.array.reshape(-1).view(np.uint8)[:] = codes


def in_memory(array: Array | DeviceTensor) -> Array | DeviceTensor | PackedArray:
    """What a model is given for an array: itself, but for elements of fewer than 8 bits."""
    if isinstance(array, DeviceTensor) or array.dtype.name not in SMALL:
        return array
    return PackedArray(array)
