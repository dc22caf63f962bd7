"""Watching memory while parallel iterations run: what one of them writes, no other may touch."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.loops.interp_values import PACKED, ProgramError, View


class Monitor:
    """Knows which parallel iteration runs, and who touched what since the loop began.

    Loops inside a parallel iteration belong to it. Atomic updates do not conflict with each other.
    """

    __slots__ = ("atomic", "current", "readers", "writers")

    MANY = -1

    def __init__(self) -> None:
        self.current: int | None = None
        self.atomic = False
        self.writers: dict[int, tuple[int, bool]] = {}
        self.readers: dict[int, int] = {}

    def enter(self, iteration: int) -> None:
        """An iteration of a parallel loop begins."""
        self.current = iteration

    def leave(self) -> None:
        """The parallel loop is over: what follows it sees all of it."""
        self.current = None
        self.writers.clear()
        self.readers.clear()

    def watch(self, view: View) -> View:
        """The same memory, watched; what an iteration allocates for itself needs no watching."""
        return _Watched(view, self) if self.current is None else view

    def read(self, view: View, address: int) -> None:
        """The running iteration reads the element at an address."""
        if self.current is None:
            return
        writer, atomic = self.writers.get(address, (self.current, True))
        if writer != self.current and not (atomic and self.atomic):
            raise _race(view, "reads", self.current, writer)
        known = self.readers.setdefault(address, self.current)
        if known != self.current and not self.atomic:
            self.readers[address] = self.MANY

    def write(self, view: View, address: int) -> None:
        """The running iteration writes the element at an address."""
        if self.current is None:
            return
        writer, atomic = self.writers.get(address, (self.current, True))
        if writer != self.current and not (atomic and self.atomic):
            raise _race(view, "writes", self.current, writer)
        reader = self.readers.get(address, self.current)
        if reader != self.current and not self.atomic:
            raise _race(view, "writes", self.current, reader)
        self.writers[address] = (self.current, atomic and self.atomic)


class _Watched(View):
    """A view that tells a monitor of every access."""

    __slots__ = ("monitor", "start", "width")

    def __init__(self, view: View, monitor: Monitor) -> None:
        super().__init__(view.buffer, view.data, view.shape, view.strides, view.offset)
        kind = view.buffer.dtype
        self.monitor = monitor
        self.start = int(view.data.ctypes.data) * 2
        self.width = 1 if kind.name in PACKED else int(np.dtype(view.data.dtype).itemsize) * kind.lanes * 2

    def get(self, flat: int) -> Any:
        self.monitor.read(self, self.start + flat * self.width)
        return super().get(flat)

    def put(self, flat: int, value: Any) -> None:
        self.monitor.write(self, self.start + flat * self.width)
        super().put(flat, value)


def _race(view: View, what: str, iteration: int, other: int) -> ProgramError:
    who = "others use" if other == Monitor.MANY else f"iteration {other} uses"
    return ProgramError(
        f"parallel iterations use the same element of `{view.buffer.name}`",
        why=f"iteration {iteration} {what} it, and {who} it, too",
        hint="the loop cannot run in parallel like this",
    )
