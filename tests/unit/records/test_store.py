"""Records are kept as they were written, one document each, and never changed."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from compiler import BadInputError, HostError
from toolchain.records.record import (
    FAILED,
    LONGEST_LOG,
    PASSED,
    Accuracy,
    Place,
    Record,
    State,
    Subject,
    shortened_log,
)  # fmt: skip
from toolchain.records.store import RecordStore, new_id, read_record

_WHEN = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def _record(key: str = "k", when: datetime = _WHEN, state: State = State.VERIFIED) -> Record:
    return Record(id=new_id(when), kind="cell", key=key, when=when, state=state,
                  subject=Subject(network="mnist"), place=Place(target="cpu"))  # fmt: skip


def test_every_state_passed_failed_or_was_not_run() -> None:
    assert PASSED | FAILED | {State.NOT_RUN} == set(State)
    assert not PASSED & FAILED


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "records")
    assert store.read() == ()
    worst = Accuracy(reference="onnx", output="y", where=(0, 3), actual=math.nan, expected=1.0,
                     needed=math.inf, tolerance=1e-5)  # fmt: skip
    record = _record(state=State.WRONG).model_copy(update={"accuracy": worst, "log": "a\x1b[31m\nüñ"})
    path = store.append(record)
    assert path == tmp_path / "records" / "20260102" / f"{record.id}.json"
    (found,) = store.read()
    assert found.accuracy is not None
    assert math.isnan(found.accuracy.actual)
    assert math.isinf(found.accuracy.needed)
    assert found.log == record.log
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_record_is_never_replaced(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    record = _record()
    before = store.append(record).read_bytes()
    with pytest.raises(HostError, match="cannot be added"):
        store.append(record.model_copy(update={"why": "changed"}))
    assert [path.read_bytes() for path in tmp_path.rglob("*.json")] == [before]


def test_the_newest_of_each_key_counts(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    for hours, key in ((5, "a"), (1, "a"), (2, "b"), (3, "")):
        store.append(_record(key, _WHEN + timedelta(hours=hours)))
    assert [one.when.hour for one in store.read()] == [4, 5, 6, 8]
    assert {key: one.when.hour for key, one in store.latest().items()} == {"a": 8, "b": 5}


def test_what_is_no_record_is_named_and_left_alone(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    good = store.append(_record())
    bad = good.with_name("20260102T000000000000-00000000.json")
    bad.write_text(good.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    assert len(store.read()) == 1
    assert list(store.broken) == [bad]
    assert bad.exists()
    with pytest.raises(BadInputError, match="schema_version"):
        read_record(bad)


def test_a_long_log_keeps_its_beginning_and_its_end() -> None:
    log = shortened_log("first" + "x" * (2 * LONGEST_LOG) + "last")
    assert log.startswith("first")
    assert log.endswith("last")
    assert len(log) < LONGEST_LOG + 100
    assert shortened_log("short") == "short"


def test_bytes_that_are_no_text_are_spelled_out(tmp_path: Path) -> None:
    record = Record(id=new_id(_WHEN), kind="cell", when=_WHEN, state=State.CRASHED, command=("tk", "m\udcff"),
                    subject=Subject(network="n\udc80"), place=Place(target="cpu"), log="x\udcfe")  # fmt: skip
    RecordStore(tmp_path).append(record.model_copy(update={"why": "y\udcfd"}))
    (found,) = RecordStore(tmp_path).read()
    assert (found.subject.network, found.command[1]) == ("n\\udc80", "m\\udcff")
    assert (found.why, found.log) == ("y\\udcfd", "x\\udcfe")
