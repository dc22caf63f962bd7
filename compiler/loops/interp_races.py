"""Watching memory while things run side by side: what one of them writes, no other may touch.

Iterations of a parallel loop (or blocks of a launch) are ordered by nothing, threads of a block only by
barriers, blocks of a cluster by barriers of the cluster. Atomic updates do not conflict with each other. The
last of some blocks to come to a counter sees what the others did before they came.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.loops.interp_values import PACKED, ProgramError, View
from compiler.loops.ir import SHARED

_MANY = -1

_NUMBERS = 1 << 48
"""Block n is n until it comes to a counter, n + _NUMBERS behind it, and so on."""


@dataclass(slots=True)
class _Log:
    """Who wrote and who read each address since the last point where all are ordered.

    seen: of which others somebody sees all that they did.
    """

    writers: dict[int, tuple[int, bool]] = field(default_factory=dict)
    readers: dict[int, int] = field(default_factory=dict)
    seen: dict[int, frozenset[int]] = field(default_factory=dict)

    def clear(self) -> None:
        self.writers.clear()
        self.readers.clear()
        self.seen.clear()

    def apart(self, other: int, who: int) -> bool:
        """Whether nothing puts what another one did before what is done now."""
        return other != who and other % _NUMBERS != who % _NUMBERS and other not in self.seen.get(who, ())

    def read(self, address: int, who: int, atomic: bool) -> int | None:  # noqa: FBT001 - short for emitted code
        """Note a read; the one that it conflicts with, if any."""
        writer, updates = self.writers.get(address, (who, True))
        if writer != who and not (updates and atomic) and self.apart(writer, who):
            return writer
        if not atomic:
            reader = self.readers.setdefault(address, who)
            if reader != who:
                self.readers[address] = _MANY if self.apart(reader, who) else who
        return None

    def write(self, address: int, who: int, atomic: bool) -> int | None:  # noqa: FBT001 - short for emitted code
        """Note a write; the one that it conflicts with, if any."""
        writer, updates = self.writers.get(address, (who, True))
        if writer != who and not (updates and atomic) and self.apart(writer, who):
            return writer
        reader = self.readers.get(address, who)
        if reader != who and self.apart(reader, who):
            return reader
        self.writers[address] = (who, atomic and updates)
        return None


@dataclass(slots=True, eq=False)
class Monitor:
    """Knows which iteration of the outermost parallel loop runs, which thread of it, what they touched.

    iteration: of loops over the blocks of a grid, the number of the block. came: to each counter, the blocks.
    rank: the number of the thread's block in its cluster; None without one.
    """

    iteration: int | None = None
    rank: int | None = None
    thread: int | None = None
    atomic: bool = False
    across_iterations: _Log = field(default_factory=_Log)
    across_blocks: _Log = field(default_factory=_Log)
    came: defaultdict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    across_threads: defaultdict[int | None, _Log] = field(default_factory=lambda: defaultdict(_Log))

    def leave(self) -> None:
        """The parallel loop is over: what follows it sees all of it."""
        self.iteration = None
        self.across_iterations.clear()
        self.came.clear()

    def come(self, counter: tuple[str, int], *, last: bool) -> None:
        """The block that runs has come to a counter."""
        if self.iteration is None:
            return
        self.came[counter].append(self.iteration)
        self.iteration += _NUMBERS
        if last:
            self.across_iterations.seen[self.iteration] = frozenset(self.came.pop(counter))

    def meet(self, rank: int | None = None) -> None:
        """The threads of a block have met at a barrier."""
        self.across_threads[rank].clear()

    def meet_in_cluster(self) -> None:
        """All threads that run side by side have met, or ended."""
        self.across_blocks.clear()
        self.across_threads.clear()

    def watch(self, view: View) -> View:
        """The same memory, watched; what a thread allocates for itself needs no watching."""
        if self.thread is not None and view.buffer.scope != SHARED:
            return view
        return _Watched(view, self, outside=self.iteration is None)

    def note(self, view: View, address: int, *, outside: bool, write: bool) -> None:
        """The running iteration and thread touch an element; outside: of memory made outside of the loop."""
        iteration = self.iteration if outside else None
        for kind, who, log in (
            ("iterations", iteration, self.across_iterations),
            ("blocks", self.rank, self.across_blocks),
            ("threads", self.thread, self.across_threads[self.rank]),
        ):
            touch = log.write if write else log.read
            if who is not None and (other := touch(address, who, self.atomic)) is not None:
                raise _race(view, kind, who, other, "writes" if write else "reads")


class _Watched(View):
    """A view that tells a monitor of every access."""

    __slots__ = ("monitor", "outside", "start", "width")

    def __init__(self, view: View, monitor: Monitor, *, outside: bool) -> None:
        super().__init__(view.buffer, view.data, view.shape, view.strides, view.offset)
        kind = view.buffer.dtype
        self.monitor = monitor
        self.outside = outside
        # addresses count half bytes, so that packed elements have one each
        self.start = int(view.data.ctypes.data) * 2
        self.width = 1 if kind.name in PACKED else int(np.dtype(view.data.dtype).itemsize) * kind.lanes * 2

    def get(self, flat: int) -> Any:
        self.monitor.note(self, self.start + flat * self.width, outside=self.outside, write=False)
        return super().get(flat)

    def put(self, flat: int, value: Any) -> None:
        self.monitor.note(self, self.start + flat * self.width, outside=self.outside, write=True)
        super().put(flat, value)


def comes_last(view: View, flat: int, count: int, monitor: Monitor | None) -> bool:
    """A block comes to a counter of `count` blocks: whether it is the last one, which leaves zero behind."""
    if monitor is not None:
        monitor.atomic = True
    came = int(view.get(flat)) + 1
    if came > count:
        raise ProgramError(
            f"a block comes to a counter of {count} blocks that has {came - 1}",
            where=f"`{view.buffer.name}`",
            why="counters are zero before the first block comes",
        )
    view.put(flat, came % count)
    if monitor is not None:
        monitor.atomic = False
        monitor.come((view.buffer.name, flat), last=came == count)
    return came == count


def _race(view: View, kind: str, who: int, other: int, what: str) -> ProgramError:
    who, other = (number if number == _MANY else number % _NUMBERS for number in (who, other))
    others = "others use" if other == _MANY else f"{kind[:-1]} {other} uses"
    hints = {
        "iterations": "the loop cannot run in parallel like this",
        "blocks": "put a barrier of the cluster between the two uses",
        "threads": "put a barrier between the two uses",
    }
    return ProgramError(
        f"parallel {kind} use the same element of `{view.buffer.name}`",
        why=f"{kind[:-1]} {who} {what} it, and {others} it, too",
        hint=hints[kind],
    )
