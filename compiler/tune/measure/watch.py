"""What a candidate takes and leaves behind beside its results: memory, threads, processes."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from compiler.core.memory import held_bytes

_LOOK_SECONDS = 0.01
_CALM_SECONDS, _WATCHED_SECONDS, _BUSY_SHARE = 0.005, 0.03, 0.1
"""How long the runtime's threads may go on waiting awake, for how long they are watched then, and the share
of that time on a processor which makes a candidate `busy`."""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, linux/prctl.h
_TASKS = Path("/proc/self/task")
_STATUS = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class MemoryWatch(AbstractContextManager["MemoryWatch"]):
    """While it is open, calls `exceeded` with the bytes when this process holds `limit` more than before.

    Looked at a hundred times a second, in another thread, which takes too much time to be there while
    candidates are timed.
    """

    def __init__(self, limit: int, exceeded: Callable[[int], object]) -> None:
        self._limit, self._exceeded = limit, exceeded
        self._over = threading.Event()
        self._before, self._held = _resident(), held_bytes(os.getpid())

    def __enter__(self) -> Self:
        threading.Thread(target=self._look, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            if _resident() - self._before <= self._limit:  # quick to get, but with pages of libraries in it
                continue
            if (held := held_bytes(os.getpid()) - self._held) > self._limit:
                self._exceeded(held)


def _resident() -> int:
    return int(_STATUS.read_text().split()[1]) * _PAGE


def adopt_orphans() -> None:
    """Let processes whose parents end become this one's children, so that it can find and end them."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def left_behind() -> str:
    """What goes on although nobody asks it to; empty where nothing does. Processes are ended."""
    if count := _end_children():
        return f"it left {count} process{'es' if count > 1 else ''} behind"
    time.sleep(_CALM_SECONDS)
    before, begun = time.process_time(), time.perf_counter()
    time.sleep(_WATCHED_SECONDS)
    share = (time.process_time() - before) / (time.perf_counter() - begun)
    return (
        f"it left threads behind that take {100 * share:.0f} % of a processor" if share > _BUSY_SHARE else ""
    )


def _end_children() -> int:
    """Kill the children of this process and those that they leave to it; returns how many there were."""
    ended = 0
    while found := list(_children()):
        for child in found:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(child, 0)
        ended += len(found)
    return ended


def _children() -> Iterator[int]:
    for task in _TASKS.iterdir():
        with suppress(OSError):
            yield from map(int, (task / "children").read_text().split())
