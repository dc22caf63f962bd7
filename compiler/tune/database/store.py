"""One sqlite file of workloads and records, open in several processes at once, added to in whole batches."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Engine, Select, create_engine, func, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from compiler.core import disk
from compiler.core.diagnostics import BadInputError, HostError
from compiler.stages.workload import Workload
from compiler.tune.database.errors import WAIT_SECONDS, in_words, says
from compiler.tune.database.generation import GENERATION
from compiler.tune.database.rows import environment_row, record_of, record_row
from compiler.tune.database.schema import (
    VERSION,
    create_tables,
    environments,
    meta,
    records,
    schema_version,
    withdrawn,
    workloads,
)
from compiler.tune.database.shape import shape_of
from compiler.tune.record import OK, Record


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
        with _speaking(path):
            disk.make_directories(path.parent)
            made = cls(path, _engine(path, "rwc"))
            with made._writing() as connection:
                version = _version(connection, path)
                if version is None:
                    create_tables(connection)
            _check_version(version, path)
            _use_log(path)
        return made

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open a database that exists, to read it; raises BadInputError where there is none, too."""
        if not path.is_file():
            raise BadInputError("there is no tuning database", where=str(path), hint="check the path")
        with _speaking(path):
            try:
                made = cls(path, _engine(path, "ro"))
                with made._reading() as connection:
                    version = _version(connection, path)
            except DBAPIError as error:
                if not says(error, "unable to open", "readonly"):
                    raise
                made = cls(path, _engine(path, "ro", "&immutable=1"))  # in a folder that cannot be written
                with made._reading() as connection:
                    version = _version(connection, path)
            _check_version(version, path)
        return made

    # ------------------------------------------------------------ changes

    def add(self, made: Iterable[Record], of: Iterable[Workload] = ()) -> int:
        """Add workloads and records in one transaction; returns how many records were new.

        A record's workload is among `of`, or was added before.
        """
        rows = [(record_row(one), environment_row(one.environment)) for one in made]
        shapes = [(one, shape_of(one)) for one in of]
        with self._writing() as connection:
            for workload, shape in shapes:
                values = {
                    "key": workload.key,
                    "json": workload.to_json(),
                    "anchor": shape.anchor,
                    "family": shape.family,
                    "extents": shape.extents_json,
                }
                connection.execute(insert(workloads).values(values).on_conflict_do_nothing())
            added = 0
            for record, environment in rows:
                connection.execute(insert(environments).values(environment).on_conflict_do_nothing())
                added += connection.execute(insert(records).values(record).on_conflict_do_nothing()).rowcount
            _changed(connection, {row["target"] for record, row in rows if record["status"] == OK})
        return added

    def withdraw(self, ids: Iterable[str], reason: str) -> None:
        """Let records not be compiled with any more, though they stay: they were measured."""
        date = now()
        with self._writing() as connection:
            for one in ids:
                row = {"record": one, "reason": reason, "date": date}
                connection.execute(insert(withdrawn).values(row).on_conflict_do_nothing())
            _changed(connection)

    # ------------------------------------------------------------ questions

    def bests(self, workload: str) -> list[Record]:
        """The fastest record of a workload in each environment in which it was measured."""
        place = func.row_number().over(partition_by=records.c.environment, order_by=_FASTEST)
        ranked = (
            _joined(place.label("rank"))
            .where(records.c.workload == workload, records.c.status == OK, withdrawn.c.record.is_(None))
            .subquery()
        )
        return self._found(select(ranked).where(ranked.c.rank == 1).order_by(ranked.c.median, ranked.c.id))

    def top(self, workload: str, count: int) -> list[Record]:
        """The fastest records of a workload, in any environment."""
        ok = _joined().where(records.c.workload == workload, records.c.status == OK)
        return self._found(ok.order_by(*_FASTEST).limit(count))

    def tried(self, workload: str) -> list[Record]:
        """All records of a workload, failures too, in the order of their dates."""
        return self._found(
            _joined().where(records.c.workload == workload).order_by(records.c.date, records.c.id)
        )

    def workload(self, key: str) -> Workload | None:
        """A workload by its key."""
        with self._reading() as connection:
            found = connection.execute(select(workloads.c.json).where(workloads.c.key == key)).scalar()
        return None if found is None else Workload.from_json(found)

    # ------------------------------------------------------------ transactions

    def _found(self, wanted: Select[Any]) -> list[Record]:
        with self._reading() as connection:
            return [record_of(dict(row)) for row in connection.execute(wanted).mappings()]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that holds the file from its beginning, so that it never fails in the middle."""
        with _speaking(self.path), self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                with contextlib.suppress(DBAPIError):  # after a full disk sqlite has undone it itself
                    connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        with _speaking(self.path), self._engine.connect() as connection:
            yield connection


def now() -> str:
    """The date of a record that is made now."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


_FASTEST = (records.c.median, records.c.date, records.c.id)


def _joined(*more: Any) -> Select[Any]:
    """Records with the fields of their environments, and whether they were withdrawn."""
    fields = [column for column in environments.c if column.name != "digest"]
    return (
        select(records, *fields, *more)
        .join(environments, records.c.environment == environments.c.digest)
        .join(withdrawn, withdrawn.c.record == records.c.id, isouter=True)
    )


# ---------------------------------------------------------------- the file


def _engine(path: Path, mode: str, more: str = "") -> Engine:
    """Connections to a file: `rwc` reads, writes and makes it, `ro` only reads it."""
    address = f"{path.absolute().as_uri()}?mode={mode}{more}"

    def connect() -> sqlite3.Connection:
        made = sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
        made.execute("PRAGMA foreign_keys = ON")
        made.execute("PRAGMA synchronous = FULL")
        return made

    return create_engine("sqlite://", creator=connect, poolclass=NullPool)


def _use_log(path: Path) -> None:
    """Let readers and a writer work at the same time; a file remembers it."""
    for _ in range(50):
        connected = contextlib.closing(sqlite3.connect(path, timeout=WAIT_SECONDS))
        # It may be locked for a moment: others have just made the file, too.
        with connected as connection, contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
            return
        time.sleep(0.02)


def _version(connection: Connection, path: Path) -> int | None:
    try:
        return schema_version(connection)
    except ValueError as error:
        raise BadInputError(
            "this is no tuning database", where=str(path), why=str(error), hint="name another file"
        ) from error


def _check_version(version: int | None, path: Path) -> None:
    if version is None or version == VERSION:
        return
    if version > VERSION:
        raise BadInputError(
            "the tuning database was written by a newer tk",
            where=str(path),
            why=f"its tables are of version {version}, this tk knows those up to {VERSION}",
            hint="use that tk, or another database with --db",
        )
    raise BadInputError(
        "the tuning database was written by an older tk",
        where=str(path),
        why=f"its tables are of version {version}, this tk has version {VERSION}",
        hint="bring it up to date: `tk tune migrate`",
    )


def _changed(connection: Connection, targets: Iterable[str] | None = None) -> None:
    """Note that records of these targets, by default of all, are others now: see `generation`."""
    if targets is None:
        targets = connection.execute(select(environments.c.target).distinct()).scalars().all()
    for target in targets:
        row = {"name": f"{GENERATION}{target}", "value": secrets.token_hex(16)}
        changes = {"value": row["value"]}
        wanted = insert(meta).values(row).on_conflict_do_update(index_elements=["name"], set_=changes)
        connection.execute(wanted)


@contextlib.contextmanager
def _speaking(path: Path) -> Iterator[None]:
    """Say in the user's words what sqlite found."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise in_words(error, path) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise HostError("the tuning database cannot be opened", where=str(path), why=why) from error
