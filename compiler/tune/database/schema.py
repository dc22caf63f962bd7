"""The tables of a tuning database, and how an earlier version of them becomes this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Column, Connection, Float, ForeignKey, Index, Integer, MetaData, Table, Text, text

from compiler.tune.database.rows import workload_of
from compiler.tune.database.shape import workload_shape

VERSION = 1
APPLICATION = 0x746B7475
"""sqlite's application_id of our files: `tktu`."""

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""schema: the version of these tables. Generations: see `generation.py`."""

workloads = Table(
    "workloads",
    metadata,
    Column("key", Text, primary_key=True),
    Column("json", Text, nullable=False),
    Column("anchor", Text, nullable=False, index=True),
    Column("family", Text, nullable=False, index=True),
    Column("extents", Text, nullable=False),
)

environments = Table(
    "environments",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("target", Text, nullable=False),
    Column("arch", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("driver", Text, nullable=False),
    Column("compiler", Text, nullable=False),
    Column("flags", Text, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("tk", Text, nullable=False),
)

records = Table(
    "records",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workload", Text, ForeignKey("workloads.key"), nullable=False),
    Column("environment", Text, ForeignKey("environments.digest"), nullable=False),
    Column("status", Text, nullable=False),
    Column("median", Float),
    Column("seconds", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("checked_by", Text, nullable=False),
    Column("decisions", Text, nullable=False),
    Column("program", Text, nullable=False),
    Column("trace", Text, nullable=False),
    Column("date", Text, nullable=False),
    Column("notes", Text, nullable=False),
    Index("records_best", "workload", "environment", "status", "median"),
    Index("records_date", "date"),
)

withdrawn = Table(
    "withdrawn",
    metadata,
    Column("record", Text, ForeignKey("records.id"), primary_key=True),
    Column("reason", Text, nullable=False),
    Column("date", Text, nullable=False),
)
"""Records that were measured and are not to be compiled with: gains that were none in the network."""


def create_tables(connection: Connection) -> None:
    """Make all tables of an empty file."""
    metadata.create_all(connection)
    connection.execute(meta.insert().values(name="schema", value=str(VERSION)))
    connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION}")


def schema_version(connection: Connection) -> int | None:
    """The version of a file's tables, None where there are none; raises ValueError for another's file."""
    found = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars().all()
    if not found:
        return None
    ours = connection.exec_driver_sql("PRAGMA application_id").scalar() == APPLICATION
    if not ours or "meta" not in found:
        raise ValueError("it has no tables of a tuning database")
    value = connection.execute(meta.select().where(meta.c.name == "schema")).scalars(1).first()
    return int(value or "")


def migrate_tables(connection: Connection, version: int) -> None:
    """Bring tables of an earlier version to this one, a step after the other."""
    for step in range(version, VERSION):
        MIGRATIONS[step](connection)
        connection.execute(
            meta.update().where(meta.c.name == "schema").values(value=str(step + 1)),
        )


def _from_0(connection: Connection) -> None:
    """Version 0 had no shapes of workloads, and could not withdraw records."""
    for column in ("anchor", "family", "extents"):
        connection.exec_driver_sql(f"ALTER TABLE workloads ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
    withdrawn.create(connection)
    for key, written in connection.execute(text("SELECT key, json FROM workloads")).all():
        shape = workload_shape(workload_of(key, written))
        values = {"anchor": shape.anchor, "family": shape.family, "extents": shape.extents_json}
        connection.execute(workloads.update().where(workloads.c.key == key).values(**values))
    for index in sorted(workloads.indexes, key=lambda item: str(item.name)):
        index.create(connection)


MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {0: _from_0}
