"""What changed between two sets of records: states, and latencies beyond their confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from toolchain.records.cells import Cell, CellTrials, trials_by_cell
from toolchain.records.record import FAILED, PASSED, Latency, Record, State

_PROOF = (
    State.COMPILED_ONLY,
    State.MEASURED,
    State.EMULATED_UNCHECKED,
    State.EMULATED,
    State.VERIFIED,
)
"""States that passed, the weakest first."""


class ChangeKind(StrEnum):
    """How a cell changed, the worst first."""

    BROKEN = "broken"  # passed before, fails now
    SLOWER = "slower"  # the whole interval of the median lies above the one before
    FAILS_OTHERWISE = "fails otherwise"
    LOST = "not run any more"
    WEAKER = "shown less"  # passes still, but by a weaker state: verified before, compiled only now
    NEW = "new"  # not run before
    STRONGER = "shown more"
    FASTER = "faster"
    FIXED = "fixed"


REGRESSIONS = frozenset({ChangeKind.BROKEN, ChangeKind.SLOWER})


@dataclass(frozen=True, slots=True)
class CellChange:
    """One change of one cell; None where it has no record. ratio: of the medians, new to old."""

    cell: Cell
    kind: ChangeKind
    before: CellTrials | None
    after: CellTrials | None
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class RecordComparison:
    """What changed, worst first.

    same: cells that did not change. timed: cells whose latencies decided something, or nothing. undecided:
    cells that were timed on both sides, and why the times cannot be compared.
    """

    changes: tuple[CellChange, ...]
    same: int
    timed: int
    undecided: Mapping[Cell, str]

    @property
    def regressions(self) -> tuple[CellChange, ...]:
        """Cells that fail now and passed before, and those that got slower."""
        return tuple(one for one in self.changes if one.kind in REGRESSIONS)


def compare_trials(before: Mapping[Cell, CellTrials], after: Mapping[Cell, CellTrials]) -> RecordComparison:
    """Compare cell by cell what is known of two runs; see `trials_by_cell`."""
    changes: list[CellChange] = []
    undecided: dict[Cell, str] = {}
    timed = 0
    cells = sorted({*before, *after})
    for cell in cells:
        old, new = before.get(cell), after.get(cell)
        change = _change_of_state(old, new)
        if change:
            changes.append(CellChange(cell, change, old, new))
        if old is None or new is None or not (old.latency and new.latency):
            continue
        if why := _not_comparable(old, new):
            undecided[cell] = why
            continue
        timed += 1
        if speed := latency_change(old.latency, new.latency):
            changes.append(CellChange(cell, speed, old, new, _ratio(old.latency, new.latency)))
    order = list(ChangeKind)
    changes.sort(key=lambda one: (order.index(one.kind), one.cell))
    return RecordComparison(tuple(changes), len(cells) - len({one.cell for one in changes}), timed, undecided)


def _ratio(before: Latency, after: Latency) -> float | None:
    return after.p50_ms / before.p50_ms if before.p50_ms else None


def latency_change(before: Latency, after: Latency) -> ChangeKind | None:
    """Slower or faster, if the confidence intervals do not even touch; None otherwise."""
    if not all(map(math.isfinite, (before.low_ms, before.high_ms, after.low_ms, after.high_ms))):
        return None
    if after.low_ms > before.high_ms:
        return ChangeKind.SLOWER
    return ChangeKind.FASTER if after.high_ms < before.low_ms else None


def why_not_comparable(before: Latency, after: Latency) -> str:
    """Why two latencies of one cell decide nothing; empty where they do."""
    if before.noisy or after.noisy:
        return f"{'before' if before.noisy else 'now'}: {before.noisy or after.noisy}"
    if before.engine != after.engine:
        return f"timed {before.engine} before, {after.engine} now"
    if before.threads != after.threads:
        return f"threads: {before.threads} before, {after.threads} now"
    return ""


def _change_of_state(before: CellTrials | None, after: CellTrials | None) -> ChangeKind | None:
    old = before.result.state if before else State.NOT_RUN
    new = after.result.state if after else State.NOT_RUN
    if old == new:
        return None
    if State.NOT_RUN in (old, new):
        return ChangeKind.NEW if old == State.NOT_RUN else ChangeKind.LOST
    if new in FAILED:
        return ChangeKind.BROKEN if old in PASSED else ChangeKind.FAILS_OTHERWISE
    if old in FAILED:
        return ChangeKind.FIXED
    return ChangeKind.WEAKER if _PROOF.index(new) < _PROOF.index(old) else ChangeKind.STRONGER


def _not_comparable(before: CellTrials, after: CellTrials) -> str:
    old, new = before.timed, after.timed
    if old is None or new is None or old.latency is None or new.latency is None:
        return "not timed"
    for what in ("machine", "device", "image"):
        was, now = getattr(old.place, what), getattr(new.place, what)
        if was != now:
            return f"another {what}: {was or 'unknown'} before, {now or 'unknown'} now"
    return why_not_comparable(old.latency, new.latency)


def compare_records(before: Iterable[Record], after: Iterable[Record]) -> RecordComparison:
    """Compare two sets of records cell by cell, by what each says at its end."""
    return compare_trials(trials_by_cell(before), trials_by_cell(after))
