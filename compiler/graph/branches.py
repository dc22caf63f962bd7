"""Steps that need not follow each other: what each has to wait for, and branches that run side by side.

Sets of steps are bits of an int, the first step the lowest. Steps are numbered in the order of the program,
which is one of those that their dependencies allow.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes from `begin` up to `end` of a memory that a step reads, or writes."""

    memory: Hashable
    begin: int
    end: int
    writes: bool

    def conflicts(self, other: Touch) -> bool:
        """Whether two steps with these accesses have to keep their order."""
        same = self.memory == other.memory and self.begin < other.end and other.begin < self.end
        return same and (self.writes or other.writes)


def dependencies(steps: Sequence[Sequence[Touch]]) -> list[int]:
    """Of each step those before it that it conflicts with: one of both writes what the other touches."""
    known: dict[Hashable, list[tuple[int, Touch]]] = {}
    found = []
    for number, accesses in enumerate(steps):
        needs = 0
        for one in accesses:
            for earlier, other in known.get(one.memory, ()):
                needs |= one.conflicts(other) << earlier
        found.append(needs)
        for one in accesses:
            known.setdefault(one.memory, []).append((number, one))
    return found


def members(bits: int) -> Iterator[int]:
    """The steps of a set, the latest first."""
    while bits:
        last = bits.bit_length() - 1
        yield last
        bits ^= 1 << last


def latest(needs: int, before: Sequence[int]) -> list[int]:
    """Those of a set of steps that come before no other of it (transitive reduction), the latest first.

    before: of each step all that come before it.
    """
    kept, implied = [], 0
    for step in members(needs):
        if not implied >> step & 1:
            kept.append(step)
            implied |= before[step]
    return kept


@dataclass(frozen=True, slots=True)
class Branches:
    """Of each step the branch that it is on, and the steps of other branches that it waits for besides.

    Steps of a branch follow each other in the order of the program.
    """

    of: tuple[int, ...]
    waits: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """How many there are."""
        return max(self.of, default=0) + 1

    def before(self) -> list[int]:
        """Of each step all that have come to their end when it begins."""
        found: list[int] = []
        last: dict[int, int] = {}
        for number, (branch, waits) in enumerate(zip(self.of, self.waits, strict=True)):
            behind = (*waits, last[branch]) if branch in last else waits
            bits = 0
            for step in behind:
                bits |= found[step] | 1 << step
            found.append(bits)
            last[branch] = number
        return found

    def keep(self, needs: Sequence[int]) -> bool:
        """Whether each step comes behind all that it needs."""
        return all(not need & ~before for need, before in zip(needs, self.before(), strict=True))


def one_branch(count: int) -> Branches:
    """So many steps, one behind the other."""
    return Branches((0,) * count, ((),) * count)


def longest_chain(branches: Branches, lengths: Sequence[int]) -> int:
    """The most that steps which follow each other add up to, as launches on the critical path."""
    ends: list[int] = []
    last: dict[int, int] = {}
    for number, (branch, waits) in enumerate(zip(branches.of, branches.waits, strict=True)):
        behind = (*waits, last[branch]) if branch in last else waits
        ends.append(max((ends[step] for step in behind), default=0) + lengths[number])
        last[branch] = number
    return max(ends, default=0)
