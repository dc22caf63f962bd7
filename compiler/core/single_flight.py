"""One at a time: who makes what several processes want, while the others wait and then take it.

The lock of a key is one byte of a file, at a place that the key decides: it is no file of its own that stays
behind, and the system gives it back however its owner ends. Nothing depends on it: who has waited for too
long, or finds a file system without locks, does the work as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from compiler.core import disk
from compiler.core.process import stopping

_FILE = ".making"
_DIGITS = 15  # of a key, so that the place fits into 63 bits
_LONGEST_SECONDS = 900.0
_FIRST_POLL_SECONDS, _LAST_POLL_SECONDS = 0.005, 0.1


@contextlib.contextmanager
def single_flight(root: Path, key: str) -> Iterator[bool]:
    """While this lasts, nobody else is in a block for `key` (a `content_key`) and `root`, threads included.

    The value says whether somebody had to be waited for, so that the work may be done.
    """
    handle = _open(root)
    if handle is None:
        yield False
        return
    try:
        yield _wait(handle, int(key[:_DIGITS], 16))
    finally:
        os.close(handle)


def _open(root: Path) -> int | None:
    try:
        disk.make_directories(root)
        return os.open(root / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError:
        return None


def _wait(handle: int, place: int) -> bool:
    deadline, pause, waited = time.monotonic() + _LONGEST_SECONDS, _FIRST_POLL_SECONDS, False
    # Locks of open files, unlike those of processes, hold between threads, and closing another handle keeps
    # them (fcntl(2), "open file description locks").
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
    while time.monotonic() < deadline and not stopping():
        try:
            fcntl.fcntl(handle, fcntl.F_OFD_SETLK, lock)
        except BlockingIOError:
            waited = True
            time.sleep(pause)
            pause = min(2 * pause, _LAST_POLL_SECONDS)
        except OSError:
            break
        else:
            break
    return waited
