"""Records as lines of JSON, for other machines: written, and read back as what strangers may have written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from compiler.core.diagnostics import BadInputError
from compiler.core.files import stream_atomic
from compiler.core.units import counted
from compiler.schedule.trace import Trace
from compiler.stages.workload import Workload
from compiler.tune.database.report import Moved
from compiler.tune.database.rows import UNREADABLE, workload_of
from compiler.tune.database.store import Database
from compiler.tune.record import FAILURES, OK, Environment, Measured, Record, record_id

LONGEST_LINE = 8 << 20
MOST_LINES = 1_000_000
_SHOWN_PROBLEMS = 20
_SHORT, _LONG = 4096, 4 << 20

Short = Annotated[str, Field(max_length=_SHORT)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Number = Annotated[int, Field(ge=-(2**53), le=2**53)]
Seconds = Annotated[float, Field(gt=0, lt=1e6, allow_inf_nan=False)]


class _Line(BaseModel):
    """A line: frozen, of JSON's own types, and without fields that this version does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class HeadLine(_Line):
    """The first line of a file."""

    kind: Literal["tk-tuning"] = "tk-tuning"
    version: Literal[1] = 1


class WorkloadLine(_Line):
    """A workload, before its records."""

    kind: Literal["workload"] = "workload"
    key: Digest
    json_text: Annotated[str, Field(alias="json", max_length=_LONG)]


class EnvironmentPart(_Line):
    """As `Environment`."""

    target: Short
    arch: Short
    device: Short
    driver: Short
    compiler: Short
    flags: Short
    threads: Annotated[int, Field(ge=0, le=1 << 16)]
    tk: Short


class RecordLine(_Line):
    """As `Record`, decisions in their order."""

    kind: Literal["record"] = "record"
    id: Digest
    workload: Digest
    decisions: Annotated[
        list[tuple[Short, Annotated[list[Number], Field(max_length=64)]]], Field(max_length=1000)
    ]
    program: Short
    trace: Annotated[str, Field(max_length=_LONG)]
    status: Short
    seconds: Annotated[list[Seconds], Field(max_length=10_000)]
    message: Annotated[str, Field(max_length=1 << 16)]
    checked_by: Short
    environment: EnvironmentPart
    date: Annotated[str, Field(max_length=40)]
    notes: Annotated[dict[Short, Short], Field(max_length=100)]
    withdrawn: Short | None = None

    @field_validator("date")
    @classmethod
    def _is_date(cls, value: str) -> str:
        if datetime.fromisoformat(value).tzinfo is None:
            raise ValueError("a date with its time zone")
        return value

    @field_validator("status")
    @classmethod
    def _is_status(cls, value: str) -> str:
        if value != OK and value not in FAILURES:
            raise ValueError(f"one of {', '.join((OK, *FAILURES))}")
        return value


_LINES: TypeAdapter[HeadLine | WorkloadLine | RecordLine] = TypeAdapter(
    Annotated[HeadLine | WorkloadLine | RecordLine, Field(discriminator="kind")]
)


def export_tuning(database: Path, output: Path, *, best: bool) -> Moved:
    """Write all records, or the fastest of each workload in each environment; raises as `Database.read`."""
    opened = Database.read(database)
    counts = [0, 0]
    with stream_atomic(output) as stream:
        stream.write(_text(HeadLine().model_dump()))
        for workload in opened.workloads():
            found = opened.bests(workload.key) if best else opened.tried(workload.key)
            reasons = opened.reasons(workload.key)
            lines = [workload_line(workload)] if found else []
            lines += [record_line(one, reasons.get(one.id)) for one in found]
            stream.writelines(map(_text, lines))
            counts = [counts[0] + bool(found), counts[1] + len(found)]
    return Moved(output, *counts)


def import_tuning(file: Path, database: Path) -> Moved:
    """Add what a file has to a database: all of it, or where anything is wrong nothing.

    Raises BadInputError with every problem and its line, and what `Database.open` raises.
    """
    read = _read(file)
    opened = Database.open(database)
    elsewhere = {one.workload for one in read.records.values()} - read.workloads.keys()
    missing = sorted(key for key in elsewhere if opened.workload(key) is None)
    if missing:
        why = f"neither the file nor the database has: {', '.join(missing[:_SHOWN_PROBLEMS])}"
        raise BadInputError("records are of workloads that are not there", where=str(file), why=why)
    added = opened.add(read.records.values(), read.workloads.values(), read.withdrawn)
    return Moved(file, len(read.workloads), added, len(read.records) - added)


def merge_tuning(other: Path, database: Path) -> Moved:
    """Add what another database has; raises what `Database.read` and `Database.open` raise."""
    source, target = Database.read(other), Database.open(database)
    counts = [0, 0, 0]
    for workload in source.workloads():
        found = source.tried(workload.key)
        added = target.add(found, [workload], source.reasons(workload.key))
        counts = [counts[0] + 1, counts[1] + added, counts[2] + len(found) - added]
    return Moved(other, *counts)


# ---------------------------------------------------------------- lines


def workload_line(workload: Workload) -> dict[str, Any]:
    """A workload as a line says it."""
    return {"kind": "workload", "key": workload.key, "json": workload.to_json()}


def record_line(record: Record, withdrawn: str | None = None) -> dict[str, Any]:
    """A record as a line says it; withdrawn: why it is."""
    measured = record.measured
    return {
        "kind": "record",
        "id": record.id,
        "workload": record.workload,
        "decisions": [[name, list(value)] for name, value in record.decisions.items()],
        "program": record.program,
        "trace": record.trace,
        "status": measured.status,
        "seconds": list(measured.seconds),
        "message": measured.message,
        "checked_by": measured.checked_by,
        "environment": asdict(record.environment),
        "date": record.date,
        "notes": dict(record.notes),
        **({} if withdrawn is None else {"withdrawn": withdrawn}),
    }


def _text(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class _Content:
    """What a file has: workloads by key, records by id, and why some of them are withdrawn."""

    workloads: dict[str, Workload] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    withdrawn: dict[str, str] = field(default_factory=dict)

    def add(self, number: int, line: bytes) -> None:
        """Take a line; raises _LineError for one that is not right."""
        try:
            found = _LINES.validate_json(line)
        except ValidationError as error:
            raise _LineError(_problems(error)) from error
        if isinstance(found, HeadLine) != (number == 1):
            raise _LineError(f"the first line, and no other, is {HeadLine().model_dump_json()}")
        match found:
            case WorkloadLine():
                self.workloads[found.key] = _workload(found)
            case RecordLine():
                self.records[found.id] = _record(found)
                if found.withdrawn is not None:
                    self.withdrawn[found.id] = found.withdrawn


def _read(file: Path) -> _Content:
    """What a file has; raises BadInputError with all that is wrong with it."""
    content = _Content()
    problems: list[str] = []
    number = 0
    for number, line in _lines(file):
        try:
            content.add(number, line)
        except _LineError as error:
            problems.append(f"line {number}: {error}")
    if not number:
        problems.append("line 1: the file is empty")
    if problems:
        shown = problems[:_SHOWN_PROBLEMS]
        more = len(problems) - len(shown)
        raise BadInputError(
            f"{counted(len(problems), 'line')} cannot be imported, so none was",
            where=str(file),
            why="\n".join([*shown, f"and {more} more"] if more else shown),
            hint="files are made with `tk tune export`",
        )
    return content


class _LineError(Exception):
    """What is wrong with a line."""


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with file.open("rb") as stream:
            number = 0
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE or number > MOST_LINES:
                    limit = f"a line has at most {LONGEST_LINE:,} bytes, a file {MOST_LINES:,} lines"
                    raise BadInputError(
                        "the file is no export of `tk tune`", where=f"{file}, line {number}", why=limit
                    )
                yield number, line
    except OSError as error:
        raise BadInputError(
            "the file cannot be read", where=str(file), why=error.strerror or str(error)
        ) from error


def _problems(error: ValidationError) -> str:
    parts = (f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in error.errors())
    return "; ".join(list(parts)[:_SHOWN_PROBLEMS])


def _workload(line: WorkloadLine) -> Workload:
    try:
        return workload_of(line.key, line.json_text)
    except ValueError as error:
        raise _LineError(f"json: {error}") from error


def _record(line: RecordLine) -> Record:
    if (line.status == OK) != bool(line.seconds):
        raise _LineError(f"seconds: those of a record that is {OK}, and of no other")
    try:
        if line.trace or line.status == OK:  # a refused schedule has none
            Trace.from_json(line.trace)
    except UNREADABLE as error:
        raise _LineError("trace: it cannot be read") from error
    made = Record(
        id=line.id,
        workload=line.workload,
        decisions={name: tuple(value) for name, value in line.decisions},
        program=line.program,
        trace=line.trace,
        measured=Measured(line.status, tuple(line.seconds), line.message, line.checked_by),
        environment=Environment(**line.environment.model_dump()),
        date=line.date,
        notes=line.notes,
    )
    if record_id(made) != made.id:
        raise _LineError("id: it is not that of the record")
    return made
