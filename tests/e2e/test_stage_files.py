"""`--dump`, `--stop-after`, `--from`: what a compile leaves for its reader, and what comes back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.schedule.trace import TRACE_VERSION
from tests.support import command
from tests.support.command import Result
from tests.support.onnx_models import model

RNG = np.random.default_rng(3)
X = RNG.standard_normal((1, 3, 10, 10)).astype(np.float32)
CONV = RNG.standard_normal((16, 3, 3, 3)).astype(np.float32)
DENSE = RNG.standard_normal((16, 5)).astype(np.float32)
EDITABLE = ("30-loops/k000.loops", "31-trace/k000.json", "32-schedule/k000.loops", "50-render/k000.cpp")


def network() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "conv"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "dense"], ["y"]),
    ]
    return model(nodes, {"x": X}, ["y"], {"conv": CONV, "dense": DENSE})


def expected(floor: float = 0.0) -> np.ndarray:
    """What the network computes, in float64, with another lower bound of the activation."""
    windows = np.lib.stride_tricks.sliding_window_view(X.astype(np.float64), (3, 3), axis=(2, 3))
    conv = np.einsum("nchwij,ocij->nohw", windows, CONV)
    return np.maximum(conv, floor).mean((2, 3)) @ DENSE


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """A directory with m.onnx, m.so and the dump of its compile, the convolution being kernel 0."""
    directory = tmp_path_factory.mktemp("stages")
    onnx.save(network(), directory / "m.onnx")
    assert command.tk("compile", "m.onnx", "--dump", "dump", cwd=directory).code == 0
    assert "Conv" in (directory / "dump" / "22-kernels.txt").read_text().splitlines()[0]
    return directory


@pytest.fixture
def edit(compiled: Path, tmp_path: Path) -> Callable[[str, Callable[[str], str]], Result]:
    """Change one file of the dump and compile from it."""

    def run(name: str, change: Callable[[str], str]) -> Result:
        path = tmp_path / "edited" / name
        path.parent.mkdir(parents=True)
        path.write_text(change((compiled / "dump" / name).read_text()))
        return command.tk("compile", compiled / "m.onnx", "-o", tmp_path / "m.so", "--from", path)

    return run


def result(library: Path) -> np.ndarray:
    with compiler.load(library) as loaded:
        return loaded.run({"x": X})["y"]


def assert_refused(done: Result, *words: str, code: int = 3) -> None:
    """One clear message, no traceback, and the words in it."""
    assert done.code == code, done
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    assert "defect of tk" not in done.err
    assert all(word in done.err for word in words), done.err


# ---------------------------------------------------------------- dump


def test_a_dump_reads_from_top_to_bottom(compiled: Path) -> None:
    dump = compiled / "dump"
    index = (dump / "README.txt").read_text()
    listed = re.findall(r"^(\d\d-\S+)", index, re.MULTILINE)
    there = sorted(path.name + ("/" if path.is_dir() else "") for path in dump.iterdir())
    assert [*listed, "README.txt"] == [*there[:-1], "70-specialised/", there[-1]], (
        "where sizes have kernels of their own"
    )
    assert listed == sorted(listed)
    assert all(path.stat().st_size > 1 for path in dump.rglob("*") if path.is_file())


def test_the_dump_for_a_device_has_its_module(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    dump = tmp_path / "dump"
    options = compiler.CompileOptions(
        output=tmp_path / "sources", target="opencl-cpu", emit="source", dump=dump
    )
    compiler.compile_model(tmp_path / "m.onnx", options)
    module = (dump / "51-module.cl").read_text()
    parts = [path.read_text() for path in sorted((dump / "50-render").iterdir())]
    assert parts
    assert all(part in module for part in parts)
    assert (tmp_path / "sources" / "kernels.cl").read_text() == module


def test_the_plan_names_every_tensor_and_call(compiled: Path) -> None:
    plan = (compiled / "dump" / "60-plan.txt").read_text()
    calls = (compiled / "dump" / "22-kernels.txt").read_text().splitlines()
    assert "in input 0  # 'x'" in plan
    assert "in output 0  # 'y'" in plan
    assert len(re.findall(r"^ +\d+  k\d{3}\(.*output 0\)$", plan, re.MULTILINE)) == 1
    assert len(re.findall(r"^ +\d+  k\d{3}\(", plan, re.MULTILINE)) == len(calls)
    assert "Value(" not in plan


def test_json_in_a_dump_is_json(compiled: Path) -> None:
    files = sorted((compiled / "dump").rglob("*.json"))
    assert len(files) >= 4
    for path in files:
        json.loads(path.read_text())


def test_a_dump_replaces_the_one_before(compiled: Path, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    for stage in ("link", "fuse"):
        done = command.tk(
            "compile",
            compiled / "m.onnx",
            "--dump",
            "dump",
            "--stop-after",
            stage,
            "-o",
            "m.so",
            cwd=tmp_path,
        )
        assert done.code == 0
    names = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert names == ["00-import.txt", "10-rewrite", "20-fuse.txt", "README.txt"]


def test_a_dump_does_not_mix_with_other_files(compiled: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = command.tk("compile", compiled / "m.onnx", "--dump", tmp_path, "-o", tmp_path / "m.so")
    assert_refused(done, "not empty", "mine", code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


# ---------------------------------------------------------------- stop


@pytest.mark.parametrize(
    ("stage", "there", "not_there"),
    [
        ("import", "00-import.txt", "10-rewrite"),
        ("rewrite", "10-rewrite", "20-fuse.txt"),
        ("layout", "21-layout.txt", "30-loops"),
        ("loops", "30-loops", "31-trace"),
        ("schedule", "32-schedule", "40-lower"),
        ("lower", "40-lower", "50-render"),
        ("render", "50-render", "60-plan.txt"),
        ("plan", "60-plan.txt", "61-host.cpp"),
        ("host", "62-manifest.json", "none"),
    ],
)
def test_stop_after(compiled: Path, tmp_path: Path, stage: str, there: str, not_there: str) -> None:
    dump = tmp_path / "dump"
    options = compiler.CompileOptions(output=tmp_path / "m.so", dump=dump, stop_after=stage)
    report = compiler.compile_model(compiled / "m.onnx", options)
    assert report.stopped_after == stage
    assert (dump / there).exists()
    assert not (dump / not_there).exists()
    assert not (tmp_path / "m.so").exists()


def test_a_stopped_compile_says_that_there_is_no_library(compiled: Path, tmp_path: Path) -> None:
    done = command.tk("compile", compiled / "m.onnx", "--stop-after", "fuse", cwd=tmp_path)
    assert done.code == 0
    assert "no library" in done.out
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- from


@pytest.mark.parametrize("name", EDITABLE)
def test_a_file_fed_back_unchanged_gives_the_same_library(
    compiled: Path, tmp_path: Path, edit: Callable[..., Result], name: str
) -> None:
    done = edit(name, lambda text: text)
    assert done.code == 0, done.err
    assert (tmp_path / "m.so").read_bytes() == (compiled / "m.so").read_bytes()


def other_bound(text: str) -> str:
    """relu becomes max(x, 1.5)."""
    changed = re.sub(r"(max\(.*, )0\.0\)", r"\g<1>1.5)", text)
    assert changed != text
    return changed


@pytest.mark.parametrize("name", ["30-loops/k000.loops", "32-schedule/k000.loops"])
def test_edited_loops_are_what_runs(tmp_path: Path, edit: Callable[..., Result], name: str) -> None:
    done = edit(name, other_bound)
    assert done.code == 0, done.err
    np.testing.assert_allclose(result(tmp_path / "m.so"), expected(1.5), rtol=1e-5, atol=1e-5)


def test_an_edited_trace_is_what_runs(compiled: Path, tmp_path: Path, edit: Callable[..., Result]) -> None:
    def shortened(text: str) -> str:
        trace = json.loads(text)
        kinds = ("unroll", "vectorize", "parallel")
        kept = [item for item in trace["instructions"] if item["do"] not in kinds]
        assert 0 < len(kept) < len(trace["instructions"])
        return json.dumps({**trace, "instructions": kept})

    done = edit("31-trace/k000.json", shortened)
    assert done.code == 0, done.err
    assert (tmp_path / "m.so").read_bytes() != (compiled / "m.so").read_bytes()
    np.testing.assert_allclose(result(tmp_path / "m.so"), expected(), rtol=1e-5, atol=1e-5)
    checked = command.tk("inspect", tmp_path / "m.so", "--check")
    assert checked.code == 0, checked.err  # the edited trace is the one that is recorded


def test_edited_source_is_what_runs(tmp_path: Path, edit: Callable[..., Result]) -> None:
    def doubled(text: str) -> str:
        changed = re.sub(r"tk_relu\(", "2.0f * tk_relu(", text)
        assert changed != text
        return changed

    done = edit("50-render/k000.cpp", doubled)
    assert done.code == 0, done.err
    np.testing.assert_allclose(result(tmp_path / "m.so"), 2 * expected(), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- wrong edits


@pytest.mark.sample(2, each=("name",))
@pytest.mark.parametrize("name", EDITABLE)
@pytest.mark.parametrize("change", [lambda _: "", lambda text: text[: len(text) // 2], lambda _: "\x00{]"])
def test_a_broken_file_is_refused(
    edit: Callable[..., Result], name: str, change: Callable[[str], str]
) -> None:
    assert_refused(edit(name, change), name)


@pytest.mark.sample(2, each=("name",))
@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("30-loops/k000.loops", "[1, 3, 10, 10]", "[1, 3, 10, 11]", ("other parameters",)),
        ("30-loops/k000.loops", "0..8", "0..800", ("takes values",)),
        ("30-loops/k000.loops", "spatial", "special", ("special",)),
        ("32-schedule/k000.loops", "f32[", "f64[", ("k000.loops",)),
        ("32-schedule/k000.loops", "block ", "blok ", ("blok",)),
        ("31-trace/k000.json", '"loop": "', '"loop": "no_such_', ("no_such_",)),
        ("31-trace/k000.json", '"do": "split"', '"do": "spilt"', ("split",)),
        ("31-trace/k000.json", f'"version": {TRACE_VERSION}', '"version": 99', ("99",)),
        ("31-trace/k000.json", '"parallel"', '"vectorize"', ("k000.json",)),
        ("50-render/k000.cpp", "float", "flaot", ("flaot", "edited source")),
        ("50-render/k000.cpp", "tk_kernel.h", "/etc/passwd", ("edited source",)),
    ],
)
def test_a_wrong_edit_is_refused(
    edit: Callable[..., Result], name: str, old: str, new: str, words: tuple[str, ...]
) -> None:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    assert_refused(edit(name, change), name, *words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("30-loops/k077.loops", ("no kernel k077",)),
        ("30-lops/k000.loops", ("did you mean", "30-loops")),
        ("40-lower/k000.loops", ("cannot go on from",)),
        ("30-loops/readme.txt", ("cannot go on from",)),
    ],
)
def test_a_file_that_belongs_nowhere_is_refused(
    compiled: Path, tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    path.write_text((compiled / "dump" / EDITABLE[0]).read_text())
    done = command.tk("compile", compiled / "m.onnx", "-o", tmp_path / "m.so", "--from", path)
    assert_refused(done, *words, code=2)
    assert not (tmp_path / "m.so").exists()


def test_a_file_that_is_not_there_is_refused(compiled: Path, tmp_path: Path) -> None:
    done = command.tk("compile", compiled / "m.onnx", "--from", "30-loops/k000.loops", cwd=tmp_path)
    assert_refused(done, "30-loops/k000.loops")
