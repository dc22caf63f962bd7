"""Tensors in a device's memory that speak DLPack, made by hand around a pointer."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from compiler.runtime.abi import DLDataType, DLDevice, DLTensor

OPENCL, ONE_API = 4, 14  # kDLOpenCL, kDLOneAPI


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class FloatsOnDevice:
    """A dense tensor of floats at an address that the host may not reach."""

    def __init__(self, address: int, shape: tuple[int, ...], device: int) -> None:
        self._device = device
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        tensor = DLTensor(
            address, DLDevice(device, 0), len(shape), DLDataType(2, 32, 1), self._shape, None, 0
        )
        self._managed = _Managed(tensor, None, None)
        self.nbytes = 4 * math.prod(shape)
        self.address = address

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def __dlpack__(self) -> Any:
        return _new_capsule(ctypes.addressof(self._managed), b"dltensor", None)
