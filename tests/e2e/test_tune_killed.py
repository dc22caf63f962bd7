"""A search that is killed at any moment: what it said it tried is there, and nothing is measured twice."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from compiler.tune.database.store import Database
from tests.support.command import environment, tk

_TRIED = re.compile(r"(\d+) tried in")
_LIMIT_SECONDS = 120


def killed(folder: Path, log: Path, seconds: float) -> int:
    """Search until something was tried and so many seconds more; returns how many it said it tried."""
    words = ("tune", "m.onnx", "--time", "10m", "--db", "t.db", "--min-gain", "0")
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "toolchain", *words], cwd=folder, env=environment(), stderr=stream,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        until = time.monotonic() + _LIMIT_SECONDS
        while not _TRIED.search(log.read_text()):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    return max(map(int, _TRIED.findall(log.read_text())))


@pytest.mark.slow
def test_30_searches_that_are_killed(tmp_path: Path) -> None:
    assert tk("zoo", "make", "mnist", "-o", "m.onnx", cwd=tmp_path).code == 0
    source, before = random.Random(7), 0
    for number in range(30):
        said = killed(tmp_path, tmp_path / f"{number}.log", source.uniform(0, 3))
        with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            twice = connection.execute(
                "SELECT count(*) FROM records WHERE program != '' "
                "GROUP BY workload, environment, program HAVING count(*) > 1"
            ).fetchall()
        assert twice == []
        opened = Database.read(tmp_path / "t.db")
        there = sum(len(opened.tried(one.key)) for one in opened.workloads())
        assert there >= before + said
        before = there
