"""What is kept of a measured candidate, and under what it was measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Self

from compiler.core.files import sha256_bytes
from compiler.stages.tuned import Decisions

OK = "ok"
FAILURES: Mapping[str, str] = {
    "limit": "the schedule is refused: by a primitive, a pass or a limit of the device",
    "build": "the target's compiler refuses the source",
    "wrong": "an output differs from the default schedule's, or memory around it was written to",
    "crash": "the process that ran it ended by a signal",
    "timeout": "it did not end within the limit of a trial",
    "memory": "it asked for more memory than a trial may have",
    "busy": "it left work behind that keeps the machine busy",
    "device-lost": "the device went away, or its driver reports that it has to be reset",
}
"""Classes of what became of a candidate that was not measured, and what each means."""


DEFAULT_NOTE = "default"
"""The note that marks the record of a default schedule, which all others are compared with."""


PREDICTED_NOTE = "predicted"
"""The note with the seconds that the cost model expected when the candidate was proposed."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a time depends on beside the workload.

    arch: as the target spells it. device: the processor or GPU, as it calls itself. driver: empty on the
    host. compiler: name and version; flags: those of the target. threads: that ran it; 0 on a device.
    tk: our version.
    """

    target: str
    arch: str
    device: str
    driver: str
    compiler: str
    flags: str
    threads: int
    tk: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What became of a candidate: `ok`, or a class of failure, and the seconds of every run that counts."""

    status: str
    seconds: tuple[float, ...] = ()
    message: str = ""
    checked_by: str = ""

    @property
    def median(self) -> float:
        """Median seconds; infinite where it was not measured."""
        return statistics.median(self.seconds) if self.seconds else float("inf")


@dataclass(frozen=True, slots=True)
class Record:
    """A candidate that was tried.

    workload: its key. program: the digest of the lowered loops. trace: as JSON. date: ISO 8601, UTC. id:
    names it in databases, manifests and exports; the digest of all the rest but what was measured.
    """

    id: str
    workload: str
    decisions: Decisions
    program: str
    trace: str
    measured: Measured
    environment: Environment
    date: str
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_default(self) -> bool:
        """Whether it is of the schedule that is taken where nothing is known."""
        return DEFAULT_NOTE in self.notes

    @property
    def predicted(self) -> float | None:
        """Seconds that the cost model expected; None where it was not asked, or knew too little."""
        try:
            return float(self.notes[PREDICTED_NOTE])
        except (KeyError, ValueError):
            return None

    @classmethod
    def of(
        cls,
        workload: str,
        decisions: Decisions,
        program: str,
        trace: str,
        measured: Measured,
        environment: Environment,
        date: str,
        notes: Mapping[str, str] | None = None,
    ) -> Self:
        """The record with its id."""
        unnamed = cls("", workload, decisions, program, trace, measured, environment, date, notes or {})
        return replace(unnamed, id=record_id(unnamed))


def record_id(record: Record) -> str:
    """What a record is called: the digest of all of it but its id and what was measured."""
    content = [
        record.workload,
        [[name, list(value)] for name, value in record.decisions.items()],
        record.program,
        record.trace,
        asdict(record.environment),
        record.date,
        dict(record.notes),
    ]
    return sha256_bytes(json.dumps(content, sort_keys=True).encode())


TuningRecord = Record
"""What it is called outside of the compiler, where there are records of other things."""
