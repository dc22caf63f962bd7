"""A search whose database has no room left: it ends with that message, and goes on from there later."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from compiler.core.diagnostics import HostError
from compiler.schedule.chooser import AnalyticChooser
from compiler.tune.database.store import Database
from compiler.tune.measure.replay import Key, ReplayMeasurer
from compiler.tune.network import NetworkKernel
from compiler.tune.progress import KernelSearch
from compiler.tune.record import OK, Measured, Record
from compiler.tune.report import Budget, TuneState
from compiler.tune.session import Search, known_records
from compiler.tune.strategies.strategy import RandomSearch
from compiler.tune.strategies.tasks import GradientScheduler, Task
from tests.support.own_disk import own_disk
from tests.support.searches import toy_programs, toy_space
from tests.support.tuned import HERE
from tests.support.tuning_writers import started


@dataclass
class FillsTheDisk:
    """Notes what is reported; behind the second batch there is no room on the disk any more."""

    filling: Path | None
    reported: list[str] = field(default_factory=list)
    batches: int = 0

    def on_record(self, record: Record) -> None:
        self.reported.append(record.id)

    def on_batch(self, state: TuneState) -> None:  # noqa: ARG002 - of the interface
        self.batches += 1
        if self.filling is not None and self.batches == 2:
            with suppress(OSError), self.filling.open("wb", buffering=0) as stream:
                while True:
                    stream.write(b"x" * 512)


def run(path: Path, seed: int, watching: FillsTheDisk) -> tuple[str, list[Key]]:
    """Why a search of the toy's space ended, and what it measured."""
    database, space = Database.open(path), toy_space()
    kernel = NetworkKernel(space.workload, "toy", 1, {})
    default = space.make(AnalyticChooser())
    assert default is not None
    search_of = KernelSearch(kernel, default, 1.0)
    strategy = RandomSearch(toy_space(), seed)
    for record in known_records(search_of, database, HERE, trust=False):
        strategy.learn(record, record.measured)
    measurer = ReplayMeasurer({}, Measured(OK, (1e-3,) * 5))
    search = Search(
        [search_of], [strategy], GradientScheduler([Task("toy", 1, 1e-3)], 0.0), measurer, HERE, database,
        Budget(min_gain=0.0), 1.0, (watching,),
    )  # fmt: skip
    try:
        search.run()
    except HostError as error:
        return error.what, measurer.asked
    return search.ended, measurer.asked


def on_a_small_disk(folder: Path, answer: Path) -> None:
    """Search until the disk is full, make room, and search again."""
    disk = folder / "disk"
    disk.mkdir()
    own_disk(disk, 1 << 20)
    first = FillsTheDisk(disk / "filling")
    said, measured = run(disk / "t.db", 1, first)
    (disk / "filling").unlink()
    with closing(sqlite3.connect(disk / "t.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    there = Database.read(disk / "t.db").tried(measured[0][0])
    ended, again = run(disk / "t.db", 2, FillsTheDisk(None))
    recorded = {(one.workload, one.program) for one in Database.read(disk / "t.db").tried(again[0][0])}
    found = {
        "said": said,
        "ended": ended,
        "reported": len(first.reported),
        "lost": len(set(first.reported) - {one.id for one in there}),
        "there": len(there),
        "measured": len(measured),
        "twice": len(again)
        - len(set(again))
        + len({(one.workload, one.program) for one in there} & set(again)),
        "recorded": len(recorded),
    }
    answer.write_text(json.dumps(found))


def test_a_search_on_a_full_disk(tmp_path: Path) -> None:
    process = started(on_a_small_disk, tmp_path, tmp_path / "answer")
    process.join(120)
    assert process.exitcode == 0
    found = json.loads((tmp_path / "answer").read_text())
    assert found["said"] == "the disk is full: nothing was added to the tuning database"
    assert found["lost"] == 0
    assert found["reported"] == found["there"] > 0
    assert found["measured"] > found["there"]  # those of the batch for which there was no room
    assert (found["ended"], found["twice"]) == ("little left to gain", 0)
    assert found["recorded"] == len(toy_programs())
