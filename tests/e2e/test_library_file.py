"""The file that a compile makes: what it needs, how large it is, where it refuses to run."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.core.process import run
from tests.support.command import tk
from toolchain import zoo

# With glibc before 2.34 threads and dlopen are libraries of their own.
ALLOWED = {"linux-vdso", "ld-linux-x86-64", "ld-linux-aarch64", "libc", "libm", "libstdc++", "libgcc_s",
           "libpthread", "libdl"}  # fmt: skip
MOST_BESIDE_CONSTANTS = 2_000_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """mnist.onnx and mnist.so."""
    directory = tmp_path_factory.mktemp("library")
    zoo.make("mnist", directory / "mnist.onnx")
    assert tk("compile", "mnist.onnx", cwd=directory).code == 0
    return directory


def assert_self_contained(library: Path) -> None:
    listed = run(["ldd", str(library)])
    assert listed.returncode == 0, listed.stderr
    names = {Path(line.split()[0]).name.partition(".so")[0] for line in listed.stdout.splitlines()}
    assert names <= ALLOWED
    assert "not found" not in listed.stdout


def test_it_needs_the_runtime_libraries_of_the_language_only(place: Path) -> None:
    assert_self_contained(place / "mnist.so")


def test_it_is_hardly_larger_than_its_constants(place: Path) -> None:
    report = compiler.inspect_library(place / "mnist.so")
    stored = sum(value.nbytes for value in _constants(place / "mnist.onnx"))
    assert report.constant_bytes <= stored + 64 * len(_constants(place / "mnist.onnx")) + 64 * 1024
    assert report.library_bytes <= report.constant_bytes + MOST_BESIDE_CONSTANTS
    assert report.library_bytes == (place / "mnist.so").stat().st_size


def _constants(model: Path) -> list[np.ndarray]:
    import onnx
    from onnx import numpy_helper

    return [numpy_helper.to_array(item) for item in onnx.load(model).graph.initializer]


@pytest.mark.parametrize("command", [("run",), ("verify", "--model", "mnist.onnx"), ("bench",)])
def test_a_machine_without_a_feature_is_told_its_name(place: Path, command: tuple[str, ...]) -> None:
    name, *options = command
    done = tk(name, "mnist.so", *options, cwd=place, env={"TK_CPU_FEATURES": "-sse4.2"})
    assert done.code == 4
    assert re.match(r"error: .*lacks: sse4\.2$", done.err.splitlines()[0])
    assert "Traceback" not in done.err
    assert tk("inspect", "mnist.so", cwd=place, env={"TK_CPU_FEATURES": "-sse4.2"}).code == 0


def test_the_command_in_the_refusal_makes_a_library_that_runs(place: Path, tmp_path: Path) -> None:
    masked = {"TK_CPU_FEATURES": "-avx2"}
    if "avx2" not in compiler.inspect_library(place / "mnist.so").features:
        pytest.skip("this machine has no avx2 to hide")
    done = tk("run", "mnist.so", cwd=place, env=masked)
    command = re.search(r"tk (compile .*) -o MODEL\.so", done.err)
    assert command is not None, done.err
    words = command[1].replace("MODEL.onnx", str(place / "mnist.onnx")).split()
    assert tk(*words, "-o", "other.so", cwd=tmp_path).code == 0
    done = tk("verify", "other.so", "--model", place / "mnist.onnx", cwd=tmp_path, env=masked)
    assert done.code == 0, done.err


@pytest.mark.slow
def test_more_constants_than_a_protobuf_message_holds(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 8 << 30:
        pytest.skip("needs 8 GB of free disk space")
    model, library = tmp_path / "m.onnx", tmp_path / "m.so"
    zoo.make("perceptron-2gb", model)
    done = tk("compile", model, "-o", library, "--json")
    assert done.code == 0, done.err
    report = done.json
    assert report["constant_bytes"] > 2_300_000_000
    assert report["library_bytes"] <= report["constant_bytes"] + MOST_BESIDE_CONSTANTS
    assert_self_contained(library)
    verified = tk("verify", library, "--model", model, "--runs", "1", "--json", timeout=600)
    assert verified.code == 0, verified.err
    checked = tk("inspect", library, "--check")
    assert checked.code == 0, checked.err


@pytest.mark.perf
def test_the_first_inference_comes_at_once(tmp_path: Path) -> None:
    zoo.make("resnet50", tmp_path / "m.onnx")
    compiler.compile_model(tmp_path / "m.onnx", compiler.CompileOptions(output=tmp_path / "m.so"))
    x = np.zeros((1, 3, 224, 224), np.float32)
    compiler.load(tmp_path / "m.so")  # imports what loading needs
    assert min(_first_run(tmp_path / "m.so", tmp_path / f"{number}.so", x) for number in range(3)) < 0.1


def _first_run(library: Path, fresh: Path, x: np.ndarray) -> float:
    """Seconds from loading a copy that nobody has loaded to the end of its first run."""
    shutil.copy(library, fresh)
    started = time.perf_counter()
    with compiler.load(fresh) as model:
        model.run({model.inputs[0].name: x})
        return time.perf_counter() - started


@pytest.mark.perf
def test_a_compile_from_the_cache_is_quick(tmp_path: Path) -> None:
    zoo.make("resnet50", tmp_path / "m.onnx")
    tk("compile", "m.onnx", cwd=tmp_path)
    started = time.perf_counter()
    assert tk("compile", "m.onnx", "--json", cwd=tmp_path).json["cached"]
    assert time.perf_counter() - started < 1.5


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("-o", "."), "the output is a directory", 2),
        (("-o", ""), "the output is a directory", 2),
        (("-o", "m.onnx"), "would replace the model", 2),
        (("-o", "../m/m.onnx"), "would replace the model", 2),
        (("-o", "m.onnx/m.so"), "cannot write", 4),
        (("-o", "pipe"), "cannot write", 4),
        (("--emit", "object", "-o", "m.onnx"), "go into a directory", 2),
        (("--emit", "source", "-o", "m.onnx"), "go into a directory", 2),
    ],
)
def test_what_cannot_be_the_output_is_refused(
    place: Path, tmp_path: Path, arguments: tuple[str, ...], words: str, code: int
) -> None:
    directory = tmp_path / "m"
    directory.mkdir()
    shutil.copy(place / "mnist.onnx", directory / "m.onnx")
    os.mkfifo(directory / "pipe")
    done = tk("compile", "m.onnx", *arguments, cwd=directory)
    assert done.code == code, done.err
    assert words in done.err
    assert sorted(path.name for path in directory.iterdir()) == ["m.onnx", "pipe"]
    assert (directory / "m.onnx").read_bytes() == (place / "mnist.onnx").read_bytes()
    assert (directory / "pipe").is_fifo()


def test_verify_says_that_the_model_is_another_one(place: Path, tmp_path: Path) -> None:
    shutil.copy(place / "mnist.onnx", tmp_path / "same.onnx")
    (tmp_path / "other.onnx").write_bytes((place / "mnist.onnx").read_bytes() + b"\x32\x01x")  # doc_string
    for name, said in (("same.onnx", False), ("other.onnx", True)):
        done = tk("verify", place / "mnist.so", "--model", name, cwd=tmp_path)
        assert done.code == 0, done.err
        assert ("another model file" in done.err) == said
