"""One sqlite file of workloads and records, open in several processes at once, added to in whole batches."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from sqlalchemy import Connection, Engine, Select, Table, delete, func, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError

from compiler.core import disk
from compiler.core.diagnostics import BadInputError
from compiler.stages.workload import Workload
from compiler.tune.database.errors import damaged, says
from compiler.tune.database.file import (
    check_version,
    file_version,
    speaking,
    sqlite_engine,
    transaction,
    use_log,
)
from compiler.tune.database.generation import GENERATION
from compiler.tune.database.rows import UNREADABLE, environment_row, record_from_row, record_row, workload_of
from compiler.tune.database.schema import create_tables, environments, meta, records, withdrawn, workloads
from compiler.tune.database.shape import shape_distance, workload_shape
from compiler.tune.record import OK, Record

Relation = Literal["exact", "epilogue", "shape"]
_RELATIONS: tuple[Relation, ...] = ("exact", "epilogue", "shape")


@dataclass(frozen=True, slots=True)
class Related:
    """A record of a workload that is like another one; distance: 1 for a factor of two in one extent."""

    relation: Relation
    distance: float
    record: Record


class Database:
    """A tuning database.

    Each change is one transaction: when its call returns, it survives the end of this process and of the
    machine; when it raises, nothing of it is there. Raises BadInputError for a file that is damaged, no
    database of ours, or of another version; HostError where the disk is full or the file cannot be written.
    """

    def __init__(self, path: Path, engine: Engine) -> None:
        self.path, self._engine = path, engine

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a database to read and to write; it is made where there is none."""
        with speaking(path):
            disk.make_directories(path.parent)
            made = cls(path, sqlite_engine(path, "rwc"))
            with made.writing() as connection:
                version = file_version(connection, path)
                if version is None:
                    create_tables(connection)
            check_version(version, path)
            use_log(path)
        return made

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open a database that exists, to read it; raises BadInputError where there is none, too."""
        if not path.is_file():
            raise BadInputError("there is no tuning database", where=str(path), hint="check the path")
        with speaking(path):
            try:
                return cls._read(path, "")
            except DBAPIError as error:
                if not says(error, "unable to open", "readonly"):
                    raise
                return cls._read(path, "&immutable=1")  # in a folder that cannot be written

    @classmethod
    def _read(cls, path: Path, how: str) -> Self:
        engine = sqlite_engine(path, "ro", how)
        with engine.connect() as connection:
            version = file_version(connection, path)
        if version is None:  # a process was killed before it had tables
            raise BadInputError("there is nothing in the tuning database", where=str(path))
        check_version(version, path)
        return cls(path, engine)

    # ------------------------------------------------------------ changes

    def add(
        self,
        made: Iterable[Record],
        of: Iterable[Workload] = (),
        withdrawn_for: Mapping[str, str] | None = None,
    ) -> int:
        """Add workloads and records in one transaction; returns how many records were new.

        A record's workload is among `of`, or was added before. withdrawn_for: reasons, by the ids of those
        that are withdrawn at once.
        """
        given = list(made)
        places = {one.environment: environment_row(one.environment) for one in given}
        with self.writing() as connection:
            _insert(connection, workloads, [_workload_row(one) for one in of])
            _insert(connection, environments, list(places.values()))
            added = _insert(connection, records, [record_row(one) for one in given])
            _withdraw(connection, withdrawn_for or {})
            targets = {one.environment.target for one in given if one.measured.status == OK}
            note_change(connection, targets)
        return added

    def withdraw(self, ids: Iterable[str], reason: str) -> None:
        """Let records not be compiled with any more, though they stay: they were measured."""
        with self.writing() as connection:
            _withdraw(connection, dict.fromkeys(ids, reason))
            note_change(connection)

    def restore(self, ids: Iterable[str]) -> None:
        """Let withdrawn records be compiled with again: measured anew in a network, they gained."""
        wanted = list(ids)
        with self.writing() as connection:
            gone = connection.execute(delete(withdrawn).where(withdrawn.c.record.in_(wanted))).rowcount
            if gone:
                note_change(connection)

    # ------------------------------------------------------------ questions

    def bests(self, workload: str) -> list[Record]:
        """The fastest record of a workload in each environment in which it was measured."""
        place = func.row_number().over(partition_by=records.c.environment, order_by=FASTEST)
        ranked = (
            joined(place.label("rank"))
            .where(records.c.workload == workload, records.c.status == OK, withdrawn.c.record.is_(None))
            .subquery()
        )
        return self.found(select(ranked).where(ranked.c.rank == 1).order_by(ranked.c.median, ranked.c.id))

    def top(self, workload: str, count: int) -> list[Record]:
        """The fastest records of a workload, in any environment."""
        ok = joined().where(records.c.workload == workload, records.c.status == OK)
        return self.found(ok.order_by(*FASTEST).limit(count))

    def tried(self, workload: str) -> list[Record]:
        """All records of a workload, failures too, in the order of their dates."""
        return self.found(
            joined().where(records.c.workload == workload).order_by(records.c.date, records.c.id)
        )

    def reasons(self, workload: str) -> dict[str, str]:
        """Why records of a workload are withdrawn, by their ids."""
        wanted = select(records.c.id, withdrawn.c.reason).join(withdrawn, withdrawn.c.record == records.c.id)
        with self.reading() as connection:
            rows = connection.execute(wanted.where(records.c.workload == workload)).all()
        return {row[0]: row[1] for row in rows}

    def workload(self, key: str) -> Workload | None:
        """A workload by its key."""
        with self.reading() as connection:
            found = connection.execute(select(workloads.c.json).where(workloads.c.key == key)).scalar()
        return None if found is None else self._parsed(key, found)

    def workloads(self) -> Iterator[Workload]:
        """All workloads, one after the other, in the order of their keys."""
        with self.reading() as connection:
            keys = connection.execute(select(workloads.c.key).order_by(workloads.c.key)).scalars().all()
        for key in keys:
            found = self.workload(key)
            if found is not None:
                yield found

    def keys_like(self, start: str, most: int) -> tuple[list[str], list[str]]:
        """Keys of workloads and ids of records that start so, at most so many of each."""
        found = []
        with self.reading() as connection:
            for column in (workloads.c.key, records.c.id):
                wanted = select(column).where(column.startswith(start, autoescape=True)).limit(most)
                found.append(list(connection.execute(wanted.order_by(column)).scalars()))
        return found[0], found[1]

    def record(self, id: str) -> Record | None:  # noqa: A002 - a record's id
        """A record by its id."""
        return next(iter(self.found(joined().where(records.c.id == id))), None)

    def related(self, workload: Workload, count: int) -> list[Related]:
        """The fastest record of each of the workloads that are most like this one, the nearest first.

        exact: the workload itself. epilogue: the same reduction of the same sizes, with something else before
        or after it. shape: the same reduction of other sizes.
        """
        shape = workload_shape(workload)
        wanted = select(workloads.c.key, workloads.c.anchor, workloads.c.extents)
        with self.reading() as connection:
            rows = connection.execute(wanted.where(workloads.c.family == shape.family)).all()
        found = []
        for key, anchor, extents in rows:
            relation: Relation = "epilogue" if anchor == shape.anchor else "shape"
            relation = "exact" if key == workload.key else relation
            far = shape_distance(shape.extents, json.loads(extents))
            found.append((_RELATIONS.index(relation), far, key, relation))
        made: list[Related] = []
        for _, far, key, relation in sorted(found):
            made += [Related(relation, far, one) for one in self.top(key, 1)]
            if len(made) >= count:
                break
        return made

    def _parsed(self, key: str, text: str) -> Workload:
        try:
            return workload_of(key, text)
        except ValueError as error:
            raise damaged(self.path, f"workload {key}: {error}") from error

    def found(self, wanted: Select[Any]) -> list[Record]:
        """The records that a query over `joined` gives."""
        with self.reading() as connection:
            rows = [dict(row) for row in connection.execute(wanted).mappings()]
        try:
            return [record_from_row(row) for row in rows]
        except UNREADABLE as error:
            raise damaged(self.path, f"a record cannot be read: {error}") from error

    def shrink(self) -> None:
        """Give what was removed back to the disk."""
        with self.reading() as connection:
            connection.exec_driver_sql("VACUUM")

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, as `transaction` makes it."""
        with speaking(self.path), transaction(self._engine) as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to ask."""
        with speaking(self.path), self._engine.connect() as connection:
            yield connection


def now() -> str:
    """The date of a record that is made now."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


FASTEST = (records.c.median, records.c.date, records.c.id)


def joined(*more: Any) -> Select[Any]:
    """Records with the fields of their environments, and whether they were withdrawn."""
    fields = [column for column in environments.c if column.name != "digest"]
    return (
        select(records, *fields, *more)
        .join(environments, records.c.environment == environments.c.digest)
        .join(withdrawn, withdrawn.c.record == records.c.id, isouter=True)
    )


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> int:
    """Add rows, of those that are not there yet; returns how many."""
    if not rows:
        return 0
    return connection.execute(insert(table).on_conflict_do_nothing(), rows).rowcount


def _workload_row(workload: Workload) -> dict[str, Any]:
    shape = workload_shape(workload)
    return {
        "key": workload.key,
        "json": workload.to_json(),
        "anchor": shape.anchor,
        "family": shape.family,
        "extents": shape.extents_json,
    }


def _withdraw(connection: Connection, reasons: Mapping[str, str]) -> None:
    date = now()
    rows = [{"record": one, "reason": reason, "date": date} for one, reason in reasons.items()]
    _insert(connection, withdrawn, rows)


def note_change(connection: Connection, targets: Iterable[str] | None = None) -> None:
    """Note that records of these targets, by default of all, are others now: see `generation`."""
    if targets is None:
        names = select(meta.c.name).where(meta.c.name.startswith(GENERATION))
        targets = [name.removeprefix(GENERATION) for name in connection.execute(names).scalars()]
    for target in targets:
        row = {"name": f"{GENERATION}{target}", "value": secrets.token_hex(16)}
        changes = {"value": row["value"]}
        wanted = insert(meta).values(row).on_conflict_do_update(index_elements=["name"], set_=changes)
        connection.execute(wanted)
