"""The CMake and pkg-config files of a package: its README's own commands, in a folder that was moved.

The folder's new path has blanks in it. The oracle is numpy.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support import command
from tests.support.onnx_models import model

pytestmark = pytest.mark.slow
MODULE = "tk_model_scaled"
VERSION = "1.4.2"
WEIGHTS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
X = np.linspace(-3, 5, 6, dtype=np.float32).reshape(2, 3)
_OLDEST_CMAKE = (3, 18)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """A package of relu(x @ weights), where it was made."""
    folder = tmp_path_factory.mktemp("library")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    onnx.save(model(nodes, {"x": X}, ["y"], {"w": WEIGHTS}), folder / "scaled.onnx")
    words = ("scaled.onnx", "-o", "package", "--package-version", VERSION)
    done = command.tk("package", *words, cwd=folder)
    assert done.code == 0, done.err
    return folder / "package"


@pytest.fixture
def moved(made: Path, tmp_path: Path) -> Iterator[Path]:
    """The same in another place, while the first one has nothing any more."""
    place = tmp_path / "other place" / f"of {MODULE}"
    shutil.copytree(made, place)
    aside = made.with_name("aside")
    made.rename(aside)
    try:
        (place / "inputs.raw").write_bytes(X.tobytes())
        yield place
    finally:
        aside.rename(made)


def run(argv: Sequence[object], folder: Path) -> str:
    done = subprocess.run(list(map(str, argv)), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def commands_of_readme(folder: Path, word: str) -> str:
    """The lines for a shell of the README's block that has this word."""
    blocks = re.findall(r"(?:^    .*\n)+", (folder / "README.md").read_text(), re.MULTILINE)
    (block,) = (one for one in blocks if word in one)
    return "".join(f"{line.strip()}\n" for line in block.splitlines())


def assert_result(folder: Path) -> None:
    found = np.frombuffer((folder / "outputs.raw").read_bytes(), np.float32).reshape(2, 4)
    np.testing.assert_allclose(found, np.maximum(X @ WEIGHTS, 0), rtol=1e-6, atol=1e-6)


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"not run: {program} is not installed")


def need_cmake() -> None:
    need("cmake")
    version = re.search(r"(\d+)\.(\d+)", run(["cmake", "--version"], Path()))
    assert version is not None
    if (int(version[1]), int(version[2])) < _OLDEST_CMAKE:
        pytest.skip(f"not run: cmake {version[0]} is older than {'.'.join(map(str, _OLDEST_CMAKE))}")


def test_plain_commands(moved: Path) -> None:
    run(["sh", "-euc", commands_of_readme(moved, "cc examples/run_model.c")], moved)
    assert_result(moved)


def test_cmake_builds_the_examples(moved: Path) -> None:
    """Both programs run, also from elsewhere and without LD_LIBRARY_PATH."""
    need_cmake()
    run(["sh", "-euc", commands_of_readme(moved, "cmake -S")], moved)
    assert_result(moved)
    (moved / "outputs.raw").unlink()
    script = f'"$1/build/run_model" "$1/lib/lib{MODULE}.so" < "$1/inputs.raw" > "$1/outputs.raw"'
    run(["sh", "-euc", script, "run", moved], Path("/"))
    assert_result(moved)


@pytest.mark.parametrize(
    ("asked", "found"),
    [("", True), (VERSION, True), (f"{VERSION} EXACT", True), ("1.4", False), ("2", False)],
)
def test_cmake_compares_versions(moved: Path, asked: str, found: bool) -> None:
    """One build is another one's substitute by its whole version only; nothing is compiled."""
    need_cmake()
    project = moved / "a project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(asks NONE)\nfind_package({MODULE} {asked} QUIET)\n"
        f"find_package({MODULE} {asked} QUIET)\n"  # twice: a target is made once
        f'message(STATUS "found=${{{MODULE}_FOUND}} version=${{{MODULE}_VERSION}}")\n'
        f"if(TARGET {MODULE}::{MODULE})\n"
        f"  get_target_property(place {MODULE}::{MODULE} IMPORTED_LOCATION)\n"
        f'  message(STATUS "place=${{place}}")\nendif()\n'
    )
    said = run(["cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={moved}"], moved)
    if not found:
        assert "found=0" in said
        assert "place=" not in said
        return
    assert f"found=1 version={VERSION}" in said
    assert f"place={moved}/lib/lib{MODULE}.so" in said


def test_pkg_config_builds_the_linked_example(moved: Path) -> None:
    need("pkg-config")
    run(["sh", "-euc", commands_of_readme(moved, "pkg-config --cflags")], moved)
    assert_result(moved)
    folder = f"PKG_CONFIG_PATH={moved}/lib/pkgconfig"
    assert run(["env", folder, "pkg-config", "--modversion", MODULE], moved).strip() == VERSION
