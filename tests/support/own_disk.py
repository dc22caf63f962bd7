"""A disk in memory that one process has for itself."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT = 1, 32


def _libc_call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def own_disk(folder: Path, size: int) -> None:
    """A disk in memory, which this process and its children alone see."""
    user, group = os.geteuid(), os.getegid()
    _libc_call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _libc_call("mount", b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size}".encode())


def make_read_only(folder: Path) -> None:
    """Let nobody write to the disk that `own_disk` mounted there."""
    _libc_call("mount", b"tmpfs", os.fsencode(folder), b"tmpfs", _MS_RDONLY | _MS_REMOUNT, None)
