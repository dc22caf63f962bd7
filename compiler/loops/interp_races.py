"""Watching memory while things run side by side: what one of them writes, no other may touch.

Iterations of a parallel loop (or blocks of a launch) are ordered by nothing, threads of a block only by
barriers. Atomic updates do not conflict with each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.loops.interp_values import PACKED, ProgramError, View

_MANY = -1
_OUTSIDE, _ITERATION, _THREAD = range(3)


class _Log:
    """Who wrote and who read each address since the last point where all are ordered."""

    __slots__ = ("readers", "writers")

    def __init__(self) -> None:
        self.writers: dict[int, tuple[int, bool]] = {}
        self.readers: dict[int, int] = {}

    def clear(self) -> None:
        self.writers.clear()
        self.readers.clear()

    def read(self, address: int, who: int, atomic: bool) -> int | None:  # noqa: FBT001 - short for emitted code
        """Note a read; the one that it conflicts with, if any."""
        writer, updates = self.writers.get(address, (who, True))
        if writer != who and not (updates and atomic):
            return writer
        if not atomic and self.readers.setdefault(address, who) != who:
            self.readers[address] = _MANY
        return None

    def write(self, address: int, who: int, atomic: bool) -> int | None:  # noqa: FBT001 - short for emitted code
        """Note a write; the one that it conflicts with, if any."""
        writer, updates = self.writers.get(address, (who, True))
        if writer != who and not (updates and atomic):
            return writer
        reader = self.readers.get(address, who)
        if reader != who:
            return reader
        self.writers[address] = (who, atomic and updates)
        return None


class Monitor:
    """Knows which parallel iteration and which thread of it runs, and what they touched."""

    __slots__ = ("across_iterations", "across_threads", "atomic", "iteration", "thread")

    def __init__(self) -> None:
        self.iteration: int | None = None
        self.thread: int | None = None
        self.atomic = False
        self.across_iterations = _Log()
        self.across_threads = _Log()

    def enter(self, iteration: int) -> None:
        """An iteration of the outermost parallel loop begins."""
        self.iteration = iteration

    def leave(self) -> None:
        """The parallel loop is over: what follows it sees all of it."""
        self.iteration = None
        self.across_iterations.clear()

    def meet(self) -> None:
        """The threads of a block have met at a barrier, or ended."""
        self.across_threads.clear()

    def watch(self, view: View) -> View:
        """The same memory, watched; what a thread allocates for itself needs no watching."""
        level = _OUTSIDE if self.iteration is None else _ITERATION
        return view if self.thread is not None else _Watched(view, self, level)

    def note(self, view: View, address: int, level: int, *, write: bool) -> None:
        """The running iteration and thread touch the element at an address."""
        found: list[tuple[str, int, int | None]] = []
        if level == _OUTSIDE and self.iteration is not None:
            log = self.across_iterations
            touch = log.write if write else log.read
            found.append(("iterations", self.iteration, touch(address, self.iteration, self.atomic)))
        if self.thread is not None:
            log = self.across_threads
            touch = log.write if write else log.read
            found.append(("threads", self.thread, touch(address, self.thread, self.atomic)))
        for kind, who, other in found:
            if other is not None:
                raise _race(view, kind, who, other, "writes" if write else "reads")


class _Watched(View):
    """A view that tells a monitor of every access."""

    __slots__ = ("level", "monitor", "start", "width")

    def __init__(self, view: View, monitor: Monitor, level: int) -> None:
        super().__init__(view.buffer, view.data, view.shape, view.strides, view.offset)
        kind = view.buffer.dtype
        self.monitor = monitor
        self.level = level
        # addresses count half bytes, so that packed elements have one each
        self.start = int(view.data.ctypes.data) * 2
        self.width = 1 if kind.name in PACKED else int(np.dtype(view.data.dtype).itemsize) * kind.lanes * 2

    def get(self, flat: int) -> Any:
        self.monitor.note(self, self.start + flat * self.width, self.level, write=False)
        return super().get(flat)

    def put(self, flat: int, value: Any) -> None:
        self.monitor.note(self, self.start + flat * self.width, self.level, write=True)
        super().put(flat, value)


def _race(view: View, kind: str, who: int, other: int, what: str) -> ProgramError:
    others = "others use" if other == _MANY else f"{kind[:-1]} {other} uses"
    hints = {
        "iterations": "the loop cannot run in parallel like this",
        "threads": "put a barrier between the two uses",
    }
    return ProgramError(
        f"parallel {kind} use the same element of `{view.buffer.name}`",
        why=f"{kind[:-1]} {who} {what} it, and {others} it, too",
        hint=hints[kind],
    )
