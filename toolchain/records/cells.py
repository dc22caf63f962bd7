"""Records by cell of the table: one model at one place, whatever compiled and whenever it was tried."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compiler import counted
from toolchain.records.record import PASSED, Latency, Record, State

STATE_MARKS = {
    State.VERIFIED: "✓",
    State.EMULATED: "✓",
    State.EMULATED_UNCHECKED: "✓",
    State.MEASURED: "○",
    State.COMPILED_ONLY: "○",
    State.NOT_RUN: "–",  # noqa: RUF001 - a dash, as in the table of a report
}
"""The sign of each state; that of a failure is `FAILURE_MARK`. The word beside it tells the rest."""
FAILURE_MARK = "✗"
STATE_MEANINGS = {
    State.VERIFIED: "outputs equal the reference's, on a device of the target",
    State.EMULATED: "outputs equal the reference's, in the emulator, not on a device",
    State.EMULATED_UNCHECKED: "the same, where the emulator watches no access",
    State.MEASURED: "ran and was timed; its outputs were compared with nothing",
    State.COMPILED_ONLY: "a library was made; it did not run",
    State.WRONG: "outputs differ from the reference's by more than the tolerance",
    State.UNSUPPORTED: "the model has operators that cannot be compiled",
    State.COMPILE_FAILED: "no library was made",
    State.CRASHED: "the library, or what ran it, ended abnormally",
    State.TIMED_OUT: "given up after the time allowed",
    State.OUT_OF_MEMORY: "the machine or the device had too little memory",
    State.OUT_OF_DISK: "it wrote more to the disk than it was allowed",
    State.NOT_RUN: "nothing was tried, for the reason given; nothing is known of the result",
}
"""What each state says, in one line for people."""


def mark_of(state: State) -> str:
    """The sign of a state in a table."""
    return STATE_MARKS.get(state, FAILURE_MARK)


def usual_state(states: Sequence[State]) -> State:
    """The state that most have; among equals one that passed, then the weaker one."""
    counts = Counter(states)
    return max(counts, key=lambda one: (counts[one], one in PASSED, [*State].index(one)))


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """What is tried again and again.

    selector: how `--device` names what runs it; empty for the first that fits. threads: 0 where none were
    asked for.
    """

    network: str
    revision: str
    target: str
    arch: str
    selector: str
    threads: int
    precision: str

    @property
    def model(self) -> str:
        """The revision of the network, where it is known, else the network."""
        return self.revision or self.network

    @property
    def title(self) -> str:
        """The model and the place, as `mnist-8 on TARGET (pocl, 2 threads)`."""
        precision = self.precision if self.precision != "f32" else ""
        place = ", ".join(filter(None, (self.arch, self.selector, self.thread_words, precision)))
        return f"{self.model} on {self.target}" + (f" ({place})" if place else "")

    @property
    def thread_words(self) -> str:
        """`2 threads`; empty where none were asked for."""
        return counted(self.threads, "thread") if self.threads else ""


@dataclass(frozen=True, slots=True)
class CellTrials:
    """What is known of one cell.

    result: the newest trial of a matrix, or, where there is none, the newest measurement. timed: itself, or
    the newest measurement, if it has a latency; None where the result is a failure. every: oldest first.
    """

    cell: Cell
    result: Record
    timed: Record | None
    every: tuple[Record, ...]

    @property
    def latency(self) -> Latency | None:
        """Of the trial that was timed."""
        return self.timed.latency if self.timed else None


def cell_of(record: Record) -> Cell:
    """The cell that a record belongs to."""
    subject, place = record.subject, record.place
    return Cell(subject.network, subject.revision, place.target, place.arch, place.selector,
                place.threads or 0, place.precision)  # fmt: skip


def trials_by_cell(records: Iterable[Record]) -> dict[Cell, CellTrials]:
    """Every cell that has a record, in their order."""
    found: dict[Cell, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda one: one.id):
        found[cell_of(record)].append(record)
    return {cell: _trials(cell, tuple(found[cell])) for cell in sorted(found)}


def trials_named(trials: Mapping[Cell, CellTrials], network: str, target: str = "") -> tuple[CellTrials, ...]:
    """The trials of a network, a family or a revision, at the targets that begin so."""
    found = (
        known
        for cell, known in trials.items()
        if network in (cell.network, cell.revision, known.result.subject.family)
        and cell.target.startswith(target)
    )
    return tuple(found)


def _trials(cell: Cell, every: tuple[Record, ...]) -> CellTrials:
    of_matrix = [one for one in every if one.kind == "cell"]
    result = (of_matrix or every)[-1]
    measured = [one for one in reversed(every) if one.kind == "bench"]
    timed = (one for one in (result, *measured) if one.latency and result.state in PASSED)
    return CellTrials(cell, result, next(timed, None), every)
