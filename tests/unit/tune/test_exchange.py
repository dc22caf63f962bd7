"""Records as lines of JSON come back as they were; what strangers wrote is checked first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler.core.diagnostics import BadInputError
from compiler.tune.database import exchange
from compiler.tune.database.exchange import export_tuning, import_tuning, merge_tuning
from compiler.tune.database.store import Database
from compiler.tune.record import FAILURES, Environment, Measured, Record
from tests.support.tuned import HERE, plain_record, product

SMALL = product(4, 6, 8)
TEXTS = st.text(max_size=20)
SECONDS = st.floats(1e-9, 1e3, allow_nan=False)
MEASURED = st.one_of(
    st.builds(Measured, st.just("ok"), st.lists(SECONDS, min_size=1, max_size=4).map(tuple), TEXTS, TEXTS),
    st.builds(Measured, st.sampled_from(sorted(FAILURES)), st.just(()), TEXTS, TEXTS),
)
RECORDS = st.builds(
    plain_record,
    st.sampled_from([SMALL, product(2, 3, 5)]),
    decisions=st.dictionaries(
        TEXTS, st.lists(st.integers(-(2**40), 2**40), max_size=3).map(tuple), max_size=4
    ),
    program=TEXTS,
    measured=MEASURED,
    environment=st.builds(Environment, *(TEXTS for _ in range(6)), threads=st.integers(0, 64), tk=TEXTS),
    date=st.datetimes(timezones=st.timezones()).map(lambda one: one.isoformat()),
    notes=st.dictionaries(TEXTS, TEXTS, max_size=3),
)


def everything(path: Path) -> dict[str, tuple[Record, str]]:
    opened = Database.read(path)
    return {
        one.id: (one, opened.reasons(workload.key).get(one.id, ""))
        for workload in opened.workloads()
        for one in opened.tried(workload.key)
    }


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=st.lists(RECORDS, max_size=5), reason=st.none() | TEXTS.filter(bool), data=st.data())
def test_a_round_trip_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, made: list[Record], reason: str | None, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("trip")
    first = Database.open(folder / "first.db")
    first.add(made, [SMALL, product(2, 3, 5)])
    if made and reason is not None:
        first.withdraw([data.draw(st.sampled_from(made)).id], reason)
    export_tuning(first.path, folder / "all.jsonl", best=False)
    import_tuning(folder / "all.jsonl", folder / "second.db")
    merge_tuning(folder / "second.db", folder / "third.db")
    wanted = everything(first.path)
    assert wanted.keys() == {one.id for one in made}
    assert everything(folder / "second.db") == everything(folder / "third.db") == wanted
    again = import_tuning(folder / "all.jsonl", folder / "second.db")
    assert (again.records, again.known) == (0, len(wanted))


def exported(tmp_path: Path, *made: Record) -> Path:
    database = Database.open(tmp_path / "from.db")
    database.add(made or (plain_record(SMALL), plain_record(SMALL, None)), [SMALL])
    export_tuning(database.path, tmp_path / "e.jsonl", best=False)
    return tmp_path / "e.jsonl"


def test_the_best_ones_only(tmp_path: Path) -> None:
    there = replace(HERE, device="another")
    made = [plain_record(SMALL, t, environment=e) for t in (3e-3, 1e-3, None) for e in (HERE, there)]
    file = exported(tmp_path, *made)
    moved = export_tuning(tmp_path / "from.db", file, best=True)
    assert (moved.workloads, moved.records) == (1, 2)
    import_tuning(file, tmp_path / "to.db")
    assert set(everything(tmp_path / "to.db")) == {made[2].id, made[3].id}


Lines = list[dict[str, Any]]


def _without_head(lines: Lines) -> None:
    del lines[0]


def _newer(lines: Lines) -> None:
    lines[0]["version"] = 2


def _another_workload(lines: Lines) -> None:
    lines[1]["json"] = product(9, 9, 9).to_json()


def _no_loops(lines: Lines) -> None:
    lines[1]["json"] = '{"decision": "", "forms": [["", "func", []]]}'


def _no_forms(lines: Lines) -> None:
    lines[1]["json"] = '{"decision": "", "forms": []}'


def _deep(lines: Lines) -> None:
    lines[1]["json"] = "[" * 100_000


CHANGES: dict[str, Callable[[Lines], Any]] = {
    "line 1: the first line": _without_head,
    "version": _newer,
    "line 2: json: its key is not that of the workload": _another_workload,
    "line 2: json: no workload": _no_loops,
    "line 2: json: no workload: tuple index": _no_forms,
    "line 2: json": _deep,
    "line 3: id: it is not that of the record": lambda lines: lines[2].update(program="q"),
    "line 3: trace": lambda lines: lines[2].update(trace="[]"),
    "line 3: seconds: those of a record that is ok": lambda lines: lines[2].update(seconds=[]),
    "line 4: seconds": lambda lines: lines[3].update(seconds=[1.0]),
    "line 3: record.seconds.0: Input should be greater than 0": lambda lines: lines[2].update(seconds=[-1.0]),
    "line 3: record.status: Value error, one of ok, ": lambda lines: lines[2].update(status="fine"),
    "line 3: record.date": lambda lines: lines[2].update(date="2026-01-01T00:00:00"),
    "line 3: record.more: Extra inputs": lambda lines: lines[2].update(more=1),
    "line 3: record.environment.threads": lambda lines: lines[2]["environment"].update(threads="2"),
    "line 3: record.decisions.0.1.0": lambda lines: lines[2].update(decisions=[["a", [1.5]]]),
    "line 2: it: Input tag": lambda lines: lines[1].update(kind="program"),
}


@pytest.mark.parametrize("said", CHANGES)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, said: str) -> None:
    file = exported(tmp_path)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    CHANGES[said](lines)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(BadInputError) as caught:
        import_tuning(file, tmp_path / "to.db")
    assert said in caught.value.why
    assert not (tmp_path / "to.db").exists()


def test_all_problems_are_said_at_once_and_nothing_is_added(tmp_path: Path) -> None:
    file = exported(tmp_path, *(plain_record(SMALL) for _ in range(30)))
    good, *rest = file.read_text().splitlines()
    file.write_text("\n".join([good, rest[0], *(line.replace('"p"', '"q"') for line in rest[1:])]))
    with pytest.raises(BadInputError, match="30 lines cannot be imported, so none was") as caught:
        import_tuning(file, tmp_path / "to.db")
    assert caught.value.why.count("id: it is not that of the record") == 20
    assert caught.value.why.endswith("and 10 more")


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"\xff\xfe\n" * 3, b"{", b'{"kind": "record"}', b"[]" * 9]
)
def test_any_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "e.jsonl").write_bytes(content)
    with pytest.raises(BadInputError, match="cannot be imported"):
        import_tuning(tmp_path / "e.jsonl", tmp_path / "to.db")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_flipped_byte_is_refused_or_means_nothing(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    file = exported(folder)
    content = bytearray(file.read_bytes())
    content[at % len(content)] = byte
    file.write_bytes(content)
    try:
        import_tuning(file, folder / "to.db")
    except BadInputError:
        return
    for workload in Database.read(folder / "to.db").workloads():
        assert workload.key == SMALL.key


def test_a_workload_may_be_in_the_database_already(tmp_path: Path) -> None:
    file = exported(tmp_path)
    head, _, *records = file.read_text().splitlines()
    file.write_text("\n".join([head, *records]))
    with pytest.raises(BadInputError, match="workloads that are not there"):
        import_tuning(file, tmp_path / "to.db")
    Database.open(tmp_path / "to.db").add([], [SMALL])
    assert import_tuning(file, tmp_path / "to.db").records == 2


def test_endless_lines_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = exported(tmp_path)
    monkeypatch.setattr(exchange, "LONGEST_LINE", 100)
    with pytest.raises(BadInputError, match="no export") as caught:
        import_tuning(file, tmp_path / "to.db")
    assert caught.value.where == f"{file}, line 2"
    monkeypatch.setattr(exchange, "LONGEST_LINE", 10**6)
    monkeypatch.setattr(exchange, "MOST_LINES", 2)
    with pytest.raises(BadInputError, match="no export"):
        import_tuning(file, tmp_path / "to.db")
