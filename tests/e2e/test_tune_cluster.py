"""A search on a cluster comes to what it comes to alone, with times replayed; and two on one database."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler import CompileOptions
from compiler.cluster.address import ClusterAddress
from compiler.stages.job import CompileJob
from compiler.stages.workload import Workload
from compiler.targets import get_target
from compiler.tune.cluster.machine import cluster_machine
from compiler.tune.database.store import Database
from compiler.tune.measure.measurer import Measurer
from compiler.tune.measure.replay import ReplayMeasurer
from compiler.tune.network import NetworkKernel
from compiler.tune.record import OK, Environment, Measured, Record
from compiler.tune.report import Budget, TuneState
from compiler.tune.session import Search, kernel_search
from compiler.tune.strategies.choice import make_strategy, scheduler_for
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.tasks import Task
from tests.support.command import environment, tk
from tests.support.onnx_models import model
from tests.support.tune_cluster import TK, Program, cluster, until
from tests.support.tuned import HERE, product

WORKLOADS = (product(8, 16, 24), product(16, 24, 8))
TRIALS = 36
KEY = "replayed"
WORKER = ("-m", "tests.support.replaying_worker")


class Batches:
    """Calls something after a batch, by the batch's number."""

    def __init__(self, then: Callable[[int], None]) -> None:
        self.count, self._then = 0, then
        self.records: list[Record] = []

    def on_record(self, record: Record) -> None:
        self.records.append(record)

    def on_batch(self, _: TuneState) -> None:
        self.count += 1
        self._then(self.count)


def searched(
    measurer: Measurer, under: Environment, then: Callable[[int], None] = lambda _: None
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The best program of each workload, and all that were tried in order."""
    target = get_target("cpu")
    kernels = [
        kernel_search(NetworkKernel(one, f"product {number}", 1, {}), target, 1.0)
        for number, one in enumerate(WORKLOADS)
    ]
    strategies = [make_strategy("evolution", Space(one, target), 5) for one in WORKLOADS]
    tasks = [Task(one.kernel.name, 1, 1e-3) for one in kernels]
    watcher = Batches(then)
    scheduler = scheduler_for("evolution", tasks, 0.0)
    found = Search(
        kernels, strategies, scheduler, measurer, under, None, Budget(trials=TRIALS), 2.0, [watcher]
    )
    found.run()
    tried = [(one.workload, one.program) for one in watcher.records if one.program]
    assert {one.measured.status for one in watcher.records if one.program} == {OK}
    return {one.key: one.best.program for one in kernels if one.best is not None}, tried


class Made:
    """Times that follow from the programs: what is recorded, to be replayed elsewhere."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], Measured] = {}

    def measure(self, candidates: Sequence[object]) -> list[Measured]:
        for one in candidates:
            seconds = 1e-3 * (1 + int(one.program[:6], 16) / (1 << 24))  # type: ignore[attr-defined]
            self.known[one.workload.key, one.program] = Measured(OK, (seconds,))  # type: ignore[attr-defined]
        return ReplayMeasurer(self.known).measure(candidates)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_cluster_comes_to_the_same_as_one_machine(tmp_path: Path) -> None:
    """One scheduler, two builders, of which one is killed in the middle, and one that measures."""
    recorded = Made()
    bests, tried = searched(recorded, HERE)
    assert len(tried) == TRIALS
    assert bests.keys() == {one.key for one in WORKLOADS}
    times = tmp_path / "times.json"
    times.write_text(json.dumps([(*key, one.median) for key, one in recorded.known.items()]))
    with cluster(tmp_path, ()) as (address, programs):
        builders = [
            Program(tmp_path, name, (*WORKER, address, "build", times)) for name in ("builder1", "builder2")
        ]
        programs += [*builders, Program(tmp_path, "measurer", (*WORKER, address, f"measure:{KEY}", times))]
        until(lambda: all("tcp://" in one.text for one in programs), "no workers")

        def then(batch: int) -> None:
            if batch == 1:
                os.kill(builders[0].process.pid, signal.SIGKILL)

        job = CompileJob.of(tmp_path / "none.onnx", CompileOptions(tmp_path / "none.so"))
        with cluster_machine(ClusterAddress(address), None, job, 1, lambda *_: None) as machine:
            assert machine.environment.device == environment_device()
            there = searched(machine.measurer(0, 1 << 20, {}), machine.environment, then)
        assert builders[0].process.wait(10) == -signal.SIGKILL
        assert there == (bests, tried)


def environment_device() -> str:
    from compiler.tune.environment import processor_name

    return processor_name()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of two products."""
    source = np.random.default_rng(0)
    w, v = (source.standard_normal(shape, np.float32) for shape in ((48, 64), (64, 32)))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["y"])]
    onnx.save(
        model(nodes, {"x": np.zeros((24, 48), np.float32)}, ["y"], {"w": w, "v": v}), tmp_path / "m.onnx"
    )
    return tmp_path


@pytest.mark.slow
def test_a_command_on_a_cluster_leaves_the_library(folder: Path) -> None:
    with cluster(folder) as (address, _):
        words = ("tune", "m.onnx", "--cluster", address, "--threads", 1, "--trials", 14, "--min-gain", 0)
        done = tk(*words, "--time", "5m", "--db", "t.db", "--json", cwd=folder)
    assert done.code == 0, done.err
    assert (done.json["measured"], done.json["ended"]) == (14, "trials")
    assert tk("verify", "m.so", "--model", "m.onnx", cwd=folder).code == 0
    found = Database.read(folder / "t.db")
    records = [one for workload in found.workloads() for one in found.tried(workload.key)]
    assert {one.environment.device for one in records} == {environment_device()}
    assert all(one.measured.checked_by for one in records if one.measured.status == OK)


@pytest.mark.slow
def test_two_searches_at_once_on_one_database(folder: Path) -> None:
    words = (
        "tune",
        "m.onnx",
        "--threads",
        "1",
        "--trials",
        "24",
        "--min-gain",
        "0",
        "--time",
        "9m",
        "--json",
    )
    argv = [sys.executable, *TK, *words, "--db", "t.db"]
    started = [
        subprocess.Popen(
            [*argv, "--seed", str(seed), "-o", f"{seed}.so"], cwd=folder, env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for seed in (1, 2)
    ]  # fmt: skip
    said = [one.communicate(timeout=550) for one in started]
    assert [one.returncode for one in started] == [0, 0], said
    reports = [json.loads(out) for out, _ in said]
    with closing(sqlite3.connect(folder / "t.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    found = Database.read(folder / "t.db")
    workloads: list[Workload] = list(found.workloads())
    tried = [one for workload in workloads for one in found.tried(workload.key)]
    programs = [one for one in tried if one.program]
    assert len(programs) == sum(one["measured"] for one in reports) == 48
    assert all((folder / f"{seed}.so").exists() for seed in (1, 2))
