"""Processes that write to a tuning database, and report what they were told is there."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from compiler.tune.database.store import Database
from compiler.tune.record import Record
from tests.support.tuned import plain_record, product

BATCH = 5
WORKLOADS = [product(4, 6, 8 + size) for size in range(4)]


def started(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process that does something in a copy of one that has imported all it needs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def batches(writer: int, count: int) -> Iterator[list[Record]]:
    """Records that no other writer makes."""
    for number in range(count):
        workload = WORKLOADS[number % len(WORKLOADS)]
        notes = {"batch": f"{writer}.{number}", "padding": "x" * 2000}
        yield [plain_record(workload, 1e-3 * (at + 1), notes=notes) for at in range(BATCH)]


def write(database: Path, reported: Path, writer: int, count: int) -> None:
    """Add batches, and note the ids of each in a file when it was added."""
    opened = Database.open(database)
    handle = os.open(reported, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for made in batches(writer, count):
        opened.add(made, WORKLOADS)
        os.write(handle, "".join(f"{one.id}\n" for one in made).encode())
    os.close(handle)


def ids(reported: Path) -> set[str]:
    """What a writer noted, without a line that was cut off."""
    if not reported.exists():
        return set()
    return {line for line in reported.read_text().split("\n")[:-1] if len(line) == 64}


def check_whole(database: Path, reported: set[str]) -> set[str]:
    """The ids that are there: all that were reported, in whole batches, in a file that sqlite finds right."""
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    opened = Database.open(database)
    found = [one for workload in opened.workloads() for one in opened.tried(workload.key)]
    there = {one.id for one in found}
    assert reported <= there
    sizes: dict[str, int] = {}
    for one in found:
        sizes[one.notes["batch"]] = sizes.get(one.notes["batch"], 0) + 1
    assert set(sizes.values()) <= {BATCH}
    return there
