"""`tk tune MODEL` as typed: a search, its database, what a compile makes of it, and how it ends."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.runtime.manifest import manifest_of
from compiler.tune.database.store import Database
from compiler.tune.record import Measured
from tests.support.command import environment, tk
from tests.support.onnx_models import model, run_onnxruntime

TRIALS = 14


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two products."""
    directory = tmp_path_factory.mktemp("tune")
    source = np.random.default_rng(0)
    x, w, v = (source.standard_normal(shape, np.float32) for shape in ((24, 48), (48, 64), (64, 32)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="cut"),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="second"),
    ]
    onnx.save(model(nodes, {"x": x}, ["y"], {"w": w, "v": v}), directory / "model.onnx")
    return directory


def search(folder: Path, *options: object) -> Any:
    """The report of a search with a database of the folder."""
    words = (
        "tune",
        "model.onnx",
        "--threads",
        1,
        "--time",
        "5m",
        "--min-gain",
        0,
        "--db",
        "tuning.db",
        "--json",
    )
    done = tk(*words, *options, cwd=folder)
    assert done.code == 0, done.err
    return done.json


@pytest.fixture(scope="module")
def found(folder: Path) -> Any:
    """What one search found."""
    return search(folder, "--trials", TRIALS, "--report", "report")


@pytest.fixture(scope="module")
def again(folder: Path, found: Any) -> Any:
    """What a second search says that goes on in a copy of the first one's database."""
    shutil.copy(folder / "tuning.db", folder / "again.db")
    return search(folder, "--trials", 2, "-o", "again.so", "--db", "again.db")


def test_a_search_measures_each_kernel_and_leaves_a_library(folder: Path, found: Any) -> None:
    assert (found["ended"], found["measured"], found["known"]) == ("trials", TRIALS, 0)
    assert all(one["trials"] and one["default_ms"] > 0 for one in found["kernels"])
    assert {one["name"].split()[1] for one in found["kernels"]} == {"(first)", "(second)"}
    assert "graph" not in manifest_of(folder / "model.so")
    x = np.random.default_rng(1).standard_normal((24, 48), np.float32)
    (wanted,) = run_onnxruntime(onnx.load(folder / "model.onnx"), {"x": x}).values()
    got = compiler.load(folder / "model.so").run({"x": x})["y"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_what_is_known_is_not_measured_again(folder: Path, found: Any, again: Any) -> None:
    assert again["known"] >= found["measured"]
    assert again["measured"] == 2
    database = _database(folder, "again.db")
    records = [one for key in {k["workload"] for k in found["kernels"]} for one in database.tried(key)]
    programs = [(one.workload, one.program) for one in records if one.program]
    assert len(programs) == len(set(programs)) >= TRIALS + 2


@pytest.mark.slow  # the strategy itself: tests/unit/tune/strategies
def test_a_replay_measures_only_what_the_database_has(folder: Path, found: Any) -> None:
    shutil.copy(folder / "tuning.db", folder / "replayed.db")
    again = search(folder, "--strategy", "replay", "--trials", 4, "-o", "replayed.so", "--db", "replayed.db")
    assert again["measured"] <= 4
    assert {one["workload"] for one in again["kernels"]} == {one["workload"] for one in found["kernels"]}


def test_a_compile_takes_what_the_search_kept(folder: Path, again: Any) -> None:
    words = (
        "compile",
        "model.onnx",
        "-o",
        "plain.so",
        "--threads",
        1,
        "--no-db",
        "--db",
        "again.db",
        "--json",
    )
    done = tk(*words, cwd=folder)
    assert done.json["tuned"] == sum(one["kept"] for one in again["kernels"])


@pytest.mark.slow  # two searches; what is tried and taken: tests/unit/tune/test_graph_search.py
def test_decisions_of_the_graph_are_tried_and_a_compile_takes_what_gained(folder: Path) -> None:
    found = search(folder, "--trials", 1, "--graph", "--db", "graph.db", "-o", "graph.so")
    database = _database(folder, "graph.db")
    (workload,) = [one for one in database.workloads() if one.forms[0][1][0].name == "graph"]
    default, apart = sorted(database.tried(workload.key), key=lambda one: not one.is_default)
    assert found["graph_tried"] == 1, "no other layout, and no attention: only kernels of one operator differ"
    assert (default.decisions["graph.fusion"], apart.decisions["graph.fusion"]) == ((32,), (1,))
    gained = replace(apart, id="f" * 64, measured=Measured("ok", (1e-9,)))
    Database.open(folder / "graph.db").add([gained])
    done = tk("compile", "model.onnx", "-o", "apart.so", "--db", "graph.db", "--threads", 1, cwd=folder)
    assert done.code == 0, done.err
    manifest = manifest_of(folder / "apart.so")
    assert manifest["graph"]["record"] == gained.id
    assert manifest["graph"]["decisions"]["graph.fusion"] == [1]
    assert len(manifest["steps"]) == 3
    again = search(folder, "--trials", 1, "--db", "graph.db", "-o", "apart-again.so")
    assert len(again["kernels"]) == 3, "kernels are searched in what is known of the graph"


def test_the_folder_has_a_page_and_logs(folder: Path, found: Any) -> None:
    page = (folder / "report" / "index.html").read_text()
    assert all(one["name"].split()[1].strip("()") in page for one in found["kernels"])
    assert "<svg" in page
    logs = sorted((folder / "report").glob("kernel*.jsonl"))
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    assert len(logs) == len(found["kernels"])
    assert len(lines) >= TRIALS


def test_a_list_measures_nothing(folder: Path) -> None:
    words = ("tune", "model.onnx", "--target", "cpu", "--list", "--db", "none.db", "--json")
    done = tk(*words, cwd=folder)
    assert done.code == 0, done.err
    assert [one["trials"] for one in done.json] == [0, 0]


def test_an_interrupt_keeps_what_was_measured(folder: Path) -> None:
    words = (
        "tune",
        "model.onnx",
        "-o",
        "cut.so",
        "--time",
        "none",
        "--min-gain",
        "0",
        "--threads",
        "1",
        "--db",
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "toolchain", *words, "cut.db", "--json"],
        cwd=folder,
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _wait_for_records(folder / "cut.db")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    report = json.loads(out)
    assert report["ended"] == "interrupted"
    assert (folder / "cut.so").exists()
    kept = sum(len(_database(folder, "cut.db").tried(one["workload"])) for one in report["kernels"])
    assert kept >= report["measured"] > 0


def _wait_for_records(path: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if path.exists() and path.stat().st_size > 0 and _has_records(path):
            return
        time.sleep(0.2)
    raise AssertionError("nothing was measured")


def _has_records(path: Path) -> bool:
    database = Database.read(path)
    return any(database.tried(one.key) for one in database.workloads())


def _database(folder: Path, name: str = "tuning.db") -> Database:
    return Database.read(folder / name)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--strategy", "evolutoin"), 2, "did you mean 'evolution'?"),
        (("--time", "5 parsecs"), 2, "as `30m`, or `none`"),
        (("--kernel", "Softmax"), 2, "no kernel has that in its name"),
        (("--target", "gpu"), 2, "unknown target `gpu`"),
        (("--target", "cpu", "--target", "opencl-cpu"), 2, "a search is for one target"),
    ],
)
def test_mistakes(folder: Path, options: tuple[str, ...], code: int, said: str) -> None:
    done = tk("tune", "model.onnx", "--db", "mistakes.db", *options, cwd=folder)
    assert done.code == code, done.err
    assert said in done.err
    assert done.out == ""
