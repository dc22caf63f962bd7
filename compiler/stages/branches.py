"""Which steps of a recorded run are side by side on a device: list scheduling by estimated times.

Step by step in the order of the program, each goes on the branch where it ends first (HEFT: Topcuoglu,
Hariri and Wu, 2002), beside others only where the device has room for both. A fork has to pay: edges between
branches cost time, and so does an edge that a launch waits for as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Self

from compiler.core.target import TargetFacts
from compiler.graph.branches import Branches, latest, members
from compiler.render.launch import Launch
from compiler.schedule.rules.threads.launch_cost import BESIDE_WORK_SECONDS

_WHOLE_SECONDS = 0.25e-6
"""What an edge costs more where a launch cannot come before the end of the one in front of it.

Of ResNet-50, MobileNetV2 and SqueezeNet on an H100 with and without such launches (decision 40).
"""
_SHORTEST_SECONDS = 0.7e-6
"""Work of the smallest launches: 2.9 us with 2.2 of the launch, measured on an H100 (decision 50)."""
_REACHED = 0.5
"""Of the device's arithmetic and bandwidth, by a launch that fills it: assumed."""
_TOGETHER = 0.7
"""The same of all launches that are side by side: assumed."""
_REGISTERS = 128
"""Of a thread, where nothing is compiled yet: assumed."""
_ALL = 1.0 + 1e-9
"""Of the device; sums of shares are rounded."""
_RELUCTANCE = (0.25e-6, 1e-6, 1.75e-6, 2.5e-6, 4e-6)
"""Seconds that a step has to win beside what it needs last: one at a time does not see what comes of it."""
_DOUBT = 1.02
"""One branch is left only where others are so much better by estimate."""


@dataclass(frozen=True, slots=True)
class Work:
    """A step alone on the device: seconds behind its first launch, and its part of the device."""

    seconds: float
    share: float

    @classmethod
    def of(cls, launches: Sequence[Launch], flops: int, moved: int, facts: TargetFacts) -> Self:
        """Estimated of a kernel's launches with what all of them compute, and the bytes of its tensors."""
        if not launches:
            return cls(0.0, 0.0)
        units = facts.limit("units") or 1
        ideal = max(flops / facts.peak_flops, moved / facts.bandwidth) / units
        filled = max(min(1.0, prod(one.grid) / units) for one in launches)
        seconds = max(ideal / (_REACHED * filled), _SHORTEST_SECONDS)
        room = max(prod(one.grid) / (units * _resident(one, facts)) for one in launches)
        share = min(1.0, max(room, ideal / seconds / _TOGETHER))
        return cls(seconds + BESIDE_WORK_SECONDS * (len(launches) - 1), share)


def _resident(launch: Launch, facts: TargetFacts) -> int:
    """Blocks that a unit has room for."""
    threads = max(prod(launch.block), 1)
    found = [(facts.limit("registers_per_unit") or 0) // (_REGISTERS * threads)]
    found += [(facts.limit("threads_per_unit") or 0) // threads]
    if launch.shared_bytes:
        found.append((facts.limit("shared_bytes_most") or 0) // launch.shared_bytes)
    return max(min(found), 1)


@dataclass(frozen=True, slots=True)
class Planned:
    """Branches, and the estimated seconds of all steps on them."""

    branches: Branches
    seconds: float


def possible_branches(
    works: Sequence[Work], needs: Sequence[int], facts: TargetFacts, *, free: bool = False
) -> list[Planned]:
    """Several branches, where they pay by estimate: the best first.

    needs: of each step those that it has to come behind, as bits. free: edges between branches cost nothing,
    and all launches have room beside others.
    """
    edge = 0.0 if free else (facts.limit("edge_nanoseconds") or 0) * 1e-9
    works = [replace(one, share=0.0) for one in works] if free else works
    most = range(2, (facts.limit("branches") or 1) + 1)
    single = _Schedule(1, edge, 0.0).of(works, needs)
    tried = [_Schedule(count, edge, won).of(works, needs) for count in most for won in _RELUCTANCE]
    better = {one.branches: one for one in tried if one.seconds * _DOUBT < single.seconds}
    return sorted(better.values(), key=lambda one: one.seconds)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a step could go: its begin there, and what it waits for."""

    branch: int
    begin: float
    waits: tuple[int, ...]


@dataclass(slots=True)
class _Schedule:
    """Steps placed so far, on at most so many branches.

    edge: seconds of one between two branches. reluctance: what one more of them has to win.
    """

    most: int
    edge: float
    reluctance: float
    of_step: list[int] = field(default_factory=list)
    waits: list[tuple[int, ...]] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    busy: list[tuple[float, float, float]] = field(default_factory=list)

    def of(self, works: Sequence[Work], needs: Sequence[int]) -> Planned:
        """All steps, in order."""
        for work, need in zip(works, needs, strict=True):
            self._put(self._best(work, need), work)
        return Planned(Branches(tuple(self.of_step), tuple(self.waits)), max(self.ends, default=0.0))

    def _best(self, work: Work, need: int) -> _Place:
        """Where a step ends first; beside what it needs last, it has to be waited for later on, too."""
        home = max(members(need), key=lambda step: self.ends[step], default=None)
        own = 0 if home is None else self.of_step[home]
        found = [self._place(one, work, need) for one in range(min(len(self.last) + 1, self.most))]
        return min(
            found, key=lambda one: (one.begin + self.reluctance * (one.branch != own), one.branch != own)
        )

    def _place(self, branch: int, work: Work, need: int) -> _Place:
        previous = self.last[branch] if branch < len(self.last) else None
        behind = need if previous is None else need | 1 << previous
        waits = tuple(sorted(step for step in latest(behind, self.before) if step != previous))
        extra = _WHOLE_SECONDS if waits else 0.0
        ready = [self.ends[step] + extra + self.edge for step in waits]
        ready += [] if previous is None else [self.ends[previous] + extra]
        return _Place(branch, self._free(max(ready, default=0.0) + BESIDE_WORK_SECONDS, work), waits)

    def _free(self, ready: float, work: Work) -> float:
        """From when on there is room for a step up to its end; what waits for that long has won nothing."""
        others = [one for one in self.busy if one[1] > ready]
        later = (end + min(end - ready, BESIDE_WORK_SECONDS) for end in sorted({end for _, end, _ in others}))
        return next(begin for begin in (ready, *later) if self._fits(begin, work, others))

    @staticmethod
    def _fits(begin: float, work: Work, others: Sequence[tuple[float, float, float]]) -> bool:
        end = begin + work.seconds
        taken = sum(share for first, last, share in others if first < end and last > begin)
        return taken + work.share <= _ALL

    def _put(self, place: _Place, work: Work) -> None:
        number, branch = len(self.of_step), place.branch
        bits = 0
        for step in (*place.waits, *self.last[branch : branch + 1]):
            bits |= self.before[step] | 1 << step
        self.of_step.append(branch)
        self.waits.append(place.waits)
        self.before.append(bits)
        self.ends.append(place.begin + work.seconds)
        self.last[branch : branch + 1] = [number]
        self.busy.append((place.begin, self.ends[-1], work.share))
