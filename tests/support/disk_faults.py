"""Faults of a disk, by the hook of `compiler.core.disk`: the n-th call fails, once or from then on."""

from __future__ import annotations

import errno
import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

from compiler.core.disk import DiskCall

KINDS = ("EIO", "ENOSPC", "EACCES", "SHORT", "KILL")
_NUMBERS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EACCES": errno.EACCES}


@dataclass(slots=True)
class DiskFault:
    """A hook: from the n-th call, counted from 1, the disk fails as `kind` says; `forever` or only there.

    SHORT: a write takes half of the data, as the system may do at any time; KILL: the process is killed
    before the call. `struck` is the first call that failed.
    """

    number: int
    kind: str
    forever: bool = False
    struck: DiskCall | None = None
    owner: int = field(default_factory=os.getpid)
    _seen: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, call: DiskCall) -> int | None:
        with self._lock:
            self._seen += 1
            if self._seen < self.number or (self._seen > self.number and not self.forever):
                return None
            self.struck = self.struck or call
        if self.kind == "KILL":
            for pid in (self.owner, os.getpid()):  # it may be a copy that works for the other
                os.kill(pid, signal.SIGKILL)
        if self.kind == "SHORT":
            return len(call.data) // 2 if call.name == "write" else None
        raise OSError(_NUMBERS[self.kind], os.strerror(_NUMBERS[self.kind]), str(call.path))


@dataclass(slots=True)
class DiskLog:
    """A hook: notes all calls, in order."""

    calls: list[DiskCall] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, call: DiskCall) -> None:
        with self._lock:
            self.calls.append(call)


def leftovers(*folders: Path) -> list[Path]:
    """What interrupted work left in these folders: parts of files and private directories."""
    return [path for folder in folders for path in folder.rglob("*") if path.name.endswith(".part")]
