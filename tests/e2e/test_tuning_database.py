"""A tuning database under what happens to files: processes at once, kill -9, disks full and read only."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from compiler.core.diagnostics import HostError
from compiler.tune.database.generation import generation
from compiler.tune.database.store import Database
from tests.support.own_disk import make_read_only, own_disk
from tests.support.tuning_writers import BATCH, WORKLOADS, batches, check_whole, ids, started, write


def test_many_processes_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    """From the very beginning: they all find no file, and make it."""
    database, count = tmp_path / "t.db", 12
    processes = [started(write, database, tmp_path / f"{n}.ids", n, count) for n in range(4)]
    while any(one.is_alive() for one in processes):  # and others read meanwhile
        if database.exists() and (tmp_path / "0.ids").exists():
            Database.read(database).bests(WORKLOADS[0].key)
        time.sleep(0.02)
    assert [one.exitcode for one in processes] == [0] * 4
    reported = [ids(tmp_path / f"{n}.ids") for n in range(4)]
    assert check_whole(database, set().union(*reported)) == set().union(*reported)
    assert sum(map(len, reported)) == 4 * count * BATCH


def killed(folder: Path, moments: list[float]) -> None:
    """Kill writers, two at a time, each after so many seconds; nothing that was reported is lost."""
    database = folder / "t.db"
    for number, moment in enumerate(moments):
        writers = [
            started(write, database, folder / f"{number}.{n}.ids", 2 * number + n, 10**6) for n in (0, 1)
        ]
        wait_for(folder / f"{number}.0.ids" if number % 3 else database)
        time.sleep(moment)
        for one in writers:
            assert one.pid is not None
            os.kill(one.pid, signal.SIGKILL)
            one.join()
        check_whole(database, set().union(*(ids(one) for one in folder.glob("*.ids"))))
    assert Database.open(database).add(next(batches(10**6, 1))) == BATCH


def wait_for(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_what_was_reported_survives_kill(tmp_path: Path) -> None:
    killed(tmp_path, [0.0, 0.05, 0.15])


@pytest.mark.slow
def test_what_was_reported_survives_kill_at_30_moments(tmp_path: Path) -> None:
    source = random.Random(0)
    killed(tmp_path, [source.uniform(0, 0.2) for _ in range(30)])


# ---------------------------------------------------------------- disks


def in_a_process(do: object, folder: Path) -> dict[str, object]:
    """What `do` found out in a process that may mount disks of its own."""
    process = started(do, folder, folder / "answer")  # type: ignore[arg-type]
    process.join(120)
    assert process.exitcode == 0
    return dict(json.loads((folder / "answer").read_text()))


def fill_up(folder: Path, answer: Path) -> None:
    """Write to a small disk until it is full, make room, and go on."""
    disk = folder / "disk"
    disk.mkdir()
    own_disk(disk, 1 << 20)
    (disk / "filling").write_bytes(b"x" * (200 << 10))
    database, reported, said = Database.open(disk / "t.db"), set[str](), []
    made = batches(0, 10**6)
    for _ in range(3):  # it fails again as long as there is no room
        try:
            for batch in made:
                database.add(batch, WORKLOADS)
                reported |= {one.id for one in batch}
        except HostError as error:
            said.append(error.what)
    there = check_whole(disk / "t.db", reported)
    (disk / "filling").unlink()
    added = Database.open(disk / "t.db").add(next(made))
    after = len(check_whole(disk / "t.db", reported))
    answer.write_text(
        json.dumps(
            {"said": said, "lost": len(reported - there), "there": len(there), "added": added, "after": after}
        )
    )


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    found = in_a_process(fill_up, tmp_path)
    assert found["said"] == ["the disk is full: nothing was added to the tuning database"] * 3
    assert found["lost"] == 0
    assert isinstance(found["there"], int)
    assert found["there"] > BATCH
    assert (found["added"], found["after"]) == (BATCH, found["there"] + BATCH)


def read_only(folder: Path, answer: Path) -> None:
    """Read a database of a disk that nobody can write to."""
    disk = folder / "disk"
    disk.mkdir()
    own_disk(disk, 4 << 20)
    made = next(batches(0, 1))
    Database.open(disk / "t.db").add(made, WORKLOADS)
    make_read_only(disk)
    found = Database.read(disk / "t.db").tried(WORKLOADS[0].key)
    try:
        Database.open(disk / "t.db").add(next(batches(1, 1)))
        said = ""
    except HostError as error:
        said = error.what
    same = found == sorted(made, key=lambda one: (one.date, one.id))
    answer.write_text(json.dumps({"same": same, "known": generation(disk / "t.db", "cpu"), "said": said}))


def test_a_database_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    found = in_a_process(read_only, tmp_path)
    assert found["same"] is True
    assert found["known"]
    assert found["said"] == "the tuning database cannot be used"
