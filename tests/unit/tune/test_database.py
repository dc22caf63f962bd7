"""The database of what was measured: what is added is there, and questions get the right records."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.core.diagnostics import BadInputError
from compiler.tune.database.generation import generation
from compiler.tune.database.shape import shape_distance, workload_shape
from compiler.tune.database.store import Database
from compiler.tune.record import Record, record_id
from tests.support.tuned import HERE, plain_record, product

SMALL = product(4, 6, 8)
THERE = replace(HERE, device="another")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.open(tmp_path / "new" / "tuning.db")


def test_what_is_added_is_there(database: Database) -> None:
    made = [plain_record(SMALL, 2e-3), plain_record(SMALL, None), plain_record(SMALL, 1e-3, notes={"a": "ü"})]
    assert database.add(made, [SMALL]) == 3
    again = Database.read(database.path)
    assert again.tried(SMALL.key) == sorted(made, key=lambda one: one.date)
    assert again.workload(SMALL.key) == SMALL
    assert again.record(made[0].id) == made[0]
    assert list(again.workloads()) == [SMALL]
    assert again.workload("0" * 64) is again.record("0" * 64) is None


def test_what_is_there_is_not_added_again(database: Database) -> None:
    one = plain_record(SMALL)
    assert [database.add([one], [SMALL]), database.add([one], [SMALL]), database.add([one])] == [1, 0, 0]
    assert database.tried(SMALL.key) == [one]


def test_a_batch_is_added_as_a_whole_or_not_at_all(database: Database) -> None:
    orphan = plain_record(product(1, 2, 3))
    with pytest.raises(BadInputError, match="a workload that is not in the database"):
        database.add([plain_record(SMALL), orphan], [SMALL])
    assert database.tried(SMALL.key) == []
    assert database.workload(SMALL.key) is None


def test_the_best_of_each_environment(database: Database) -> None:
    here = [plain_record(SMALL, seconds) for seconds in (3e-3, 1e-3, 2e-3, None)]
    there = [plain_record(SMALL, seconds, environment=THERE) for seconds in (9e-3, 8e-3)]
    database.add([*here, *there], [SMALL])
    assert database.bests(SMALL.key) == [here[1], there[1]]
    assert database.top(SMALL.key, 3) == [here[1], here[2], here[0]]
    assert database.bests(product(1, 1, 1).key) == []


def test_a_withdrawn_record_was_measured_and_is_no_best(database: Database) -> None:
    fast, slow = plain_record(SMALL, 1e-3), plain_record(SMALL, 2e-3)
    database.add([fast, slow], [SMALL])
    database.withdraw([fast.id], "no gain in the network")
    assert database.bests(SMALL.key) == [slow]
    assert database.tried(SMALL.key) == [fast, slow]
    assert database.reasons(SMALL.key) == {fast.id: "no gain in the network"}
    before = generation(database.path, "cpu")
    database.restore([slow.id])
    assert generation(database.path, "cpu") == before
    database.restore([fast.id, slow.id])
    assert database.bests(SMALL.key) == [fast]
    assert generation(database.path, "cpu") != before


def test_the_generation_changes_with_the_records_of_a_target(database: Database) -> None:
    assert generation(database.path, "cpu") is None
    database.add([plain_record(SMALL)], [SMALL])
    first = generation(database.path, "cpu")
    assert first
    database.add([plain_record(SMALL, None)])  # a failure decides over no library
    database.add([plain_record(SMALL, environment=replace(HERE, target="another"))])
    assert generation(database.path, "cpu") == first
    assert generation(database.path, "another") not in (None, first)
    database.add([plain_record(SMALL)])
    second = generation(database.path, "cpu")
    database.withdraw([one.id for one in database.tried(SMALL.key)], "")
    assert len({first, second, generation(database.path, "cpu")}) == 3


def test_related_workloads_the_nearest_first(database: Database) -> None:
    asked = product(64, 64, 64)
    others = {
        "epilogue": product(64, 64, 64, relu=True),
        "near": product(64, 64, 128),
        "far": product(16, 16, 512),
    }
    for one in (*others.values(), asked):
        database.add([plain_record(one, 2e-3), plain_record(one, 1e-3)], [one])
    found = database.related(asked, 4)
    assert [(one.relation, one.record.workload) for one in found] == [
        ("exact", asked.key),
        ("epilogue", others["epilogue"].key),
        ("shape", others["near"].key),
        ("shape", others["far"].key),
    ]
    assert [one.distance for one in found] == [0, 0, 1, 7]
    assert all(one.record.measured.median == 1e-3 for one in found)
    assert len(database.related(asked, 2)) == 2


def test_shapes_tell_sizes_and_epilogues_apart() -> None:
    plain, relu, large = (
        workload_shape(one) for one in (SMALL, product(4, 6, 8, relu=True), product(4, 6, 16))
    )
    assert plain == relu
    assert (plain.family == large.family, plain.anchor == large.anchor) == (True, False)
    assert plain.extents == (4, 6, 8)
    assert shape_distance((1, 2), (1, 2, 3)) == float("inf")


def test_an_id_names_all_but_what_was_measured() -> None:
    one = plain_record(SMALL, 1e-3)
    assert record_id(one) == one.id
    assert record_id(replace(one, measured=plain_record(SMALL, 2e-3).measured)) == one.id
    changes: list[Record] = [
        replace(one, program="q"),
        replace(one, decisions={"product.order": (0,), "product.tile": (4, 3, 1)}),
        replace(one, environment=THERE),
        replace(one, notes={"a": "b"}),
    ]
    assert len({one.id, *map(record_id, changes)}) == 5


@pytest.mark.parametrize("content", [b"no database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_said_to_be_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(content)
    for opened in (Database.open, Database.read):
        with pytest.raises(BadInputError, match="damaged") as caught:
            opened(path)
        assert (caught.value.where, caught.value.code) == (str(path), 3)
    assert path.read_bytes() == content


def test_a_page_that_was_overwritten_is_found(database: Database) -> None:
    database.add([plain_record(SMALL) for _ in range(50)], [SMALL])
    with sqlite3.connect(database.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(database.path.read_bytes())
    for start in range(4096, len(content), 4096):
        content[start : start + 64] = b"\xff" * 64
    database.path.write_bytes(content)
    with pytest.raises(BadInputError, match="damaged"):
        Database.read(database.path).tried(SMALL.key)


def test_somebody_elses_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE meta (name, value)")
    connection.close()
    before = path.read_bytes()
    for opened in (Database.open, Database.read):
        with pytest.raises(BadInputError, match="no tuning database"):
            opened(path)
    assert path.read_bytes() == before
    with pytest.raises(BadInputError, match="there is no tuning database"):
        Database.read(tmp_path / "typo.db")
    (tmp_path / "begun.db").touch()
    with pytest.raises(BadInputError, match="there is nothing in"):
        Database.read(tmp_path / "begun.db")
