"""The contract that others script against: from a model to a library and what it says about itself."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from tests.support import command
from tests.support.command import Result, environment

Tk = Callable[..., Result]
OTHER_ORDER = {"PYTHONHASHSEED": "1"}
"""Sets of words in another order than in all commands that are forked."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """mnist.onnx and mnist.so."""
    path = tmp_path_factory.mktemp("contract")
    assert command.tk("zoo", "make", "mnist", cwd=path).code == 0
    assert command.tk("compile", "mnist.onnx", cwd=path).code == 0
    return path


def test_compile_says_where_and_what_it_cost(directory: Path) -> None:
    text = command.tk("compile", "mnist.onnx", "-o", "other.so", "--target", "cpu", cwd=directory)
    assert text.code == 0
    assert text.out.splitlines()[0] == "other.so"
    document = command.tk("compile", "mnist.onnx", "-o", "other.so", "--json", cwd=directory).json
    assert document["path"] == "other.so"
    assert document["library_bytes"] == (directory / "other.so").stat().st_size
    assert document["cache_hits"] == document["kernels"] > 0
    assert {"seconds", "stages", "constant_bytes", "peak_memory", "target", "arch"} <= document.keys()


def test_kernels_from_the_cache_are_no_more_than_there_are(directory: Path) -> None:
    """The library is another one, its objects are not; the host's object is no kernel."""
    words = ("compile", "mnist.onnx", "-o", "three.so", "--threads", "3")
    text = command.tk(*words, cwd=directory).out
    document = command.tk(*words, "--dump", "dump", "--json", cwd=directory).json
    assert document["cache_hits"] == document["kernels"]
    assert f"  kernels    {document['kernels']}, {document['kernels']} from the cache\n" in text


def test_progress_ends_at_the_kernels_that_the_report_counts(directory: Path, tmp_path: Path) -> None:
    """Also where several steps share a kernel."""
    told: list[tuple[str, float, float]] = []
    onnx.save(repeated(5), tmp_path / "repeated.onnx")
    report = compiler.compile_model(
        tmp_path / "repeated.onnx",
        compiler.CompileOptions(output=tmp_path / "m.so"),
        progress=lambda *parts: told.append(parts),
    )
    counts = [(done, total) for doing, done, total in told if doing == "kernels"]
    assert {total for _, total in counts} == {report.kernels}
    assert max(done for done, _ in counts) == report.kernels < 5


def repeated(times: int) -> onnx.ModelProto:
    """The same matrix product so many times."""
    nodes = [helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"]) for n in range(times)]
    weights = [numpy_helper.from_array(np.eye(64, dtype=np.float32), f"w{n}") for n in range(times)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (64, 64)) for name in ("x0", f"x{times}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_cache_that_cannot_be_written_fails_no_compile(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_without_cache(directory, tmp_path / "file" / "cache", "Not a directory")


@pytest.mark.slow  # as above but for the system's reason
def test_a_full_cache_fails_no_compile(directory: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(full)], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        check_without_cache(directory, full, "No space left on device")
    finally:
        subprocess.run(["umount", str(full)], check=True)


def check_without_cache(directory: Path, cache: Path, why: str) -> None:
    words = ("compile", "mnist.onnx", "-o", "uncached.so")
    result = command.tk(*words, cwd=directory, env={**OTHER_ORDER, "TK_CACHE_DIR": str(cache)})
    assert result.code == 0, result.err
    assert result.err.startswith(f"warning: nothing could be kept in the cache: {why} ({cache}")
    assert (directory / "uncached.so").read_bytes() == (directory / "mnist.so").read_bytes()


def test_compile_is_reproducible(directory: Path, tmp_path: Path) -> None:
    """With `--dump` it does all again but kernels of the same text."""
    words = ("compile", "mnist.onnx", "-o", "again.so", "--dump", tmp_path / "dump")
    assert command.tk(*words, cwd=directory, env=OTHER_ORDER).code == 0
    assert (directory / "again.so").read_bytes() == (directory / "mnist.so").read_bytes()


def test_timings(directory: Path, tmp_path: Path, own_cache: Path) -> None:
    (tmp_path / "objects").symlink_to(own_cache / "objects")  # but no finished library
    nothing = {"TK_CACHE_DIR": str(tmp_path)}
    out = command.tk("compile", "mnist.onnx", "-o", "other.so", "--timings", cwd=directory, env=nothing).out
    assert "stage" in out
    assert "link" in out


@pytest.mark.parametrize(("emit", "suffix"), [("source", ".cpp"), ("object", ".o")])
def test_emit(directory: Path, emit: str, suffix: str) -> None:
    assert command.tk("compile", "mnist.onnx", "--emit", emit, "-o", emit, cwd=directory).code == 0
    names = sorted(path.name for path in (directory / emit).iterdir())
    assert f"host{suffix}" in names
    assert all(name.endswith(suffix) for name in names)


def test_run_in_python_and_on_the_command_line_agree(directory: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 28, 28), np.float32)
    np.save(tmp_path / "x.npy", x)
    arguments = ("run", directory / "mnist.so", "--input", f"Input3={tmp_path}/x.npy", "--output-dir", "out")
    assert command.tk(*arguments, cwd=tmp_path).code == 0
    index = json.loads((tmp_path / "out" / "outputs.json").read_text())["outputs"]
    (name,) = index
    from_command = np.load(tmp_path / "out" / index[name]["file"])
    with compiler.load(directory / "mnist.so") as model:
        from_python = model.run({"Input3": x})[name]
    assert np.array_equal(from_command, from_python)


@pytest.mark.parametrize("threads", [1, 2])
def test_verify(directory: Path, threads: int) -> None:
    arguments = ("verify", "mnist.so", "--model", "mnist.onnx", "--threads", threads, "--json")
    document = command.tk(*arguments, cwd=directory).json
    assert document["passed"] is True
    assert document["threads"] == threads
    assert document["outputs"][0]["needed"] <= document["outputs"][0]["tolerance"] <= 1e-4


def test_verify_layers(directory: Path) -> None:
    document = command.tk(
        "verify", "mnist.so", "--model", "mnist.onnx", "--layers", "--json", cwd=directory
    ).json
    assert len(document["layers"]) >= 2
    assert all(one["needed"] <= one["tolerance"] for one in document["layers"])


def test_verify_against_another_model(directory: Path, tmp_path: Path) -> None:
    """Other weights in a model of the same shape: the library is wrong, and verify says so."""
    import onnx
    from onnx import numpy_helper

    proto = onnx.load(directory / "mnist.onnx")
    largest = max(proto.graph.initializer, key=lambda one: len(one.raw_data))
    changed = numpy_helper.from_array(numpy_helper.to_array(largest) * np.float32(1.01), largest.name)
    largest.CopyFrom(changed)
    onnx.save(proto, tmp_path / "other.onnx")
    result = command.tk("verify", directory / "mnist.so", "--model", tmp_path / "other.onnx")
    assert result.code == 6
    assert "NOT within tolerance" in result.out


def test_bench(directory: Path) -> None:
    arguments = ("bench", "mnist.so", "--threads", "2", "--seconds", "0.2", "--json")
    document = command.tk(*arguments, cwd=directory).json
    assert document["threads"] == 2
    assert document["target"] == "cpu"
    assert 0 < document["p50_ms"] <= document["p90_ms"] <= document["p99_ms"]
    assert document["runs"] >= 10


def test_inspect_and_check(directory: Path) -> None:
    model = command.tk("inspect", "mnist.onnx", "--json", cwd=directory).json
    assert {one["op"] for one in model["ops"]} >= {"Conv", "Relu", "MaxPool"}
    library = command.tk("inspect", "mnist.so", "--kernels", "--json", cwd=directory).json
    assert all(one["func"] and one["trace"] for one in library["kernels"])
    assert [one for one in library["kernels"] if one["kind"] == "opaque"] == []
    checked = command.tk("inspect", "mnist.so", "--check", cwd=directory)
    assert checked.code == 0, checked.err
    assert "kernels replay to the same text" in checked.out
    assert "# trace of kernel" not in checked.out
    document = command.tk("inspect", "mnist.so", "--check", "--json", cwd=directory).json
    assert [(one["replays"], one["trace"]) for one in document["kernels"]] == [(True, "")] * len(
        library["kernels"]
    )


def test_targets(directory: Path) -> None:
    document = command.tk("targets", "--json", cwd=directory).json
    assert document[0]["name"] == "cpu"
    assert document[0]["compiles"]["answer"] == "yes"


def test_demo_on_a_small_network(tmp_path: Path) -> None:
    result = command.tk("demo", "mnist", "--directory", "d", cwd=tmp_path)
    assert result.code == 0, result.err
    assert "$ tk compile d/mnist.onnx -o d/mnist.so --threads 1" in result.out
    assert "worst error" in result.out
    assert (tmp_path / "d" / "mnist.so").exists()
    assert list((tmp_path / "d" / "outputs").glob("*.npy"))


@pytest.mark.slow
def test_kill_at_any_moment_leaves_the_old_library_or_the_new(directory: Path, tmp_path: Path) -> None:
    """Fifty kills at random moments of a compile that replaces a library by one for two threads."""
    library, model = tmp_path / "model.so", directory / "mnist.onnx"
    old = (directory / "mnist.so").read_bytes()
    assert command.tk("compile", model, "-o", "new.so", "--threads", "2", cwd=tmp_path).code == 0
    new = (tmp_path / "new.so").read_bytes()
    assert new != old
    argv = [sys.executable, "-m", "toolchain", "compile", str(model), "-o", str(library), "--threads", "2"]
    started = time.monotonic()
    subprocess.run(argv, env=environment(), capture_output=True, check=True)
    usual = time.monotonic() - started
    moments = random.Random(0)
    outcomes = set()
    for _ in range(50):
        library.write_bytes(old)
        child = subprocess.Popen(
            argv,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(moments.uniform(0.3, 1.1) * usual)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        found = library.read_bytes()
        assert found in (old, new)
        outcomes.add(found == new)
    assert outcomes == {True, False}, "the kills did not hit both before and after the end"
    assert command.tk("compile", model, "-o", library, "--threads", "2").code == 0
    assert library.read_bytes() == new


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (("compile", "mnist.onnx", "-o", "buidl/m.so"), "buidl"),
        (("compile", "mnist.onnx", "--target", "cpu,opencl-cpu", "-o", "buidl/deep/libs"), "buidl"),
        (("compile", "mnist.onnx", "--emit", "source", "-o", "buidl/m"), "buidl"),
        (("zoo", "make", "mnist", "-o", "buidl/deep/m.onnx"), "buidl"),
        (("zoo", "fetch", "mnist", "-o", "buidl/m.onnx"), "buidl"),
        (("image", "render", "cpu", "-o", "buidl/context"), "buidl"),
        (("image", "sbom", "cpu", "-o", "buidl/sbom.json"), "buidl"),
        (("image", "bundle", "export", "cpu", "-o", "buidl/cpu.tar"), "buidl"),
        (("image", "publish", "cpu", "--evidence", "buidl/evidence.json"), "buidl"),
        (("doctor", "--capture", "buidl/here"), "buidl"),
    ],
)
def test_a_folder_that_does_not_exist_is_not_made(
    directory: Path, words: tuple[str, ...], folder: str, tmp_path: Path
) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "mnist.onnx").symlink_to(directory / "mnist.onnx")
    result = command.tk(*words, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"error: the folder of the result does not exist\nwhere: {words[-2]} buidl/")
    assert "did you mean 'build'?; or make it: `mkdir -p buidl" in result.err
    assert not (tmp_path / folder).exists()


@pytest.mark.parametrize(
    "words",
    [
        ("zoo", "make", "mnist", "-o", "."),
        ("zoo", "fetch", "mnist", "-o", "."),
        ("image", "sbom", "cpu", "-o", "."),
        ("image", "bundle", "export", "cpu", "-o", "."),
        ("image", "publish", "cpu", "--evidence", "."),
        ("doctor", "--capture", "."),
    ],
)
def test_a_folder_is_no_file_to_write(words: tuple[str, ...], tmp_path: Path) -> None:
    result = command.tk(*words, cwd=tmp_path)
    said = f"error: the output is a directory\nwhere: {words[-2]} .\nhint: name a file in it\n"
    assert (result.code, result.out, result.err) == (2, "", said)


def test_a_folder_as_a_model_says_what_is_in_it(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
    assert "hint: in it are: a.onnx, b.onnx" in command.tk("inspect", ".", cwd=tmp_path).err
    (tmp_path / "saved_model.pb").touch()
    assert "tf2onnx.convert --saved-model . " in command.tk("compile", ".", cwd=tmp_path).err
