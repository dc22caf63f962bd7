"""A folder of records: one JSON document each, written once and never changed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from compiler import BadInputError, HostError, write_atomic
from toolchain.records.record import Record


def default_records() -> Path:
    """The folder of this user's records."""
    from platformdirs import user_data_path

    return user_data_path("tk", appauthor=False) / "records"


def new_id(when: datetime | None = None) -> str:
    """An identifier for a record: the time to the microsecond, and four random bytes."""
    moment = (when or datetime.now(UTC)).astimezone(UTC)
    return f"{moment:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"


@dataclass(slots=True)
class RecordStore:
    """Records in `directory`, in one folder for each day.

    Documents that cannot be read, another version's say, are left alone and listed in `broken` by `read`.
    """

    directory: Path
    broken: dict[Path, str] = field(default_factory=dict)

    def append(self, record: Record) -> Path:
        """Write `record`; raises HostError when the folder cannot be written or has one of this id."""
        path = self.directory / record.id[:8] / f"{record.id}.json"
        checked = Record.model_validate(
            record.model_dump()
        )  # what copies with changes have was not looked at
        document = json.loads(checked.model_dump_json())
        text = json.dumps(document, indent=1, ensure_ascii=True, sort_keys=True) + "\n"
        try:
            write_atomic(path, text, is_new=True)
        except HostError as error:
            error.what = "a record cannot be added"
            raise
        return path

    def read(self) -> tuple[Record, ...]:
        """All records, the oldest first. Raises HostError when the folder cannot be read."""
        self.broken.clear()
        return tuple(self._read(self._paths()))

    def latest(self) -> dict[str, Record]:
        """The newest record of each key."""
        return {record.key: record for record in self.read() if record.key}

    def _paths(self) -> list[Path]:
        try:
            return sorted(self.directory.glob("[0-9]*/[0-9]*.json"), key=lambda path: path.name)
        except OSError as error:
            raise HostError("records cannot be read", where=str(self.directory), why=str(error)) from error

    def _read(self, paths: Iterable[Path]) -> Iterator[Record]:
        for path in paths:
            try:
                yield read_record(path)
            except BadInputError as error:
                self.broken[path] = error.why


def read_record(path: Path) -> Record:
    """One document; raises BadInputError where it is none that this version knows."""
    try:
        return Record.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInputError("a record cannot be read", where=str(path), why=error.strerror or "") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "document"
        raise BadInputError("not a record", where=str(path), why=f"{place}: {first['msg']}") from error
