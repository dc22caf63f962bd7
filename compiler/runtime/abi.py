"""The public C interface (`include/tk_model.h`) as ctypes sees it."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from typing import ClassVar

API_SYMBOL = "tk_model_api_v1"
CPU = 1  # kDLCPU


class Status(IntEnum):
    """Status codes, TK_OK and TK_ERR_*."""

    OK = 0
    ARGUMENT = 1
    INPUT = 2
    OUTPUT = 3
    HOST = 4
    MEMORY = 5
    DEVICE = 6
    BUSY = 7
    LIBRARY = 8


class DLDevice(Structure):
    """Where a tensor lies."""

    _fields_: ClassVar = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(Structure):
    """Element type: kind, bits, lanes."""

    _fields_: ClassVar = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(Structure):
    """A tensor that lives somewhere else."""

    _fields_: ClassVar = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class TkDim(Structure):
    """tk_dim."""

    _fields_: ClassVar = [
        ("min", c_int64),
        ("max", c_int64),
        ("divisor", c_int64),
        ("symbol", c_int32),
        ("counted", c_int32),
    ]


class TkTensorInfo(Structure):
    """tk_tensor_info."""

    _fields_: ClassVar = [
        ("name", c_char_p),
        ("dtype", DLDataType),
        ("rank", c_int32),
        ("dims", POINTER(TkDim)),
        ("bytes", c_int64),
    ]


class TkContextOptions(Structure):
    """tk_context_options."""

    _fields_: ClassVar = [
        ("struct_size", c_size_t),
        ("threads", c_int32),
        ("flags", c_uint32),
        ("stream", c_void_p),
    ]


class TkStateInfo(Structure):
    """tk_state_info."""

    _fields_: ClassVar = [
        ("input", c_int32),
        ("output", c_int32),
        ("axis", c_int32),
        ("reserved", c_int32),
    ]


class TkStepTime(Structure):
    """tk_step_time."""

    _fields_: ClassVar = [("kernel", c_int32), ("reserved", c_int32), ("nanoseconds", c_int64)]


class TkRunTimes(Structure):
    """tk_run_times."""

    _fields_: ClassVar = [("struct_size", c_size_t), ("kernels", c_int64), ("with_copies", c_int64)]


_HANDLE = c_void_p
_TENSORS = POINTER(DLTensor)
_DESCRIBE = CFUNCTYPE(c_int32, _HANDLE, c_int32, POINTER(TkTensorInfo))


class TkModelApi(Structure):
    """tk_model_api: every function of the interface."""

    _fields_: ClassVar = [
        ("struct_size", c_size_t),
        ("model_open", CFUNCTYPE(c_int32, POINTER(_HANDLE))),
        ("model_close", CFUNCTYPE(None, _HANDLE)),
        ("model_input_count", CFUNCTYPE(c_int32, _HANDLE)),
        ("model_output_count", CFUNCTYPE(c_int32, _HANDLE)),
        ("model_input", _DESCRIBE),
        ("model_output", _DESCRIBE),
        ("model_manifest", CFUNCTYPE(c_void_p, POINTER(c_size_t))),
        ("context_open", CFUNCTYPE(c_int32, _HANDLE, POINTER(TkContextOptions), POINTER(_HANDLE))),
        ("context_close", CFUNCTYPE(None, _HANDLE)),
        ("context_set_threads", CFUNCTYPE(c_int32, _HANDLE, c_int32)),
        ("context_threads", CFUNCTYPE(c_int32, _HANDLE)),
        ("context_run", CFUNCTYPE(c_int32, _HANDLE, _TENSORS, c_int32, _TENSORS, c_int32)),
        (
            "context_profile",
            CFUNCTYPE(
                c_int32, _HANDLE, _TENSORS, c_int32, _TENSORS, c_int32, POINTER(TkStepTime), POINTER(c_int32)
            ),
        ),
        ("last_error", CFUNCTYPE(c_char_p)),
        ("status_text", CFUNCTYPE(c_char_p, c_int32)),
        ("model_open_on", CFUNCTYPE(c_int32, c_char_p, POINTER(_HANDLE))),
        ("model_device", CFUNCTYPE(c_char_p, _HANDLE)),
        ("model_native_context", CFUNCTYPE(c_void_p, _HANDLE)),
        ("model_shapes", CFUNCTYPE(c_int32, _HANDLE, _TENSORS, c_int32, _TENSORS, c_int32)),
        ("model_state_count", CFUNCTYPE(c_int32, _HANDLE)),
        ("model_state", CFUNCTYPE(c_int32, _HANDLE, c_int32, POINTER(TkStateInfo))),
        ("context_shapes", CFUNCTYPE(c_int32, _HANDLE, _TENSORS, c_int32, _TENSORS, c_int32)),
        ("context_reset", CFUNCTYPE(c_int32, _HANDLE, c_int64)),
        (
            "context_measure",
            CFUNCTYPE(c_int32, _HANDLE, _TENSORS, c_int32, _TENSORS, c_int32, POINTER(TkRunTimes)),
        ),
    ]
