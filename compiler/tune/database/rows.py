"""Records and environments as rows of the database, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from compiler.core.diagnostics import TkError
from compiler.core.files import sha256_bytes
from compiler.stages.tuned import Decisions
from compiler.stages.workload import Workload
from compiler.tune.record import Environment, Measured, Record

UNREADABLE = (TkError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What readers of our own texts raise for any text."""
ENVIRONMENT = tuple(item.name for item in fields(Environment))


def environment_digest(environment: Environment) -> str:
    """What an environment is called in the database."""
    return sha256_bytes(json.dumps(asdict(environment), sort_keys=True).encode())


def environment_row(environment: Environment) -> dict[str, Any]:
    """An environment as the row of its table."""
    return {"digest": environment_digest(environment), **asdict(environment)}


def record_row(record: Record) -> dict[str, Any]:
    """A record as the row of its table."""
    measured = record.measured
    return {
        "id": record.id,
        "workload": record.workload,
        "environment": environment_digest(record.environment),
        "status": measured.status,
        "median": measured.median if math.isfinite(measured.median) else None,
        "seconds": json.dumps(measured.seconds),
        "message": measured.message,
        "checked_by": measured.checked_by,
        "decisions": decisions_text(record.decisions),
        "program": record.program,
        "trace": record.trace,
        "date": record.date,
        "notes": json.dumps(dict(record.notes), sort_keys=True),
    }


def record_from_row(row: Mapping[str, Any]) -> Record:
    """The record of a row of records joined with environments."""
    seconds = tuple(json.loads(row["seconds"]))
    return Record(
        id=row["id"],
        workload=row["workload"],
        decisions=decisions_of(row["decisions"]),
        program=row["program"],
        trace=row["trace"],
        measured=Measured(row["status"], seconds, row["message"], row["checked_by"]),
        environment=Environment(**{name: row[name] for name in ENVIRONMENT}),
        date=row["date"],
        notes=json.loads(row["notes"]),
    )


def decisions_text(decisions: Decisions) -> str:
    """Decisions as JSON: a list of names and values, in the order in which they were made."""
    return json.dumps([[name, list(value)] for name, value in decisions.items()], separators=(",", ":"))


def decisions_of(text: str) -> Decisions:
    """What `decisions_text` wrote."""
    return {name: tuple(value) for name, value in json.loads(text)}


def workload_of(key: str, text: str) -> Workload:
    """The workload of a text that anybody may have written; raises ValueError for none of this key."""
    try:
        made = Workload.from_json(text)
        own = made.key
    except UNREADABLE as error:
        raise ValueError(f"no workload: {error.what if isinstance(error, TkError) else error}") from error
    if own != key:
        raise ValueError("its key is not that of the workload")
    return made
