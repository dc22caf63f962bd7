"""Whether anybody opened, read or changed a file, as the kernel tells (inotify)."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Self

_EVENT = struct.Struct("iIII")
_EVENTS = {0x20: "opened", 0x1: "read", 0x2: "written", 0x4: "changed"}
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """What happens to a file while a block runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1

    def __enter__(self) -> Self:
        self._handle = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0 or _libc.inotify_add_watch(self._handle, bytes(self._path), sum(_EVENTS)) < 0:
            raise OSError(ctypes.get_errno(), "the file cannot be watched", str(self._path))
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def seen(self) -> set[str]:
        """What happened since the last call, as `opened`."""
        try:
            data = os.read(self._handle, 1 << 16)
        except BlockingIOError:
            return set()
        masks = []
        while data:
            _, mask, _, length = _EVENT.unpack_from(data)
            masks.append(mask)
            data = data[_EVENT.size + length :]
        return {word for bit, word in _EVENTS.items() if any(mask & bit for mask in masks)}
