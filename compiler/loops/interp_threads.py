"""Bound threads of the interpreter: coroutines that run in lock-step from barrier to barrier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.loops.interp_races import Monitor, comes_last
from compiler.loops.interp_values import Array, ProgramError, View
from compiler.loops.ir import RANK

Event = tuple[Any, ...]
Program = Generator[Event, Any, None]

_AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
_CLUSTER = ("barrier", "cluster")


_Copy = tuple[View, list[int], View | None, list[int], list[Any]]
"""Target and places in it, source and places in it (None: zeros, of no place), and what was there."""


@dataclass(slots=True)
class Copies:
    """The asynchronous copies of one thread and one group number: those started and those committed."""

    open: list[_Copy] = field(default_factory=list)
    committed: list[list[_Copy]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Thread:
    """What one thread has for itself: its place, its copies in flight, and the state of its matrix unit."""

    place: dict[str, int] = field(default_factory=dict)
    copies: defaultdict[int, Copies] = field(default_factory=lambda: defaultdict(Copies))
    state: dict[str, Any] = field(default_factory=dict)

    # ------------------------------------------------------------ asynchronous copies

    def copy(self, target: View, to: Array, source: View, of: Array, group: int) -> None:
        """Start a copy: the target is undefined until the group was waited for."""
        into = [int(flat) for flat in to]
        out_of = [int(flat) for flat in of]
        if len(into) != len(out_of):
            raise ProgramError(
                f"a copy from `{source.buffer.name}` to `{target.buffer.name}` changes size",
                why=f"{len(out_of)} elements go where {len(into)} are expected",
            )
        values = [source.get(flat) for flat in out_of]
        for flat in into:
            target.poison(flat)
        self.copies[group].open.append((target, into, source, out_of, values))

    def fill(self, target: View, to: Array, group: int) -> None:
        """As a copy of zeros."""
        into = [int(flat) for flat in to]
        for flat in into:
            target.poison(flat)
        self.copies[group].open.append((target, into, None, into, [0] * len(into)))

    def commit(self, group: int) -> None:
        """Close the open group; a group may be empty."""
        queue = self.copies[group]
        queue.committed.append(queue.open)
        queue.open = []

    def wait(self, group: int, pending: int) -> None:
        """Let the data of all but the newest `pending` groups arrive."""
        committed = self.copies[group].committed
        while len(committed) > pending:
            for copy in committed.pop(0):
                self._arrive(*copy)

    @staticmethod
    def _arrive(
        target: View, into: list[int], source: View | None, out_of: list[int], values: list[Any]
    ) -> None:
        for to, of, value in zip(into, out_of, values, strict=True):
            if source is None:
                target.put(to, value)
                continue
            if not np.array_equal(source.get(of), value, equal_nan=source.buffer.dtype.is_float):
                raise ProgramError(
                    f"`{source.buffer.name}` was overwritten while an asynchronous copy read it",
                    why=f"the copy into `{target.buffer.name}` had not been waited for",
                )
            target.put(to, value)


@dataclass(slots=True, eq=False)
class _Task:
    """One running coroutine; `children` while it waits for the loop that it started."""

    program: Program
    thread: Thread
    parent: _Task | None
    group: list[_Task]
    children: int = 0
    blocked: Event | None = None
    result: Any = None


@dataclass(eq=False)
class Scheduler:
    """Runs the threads of one block, or of all blocks of a cluster.

    Events that a thread yields: ("barrier", scope, place), ("spawn", tag, extent, program),
    ("collective", run, args), ("last", scope, place, counter, its position, blocks).
    A barrier that only some of the threads reach is an error.
    """

    subgroup: int
    monitor: Monitor | None = None
    extents: dict[str, int] = field(default_factory=dict)
    tasks: list[_Task] = field(default_factory=list)

    def run(
        self, tag: str, extent: int, program: Callable[[int, Thread], Program], order: Sequence[int]
    ) -> None:
        """Run `program(value, thread)` for every value of the axis, to the end."""
        self._spawn(None, tag, extent, program, order)
        while self.tasks:
            for task in list(self.tasks):
                if task.blocked is None and task.children == 0:
                    self._advance(task)
            self._release()
        if self.monitor is not None:
            self.monitor.thread = self.monitor.rank = None
            self.monitor.meet_in_cluster()

    def _spawn(
        self,
        parent: _Task | None,
        tag: str,
        extent: int,
        program: Callable[[int, Thread], Program],
        order: Sequence[int],
    ) -> None:
        if self.extents.setdefault(tag, extent) != extent:
            raise ProgramError(
                f"loops bound to {tag} have different extents", why=f"{self.extents[tag]} and {extent}"
            )
        outer = parent.thread.place if parent else {}
        group: list[_Task] = []
        for value in order:
            thread = Thread({**outer, tag: value})
            task = _Task(program(value, thread), thread, parent, group)
            group.append(task)
            self.tasks.append(task)
        if parent is not None:
            parent.children = len(group)

    def _advance(self, task: _Task) -> None:
        if self.monitor is not None:
            self.monitor.rank = rank_of(task.thread)
            self.monitor.thread = self.linear(task.thread)
        try:
            result, task.result = task.result, None
            event = task.program.send(result)
        except StopIteration:
            self.tasks.remove(task)
            task.blocked = ("finished",)
            if task.parent is not None:
                task.parent.children -= 1
            return
        if event[0] == "spawn":
            _, tag, extent, program = event
            self._spawn(task, tag, extent, program, range(extent))
        else:
            task.blocked = event

    def _release(self) -> None:
        """Let blocked threads go on once all that belong together have arrived."""
        if any(task.blocked is None and task.children == 0 for task in self.tasks):
            return
        waiting = [task for task in self.tasks if task.blocked is not None]
        groups = {id(task.group): task.group for task in waiting}
        ended = [task for group in groups.values() for task in group if task.blocked == ("finished",)]
        small = [task for task in waiting if _is_subgroup_event(task.blocked)]
        met = {self._subgroup_of(task) for task in small or ended}
        if not met.isdisjoint(map(self._subgroup_of, ended)):
            who = "sub-group" if small else "block"
            raise _divergent(f"some threads of the {who} have ended without it")
        if small:
            self._release_subgroups(small)
            return
        self._release_blocks(waiting)

    def _release_blocks(self, waiting: Sequence[_Task]) -> None:
        """The same of barriers of a block, and of the cluster where all its blocks wait for each other."""
        blocks: dict[int | None, list[_Task]] = {}
        for task in waiting:
            blocks.setdefault(rank_of(task.thread), []).append(task)
        if any(len({task.blocked for task in block}) > 1 for block in blocks.values()):
            raise _divergent("threads of one block wait at different barriers")
        behind = {rank: block for rank, block in blocks.items() if (block[0].blocked or ())[:2] != _CLUSTER}
        if not behind and len({task.blocked for task in waiting}) > 1:
            raise _divergent("blocks of one cluster wait at different barriers")
        if waiting and not behind and len(blocks) < self.extents.get(RANK, 1):
            raise _divergent("a block of the cluster has ended without it")
        if self.monitor is not None and not behind:
            self.monitor.meet_in_cluster()
        for rank, block in (behind or blocks).items():
            if self.monitor is not None:
                self.monitor.meet(rank)
            last = self._comes_last(block[0].blocked or ())
            for task in block:
                task.blocked, task.result = None, last

    def _comes_last(self, event: Event) -> bool:
        """Of a block whose threads have come to a counter together."""
        if event[:1] != ("last",):
            return False
        counter, place, blocks = event[3:]
        return comes_last(counter, place, blocks, self.monitor)

    def _release_subgroups(self, waiting: list[_Task]) -> None:
        members: dict[tuple[int, int], list[_Task]] = {}
        for task in self.tasks:
            if task.children == 0:
                members.setdefault(self._subgroup_of(task), []).append(task)
        for subgroup in sorted({self._subgroup_of(task) for task in waiting}):
            self._resolve(sorted(members[subgroup], key=lambda task: self.linear(task.thread)))

    def _subgroup_of(self, task: _Task) -> tuple[int, int]:
        """The block in the cluster, and the sub-group in the block."""
        return rank_of(task.thread) or 0, self.linear(task.thread) // self.subgroup

    def _resolve(self, tasks: list[_Task]) -> None:
        events = [task.blocked for task in tasks]
        first = events[0]
        assert first is not None
        if any(event is None or event[:2] != first[:2] for event in events):
            raise _divergent("threads of one sub-group wait at different places")
        if first[0] == "collective":
            results = first[1]([task.thread for task in tasks], [event[2] for event in events if event])
            for task, result in zip(tasks, results, strict=True):
                task.result = result
        for task in tasks:
            task.blocked = None

    def linear(self, thread: Thread) -> int:
        """Number of a thread in its block, x fastest."""
        number, step = 0, 1
        for axis in _AXES:
            number += thread.place.get(axis, 0) * step
            step *= self.extents.get(axis, 1)
        return number


def rank_of(thread: Thread) -> int | None:
    """The number of a thread's block in its cluster; None without one."""
    return thread.place.get(RANK)


def _is_subgroup_event(event: Event | None) -> bool:
    return event is not None and (event[0] == "collective" or event[:2] == ("barrier", "subgroup"))


def _divergent(why: str) -> ProgramError:
    return ProgramError(
        "a barrier or sub-group operation is reached by only some of the threads",
        why=why,
        hint="move it out of the condition or loop that not all threads take",
    )
