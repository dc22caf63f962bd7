"""A part of the cases of each promise, and the tool that runs all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.promises.promise import (
    MODULES,
    Case,
    Ended,
    Kept,
    Promise,
    Selection,
    promise_of,
    try_promise,
)
from tests.promises.record import PAGE, Record, page, read_records, write_record


@pytest.mark.parametrize("name", MODULES)
def test_a_part_of_the_cases(name: str) -> None:
    promise = promise_of(name)
    sums = try_promise(promise, Selection(promise.share))
    assert sums.trials > 0
    assert dict(sums.faults) == {}


def test_the_page_is_made_of_the_records() -> None:
    assert PAGE.read_text() == page(read_records())


def test_records_are_of_the_promises_as_they_stand() -> None:
    for one in read_records():
        promise = promise_of(one.name)
        assert (one.promised, one.trials, one.criterion) == (
            promise.promised,
            promise.trials,
            promise.criterion,
        )
        assert one.count >= promise.least
        assert list(one.faults) == []


def squares(drawn: random.Random) -> Iterator[Case]:
    def run(number: int, folder: Path) -> Ended:
        assert list(folder.iterdir()) == []
        (folder / "file").touch()
        return Ended("even" if number % 2 == 0 else "odd", "it is 7" if number == 7 else "")

    for number in drawn.sample(range(10), 10):
        yield Case(f"number {number}", lambda folder, number=number: run(number, folder))


SQUARES = Promise("P0", "numbers are fine", "numbers", "it is not 7", 10, 0.2, squares)


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    ran: list[str] = []

    def cases(drawn: random.Random) -> Iterator[Case]:
        for case in squares(drawn):
            yield Case(case.name, lambda folder, case=case: (ran.append(case.name), case.run(folder))[1])

    def stop(done: str, _fault: str) -> None:
        if done.startswith("4 "):
            raise KeyboardInterrupt

    promise = replace(SQUARES, cases=cases)
    kept = Kept(tmp_path / "kept" / "P0.jsonl", "these")
    with pytest.raises(KeyboardInterrupt):
        try_promise(promise, Selection(), stop, kept=kept)
    assert len(kept.read()) == 4
    sums = try_promise(promise, Selection(), kept=kept)
    assert (sums.ended, sums.faults) == ({"even": 5, "odd": 5}, {"number 7": "it is 7"})
    assert len(ran) == len(set(ran)) == 10
    assert try_promise(promise, Selection(), kept=kept).seconds == pytest.approx(sums.seconds)
    try_promise(promise, Selection(), kept=Kept(kept.path, "others"))
    assert len(ran) == 20


def test_cases_are_drawn_run_and_counted(tmp_path: Path) -> None:
    sums = try_promise(SQUARES, Selection())
    assert (sums.ended, sums.faults) == ({"even": 5, "odd": 5}, {"number 7": "it is 7"})
    part = [case.name for case in Selection(0.3, 5).of(SQUARES)]
    assert len(part) == 3
    assert part == [case.name for case in Selection(0.3, 5).of(SQUARES)]
    assert part != [case.name for case in Selection(0.3, 6).of(SQUARES)]
    assert [case.name for case in Selection(only=["*7"]).of(SQUARES)] == ["number 7"]
    write_record(Record.of(SQUARES, sums), tmp_path)
    (record,) = read_records(tmp_path)
    assert (record.count, record.faults) == (10, ["number 7"])
    text = page([record])
    assert "| P0 | numbers are fine | 10 numbers | 1 |" in text
    assert "Faults: `number 7`." in text
