"""Databases made smaller, and brought to the version of this tk."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Column, Connection, bindparam, delete, func, select

from compiler.core.diagnostics import BadInputError
from compiler.tune.database.errors import damaged
from compiler.tune.database.file import check_version, file_version, speaking, sqlite_engine, transaction
from compiler.tune.database.report import Migrated, Thinned
from compiler.tune.database.schema import VERSION, environments, migrate_tables, records, withdrawn, workloads
from compiler.tune.database.store import FASTEST, Database, note_change
from compiler.tune.record import DEFAULT_NOTE, OK


def prune_tuning(path: Path, keep: int, failures_days: float, *, dry_run: bool) -> Thinned:
    """Keep so many of the fastest records of each workload in each environment, and failures for so long.

    Default schedules stay: gains are told by them. What is removed is measured again by a later search.
    """
    database = Database.read(path)
    if dry_run:
        with database.reading() as connection:
            return _pruned(connection, path, keep, failures_days, remove=False)
    database = Database.open(path)
    with database.writing() as connection:
        made = _pruned(connection, path, keep, failures_days, remove=True)
    database.shrink()
    return made


def _pruned(connection: Connection, path: Path, keep: int, days: float, *, remove: bool) -> Thinned:
    slow, old = _slow(connection, keep), _old(connection, days)
    gone = {*slow, *old}
    rows = connection.execute(select(records.c.id, records.c.workload)).all()
    used = {workload for record, workload in rows if record not in gone}
    empty = [key for key in connection.execute(select(workloads.c.key)).scalars() if key not in used]
    if remove and (gone or empty):
        _delete(connection, withdrawn.c.record, gone)
        _delete(connection, records.c.id, gone)
        _delete(connection, workloads.c.key, empty)
        places = select(records.c.environment)
        connection.execute(delete(environments).where(environments.c.digest.not_in(places)))
        note_change(connection)
    return Thinned(path, len(slow), len(old), len(empty), len(rows) - len(gone))


def _delete(connection: Connection, column: Column[str], values: Iterable[str]) -> None:
    """Remove rows by the values of a column; there may be more than a statement has parameters."""
    rows = [{"value": one} for one in values]
    if rows:
        connection.execute(delete(column.table).where(column == bindparam("value")), rows)


def _slow(connection: Connection, keep: int) -> list[str]:
    """Measured records, no defaults, of which there are enough faster ones."""
    place = func.row_number().over(partition_by=(records.c.workload, records.c.environment), order_by=FASTEST)
    ranked = (
        select(records.c.id, records.c.notes, place.label("place")).where(records.c.status == OK).subquery()
    )
    is_default = func.json_extract(ranked.c.notes, f"$.{DEFAULT_NOTE}").is_not(None)
    return list(connection.execute(select(ranked.c.id).where(ranked.c.place > keep, ~is_default)).scalars())


def _old(connection: Connection, days: float) -> list[str]:
    """Failures of more than so many days ago."""
    before = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="microseconds")
    return list(
        connection.execute(
            select(records.c.id).where(records.c.status != OK, records.c.date < before)
        ).scalars()
    )


def migrate_tuning(path: Path) -> Migrated:
    """Bring a database to the version of this tk, in one transaction.

    Raises BadInputError where there is none, or where it is of a newer tk.
    """
    if not path.is_file():
        raise BadInputError("there is no tuning database", where=str(path), hint="check the path")
    with speaking(path), transaction(sqlite_engine(path, "rw")) as connection:
        version = file_version(connection, path)
        if version is None or version > VERSION:
            check_version(version, path)
        before = VERSION if version is None else version
        try:
            migrate_tables(connection, before)
        except ValueError as error:
            raise damaged(path, str(error)) from error
    Database.open(path)  # a file without tables gets them
    return Migrated(path, before, VERSION)
