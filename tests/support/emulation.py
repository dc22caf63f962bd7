"""Kernels in the emulator, without a model around them: for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.core.settings import Settings, load_settings
from compiler.targets.toolchain import Cxx
from compiler.verify.emulate import build_emulation

Dim3 = tuple[int, int, int]
_MESSAGE_BYTES = 4096


class _Launch(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("args", ctypes.POINTER(ctypes.c_void_p)),
        ("n_args", ctypes.c_int32),
    ]


class _Emulation(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int32),
        ("text", ctypes.c_void_p),
        ("text_bytes", ctypes.c_int64),
        ("launch", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(_Launch), ctypes.c_char_p, ctypes.c_int64)),
        ("checked", ctypes.c_bool),
    ]


class Emulated:
    """A module's text, built for the emulator; `launch` runs one of its kernels."""

    def __init__(
        self, text: str, settings: Settings | None = None, *, cxx: Cxx | None = None, **options: Any
    ) -> None:
        self.path: Path = build_emulation(text, settings or load_settings(), cxx=cxx, **options)
        self._library = ctypes.CDLL(str(self.path))
        self._table = _Emulation.in_dll(self._library, "tk_emulation_v1")
        self.checked: bool = self._table.checked

    def launch(self, name: str, grid: Dim3, block: Dim3, args: Sequence[np.ndarray[Any, Any]]) -> str:
        """Run a grid; the defect that was found, or nothing."""
        pointers = (ctypes.c_void_p * len(args))(*(item.ctypes.data for item in args))
        launch = _Launch(name.encode(), grid, block, pointers, len(args))
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        good = self._table.launch(ctypes.byref(launch), message, _MESSAGE_BYTES)
        assert good == (not message.value)
        return message.value.decode()
