"""Databases made smaller, and those of other versions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from compiler.core.diagnostics import BadInputError
from compiler.tune.database.generation import generation
from compiler.tune.database.schema import VERSION
from compiler.tune.database.store import Database
from compiler.tune.database.upkeep import migrate_tuning, prune_tuning
from compiler.tune.record import DEFAULT_NOTE
from tests.support.tuned import HERE, plain_record, product

SMALL, OTHER = product(4, 6, 8), product(4, 6, 16)
OLD = (datetime.now(UTC) - timedelta(days=40)).isoformat()


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.open(tmp_path / "t.db")


def test_the_fastest_the_defaults_and_new_failures_stay(database: Database) -> None:
    ok = [plain_record(SMALL, t * 1e-3) for t in (1, 2, 3, 4)]
    default = plain_record(SMALL, 9e-3, notes={DEFAULT_NOTE: "1"})
    there = plain_record(SMALL, 8e-3, environment=replace(HERE, device="another"))
    new, old = plain_record(SMALL, None), plain_record(SMALL, None, date=OLD)
    gone = plain_record(OTHER, None, date=OLD)
    database.add([*ok, default, there, new, old, gone], [SMALL, OTHER])
    database.withdraw([ok[3].id], "no gain")
    before = everything(database)
    said = prune_tuning(database.path, 2, 30, dry_run=True)
    assert everything(database) == before
    done = prune_tuning(database.path, 2, 30, dry_run=False)
    assert said == done
    assert (done.removed, done.failures, done.workloads, done.left) == (2, 2, 1, 5)
    assert everything(database) == {one.id for one in (*ok[:2], default, there, new)}
    assert list(database.workloads()) == [SMALL]


def everything(database: Database) -> set[str]:
    return {one.id for key in (SMALL.key, OTHER.key) for one in database.tried(key)}


def test_a_target_without_records_has_another_generation(database: Database) -> None:
    database.add([plain_record(SMALL, t) for t in (1e-3, 2e-3)], [SMALL])
    before = generation(database.path, "cpu")
    prune_tuning(database.path, 1, 30, dry_run=True)
    assert generation(database.path, "cpu") == before
    prune_tuning(database.path, 1, 30, dry_run=False)
    assert generation(database.path, "cpu") != before


# ---------------------------------------------------------------- versions


@pytest.fixture
def version_0(database: Database) -> Path:
    """A file with two records as version 0 had it: without shapes, and nothing withdrawn."""
    database.add([plain_record(SMALL), plain_record(OTHER, None)], [SMALL, OTHER])
    with closing(sqlite3.connect(database.path)) as connection, connection:
        connection.execute("DROP TABLE withdrawn")
        for index in ("ix_workloads_anchor", "ix_workloads_family"):
            connection.execute(f"DROP INDEX {index}")
        for column in ("anchor", "family", "extents"):
            connection.execute(f"ALTER TABLE workloads DROP COLUMN {column}")
        connection.execute("UPDATE meta SET value = '0' WHERE name = 'schema'")
    return database.path


def schema(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT type, name, tbl_name FROM sqlite_master").fetchall()
        columns = connection.execute(
            "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p"
        )
        return {*map(str, rows), *map(str, columns.fetchall())}


def test_an_older_file_is_refused_until_it_is_migrated(version_0: Path, tmp_path: Path) -> None:
    for opened in (Database.open, Database.read):
        with pytest.raises(BadInputError, match="older tk") as caught:
            opened(version_0)
        assert "tk tune migrate" in caught.value.hint
    done = migrate_tuning(version_0)
    assert (done.before, done.after) == (0, VERSION)
    made = Database.open(version_0)
    assert schema(version_0) == schema(Database.open(tmp_path / "new.db").path)
    assert len(made.tried(SMALL.key)) == 1
    assert [one.relation for one in made.related(OTHER, 5)] == ["shape"]
    made.withdraw([made.tried(SMALL.key)[0].id], "it can be")
    assert migrate_tuning(version_0).before == VERSION


def test_a_migration_that_fails_changes_nothing(version_0: Path) -> None:
    with closing(sqlite3.connect(version_0)) as connection, connection:
        connection.execute("UPDATE workloads SET json = 'no workload' WHERE key = ?", (OTHER.key,))
    before = schema(version_0)
    with pytest.raises(BadInputError, match="damaged"):
        migrate_tuning(version_0)
    assert schema(version_0) == before
    with pytest.raises(BadInputError, match="older tk"):
        Database.read(version_0)


def test_a_newer_file_is_refused(database: Database) -> None:
    with closing(sqlite3.connect(database.path)) as connection, connection:
        connection.execute("UPDATE meta SET value = '2' WHERE name = 'schema'")
    for opened in (Database.open, Database.read, migrate_tuning):
        with pytest.raises(BadInputError, match="newer tk") as caught:
            opened(database.path)
        assert "version 2" in caught.value.why


def test_there_has_to_be_a_file(tmp_path: Path) -> None:
    for do in (migrate_tuning, lambda path: prune_tuning(path, 1, 1, dry_run=False)):
        with pytest.raises(BadInputError, match="there is no tuning database"):
            do(tmp_path / "typo.db")
    assert not list(tmp_path.iterdir())
