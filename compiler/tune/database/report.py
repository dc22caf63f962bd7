"""What is told of a database: frozen records that print as tables and dump as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compiler.stages.tuned import Decisions
from compiler.tune.record import Environment


@dataclass(frozen=True, slots=True)
class KernelStats:
    """What is known of one kernel of a model.

    name: its operators. calls: in one inference. records: candidates that were tried, failures too, in any
    environment. differs: in what a near hit does. best_ms, default_ms: of that record, and of the default
    schedule in its environment, None where that was not measured; gain: the part of its time that is saved.
    """

    name: str
    calls: int
    workload: str
    kind: Literal["hit", "near", "miss"]
    differs: tuple[str, ...]
    record: str
    best_ms: float | None
    default_ms: float | None
    gain: float | None
    records: int


@dataclass(frozen=True, slots=True)
class TuningStats:
    """What is known of a model's kernels, in which environment they would be hits, and who was asked."""

    environment: Environment
    databases: tuple[Path, ...]
    kernels: tuple[KernelStats, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record without its trace.

    changed: decisions that the default schedule takes otherwise, as the default's and the record's; None
    where the default is not known here. withdrawn: why it is not compiled with.
    """

    id: str
    status: str
    ms: float | None
    runs: int
    message: str
    checked_by: str
    date: str
    environment: Environment
    decisions: Decisions
    changed: Mapping[str, tuple[tuple[int, ...] | None, tuple[int, ...] | None]] | None
    withdrawn: str
    notes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ShownWorkload:
    """A workload with its records: the fastest ones, or the one that was asked for.

    forms: its loops as text, by the name of the form. failures: candidates by class. trace: that of the
    record that was asked for, else empty.
    """

    workload: str
    forms: Mapping[str, str]
    records: tuple[ShownRecord, ...]
    tried: int
    failures: Mapping[str, int]
    trace: str


@dataclass(frozen=True, slots=True)
class Moved:
    """Records and workloads that were written somewhere, and how many of the records were there before."""

    path: Path
    workloads: int
    records: int
    known: int = 0


@dataclass(frozen=True, slots=True)
class Thinned:
    """What pruning a database removed, or would remove, and what is left."""

    path: Path
    removed: int
    failures: int
    workloads: int
    left: int


@dataclass(frozen=True, slots=True)
class Migrated:
    """The versions of a database's tables before and after; the same: nothing was to do."""

    path: Path
    before: int
    after: int
