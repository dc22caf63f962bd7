"""Tuner, workers and scheduler killed in turn: no record lost that was reported, and none measured twice."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.onnx_models import model
from tests.support.tune_cluster import TK, Program, cluster, until

_TRIED = re.compile(r"(\d+) tried in")
ROUNDS = 30
WORDS = ("tune", "m.onnx", "--time", "none", "--db", "t.db", "--min-gain", 0, "--threads", 1, "--cluster")
TWICE = (
    "SELECT count(*) FROM records WHERE program != '' "
    "GROUP BY workload, environment, program HAVING count(*) > 1"
)


def count(database: Path) -> int:
    """The records of a database, which has to be whole, with none measured twice."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return 0
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute(TWICE).fetchall() == []
        return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])


def products() -> onnx.ModelProto:
    """A chain of small products, each of other sizes: much to search, and little to wait for."""
    source = np.random.default_rng(0)
    sizes = [24 + 8 * number for number in range(9)]
    weights = {f"w{n}": source.standard_normal(shape, np.float32) for n, shape in enumerate(pairwise(sizes))}
    nodes = [helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"]) for n in range(len(weights))]
    return model(nodes, {"x0": np.zeros((24, sizes[0]), np.float32)}, [f"x{len(weights)}"], weights)


class Tuner:
    """A search that goes on from where the one before was; `said` are records that it reported, in all."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder, self._address, self._number = folder, address, 0
        self.database = folder / "t.db"
        self.start()

    def start(self) -> None:
        self._number += 1
        self._before = count(self.database)
        self.program = Program(self._folder, f"tuner{self._number}", (*TK, *WORDS, self._address))

    def check(self) -> int:
        """The records that are there: at least all that were reported."""
        said = max(map(int, _TRIED.findall(self.program.text)), default=0)
        there = count(self.database)
        assert there >= self._before + said
        return there

    def go_on(self, more: int) -> None:
        """Let it record so many more."""
        begun = count(self.database)

        def holds() -> bool:
            assert self.program.process.poll() is None, self.program.text
            return count(self.database) >= begun + more

        until(holds, self.program.text, 600)


def of_a_worker(worker: Program, source: random.Random) -> Callable[[], None]:
    """Kill one of the worker's processes, or that which keeps them, whose others end then, too."""
    children = worker.children()
    chosen = source.choice([worker.process.pid, *children])

    def kill() -> None:
        if chosen != worker.process.pid:
            os.kill(chosen, signal.SIGKILL)
            return
        worker.kill()
        until(lambda: not any(Path(f"/proc/{one}/cwd").exists() for one in children), "workers go on", 30)
        worker.start()

    return kill


@pytest.mark.slow
def test_30_kills_of_tuner_worker_and_scheduler(tmp_path: Path) -> None:
    onnx.save(products(), tmp_path / "m.onnx")
    source, before = random.Random(7), 0
    report: list[str] = []
    with cluster(tmp_path) as (address, (scheduler, worker)):
        tuner = Tuner(tmp_path, address)
        for number in range(ROUNDS):
            tuner.go_on(1)
            time.sleep(source.uniform(0, 3))
            victim = ("tuner", "worker", "scheduler")[number % 3]
            if victim == "worker":
                of_a_worker(worker, source)()
            elif victim == "scheduler":
                scheduler.kill()
                assert tuner.program.process.wait(120) == 4, tuner.program.text
                assert "the cluster's scheduler is gone" in tuner.program.text
                scheduler.start()
            else:
                tuner.program.kill()
            there = tuner.check()
            assert there >= before
            before = there
            report.append(f"{time.strftime('%H:%M:%S')} {number + 1}: {victim} killed, {there} records")
            (tmp_path / "report").write_text("\n".join(report))
            if victim != "worker":
                tuner.start()
        tuner.go_on(1)
        tuner.program.kill()
