"""What was counted of the accesses of kernels, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

Grid = tuple[int, int, int]
_SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class AccessRow:
    """What one line of a kernel does with memory, in one call of its whole grid.

    kind: load, store, atomic and copy (what an asynchronous copy reads) are of global memory; shared load,
    store and atomic; wait (for asynchronous copies); branch. A request is what the lanes of a sub-group do at
    once; `bytes` are those of a lane. units, least and worst: for global memory 32-byte sectors, the fewest
    that would do, and the most of one request; for shared memory wavefronts, the fewest, and the most ways of
    a bank conflict; for waits those for copies since which nothing was computed; for branches those whose
    lanes part. share: of the bytes that all calls of the library's kernels move. innermost: in a loop with no
    other in it.
    """

    line: int
    text: str
    kind: str
    bytes: int
    requests: float
    lanes: float
    units: float
    least: float
    worst: int
    innermost: bool = False
    share: float = 0.0

    @property
    def is_global(self) -> bool:
        """Whether sectors are counted."""
        return self.kind in _GLOBAL

    @property
    def is_shared(self) -> bool:
        """Whether wavefronts are counted."""
        return self.kind.startswith("shared")


def moved_bytes(rows: Iterable[AccessRow]) -> float:
    """Bytes of the sectors of global memory that some rows touch."""
    return _SECTOR_BYTES * sum(row.units for row in rows if row.is_global)


_GLOBAL = ("load", "store", "atomic", "copy")
_FETCHES = ("load", "copy")


@dataclass(frozen=True, slots=True)
class LaunchAccess:
    """The counts of one launch: of a call, of `blocks` blocks of which `sampled` ran.

    calls: how often a run of the model launches it. lanes: of a sub-group; barriers: of a block; cut: threads
    of which only a part was counted, since they do too much between two barriers.
    """

    kernel: int
    function: str
    grid: Grid
    block: Grid
    calls: int
    sampled: int
    lanes: int
    barriers: float
    cut: int
    rows: tuple[AccessRow, ...]

    @property
    def blocks(self) -> int:
        """Of the grid."""
        x, y, z = self.grid
        return x * y * z

    def of(self, *kinds: str) -> tuple[AccessRow, ...]:
        """The rows of some kinds."""
        return tuple(row for row in self.rows if row.kind in kinds)

    @property
    def moved(self) -> float:
        """Bytes of the sectors of global memory that are read and written."""
        return moved_bytes(self.rows)

    @property
    def fetched(self) -> float:
        """Bytes of those that are read."""
        return moved_bytes(self.of(*_FETCHES))

    @property
    def fetch_efficiency(self) -> float | None:
        """The fewest sectors of all fetches as a part of those that they take; None without any."""
        rows = self.of(*_FETCHES)
        taken = sum(row.units for row in rows)
        return sum(row.least for row in rows) / taken if taken else None

    @property
    def worst_conflict(self) -> int:
        """The most ways of a bank conflict in an innermost loop; 1: none."""
        return max((row.worst for row in self.rows if row.is_shared and row.innermost), default=1)

    @property
    def idle(self) -> float:
        """The part of the lanes that have nothing to do in requests to memory."""
        rows = [row for row in self.rows if row.is_global or row.is_shared]
        lanes = self.lanes * sum(row.requests for row in rows)
        return 1.0 - sum(row.lanes for row in rows) / lanes if lanes else 0.0

    @property
    def divergent(self) -> float:
        """Branches of sub-groups whose lanes part."""
        return sum(row.units for row in self.of("branch"))

    @property
    def waits(self) -> tuple[float, float]:
        """Waits of sub-groups for asynchronous copies; those behind which nothing was computed meanwhile."""
        rows = self.of("wait")
        return sum(row.requests for row in rows), sum(row.units for row in rows)


@dataclass(frozen=True, slots=True)
class AccessReport:
    """Of every launch of a library. least: by kernel, the bytes of its tensors, each once."""

    library: Path
    target: str
    arch: str
    launches: tuple[LaunchAccess, ...]
    least: tuple[int, ...]
