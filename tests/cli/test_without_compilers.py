"""A machine without any compiler and without a container engine: what still works, and what is said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from compiler.targets import all_targets
from tests.support import command

DEVICES = [one.name for one in all_targets() if one.name != "cpu"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bare")
    assert command.tk("zoo", "make", "mnist", cwd=made).code == 0
    return made


@pytest.fixture(scope="module")
def bare(directory: Path) -> Mapping[str, str]:
    (directory / "programs").mkdir()
    nowhere = str(directory / "nowhere")
    return {
        "PATH": str(directory / "programs"),
        "DOCKER_HOST": f"unix://{nowhere}.sock",
        "TK_ROCM_ROOT": nowhere,
        "TK_CACHE_DIR": str(directory / "cache"),
    }


def test_source_of_every_target(directory: Path, bare: Mapping[str, str]) -> None:
    args = ("--target", ",".join(["cpu", *DEVICES]), "--emit", "source", "-o", "out", "--json")
    done = command.tk("compile", "mnist.onnx", *args, cwd=directory, env=bare)
    assert done.code == 0, done.err
    assert [one["target"] for one in done.json] == ["cpu", *DEVICES]
    for name in ["cpu", *DEVICES]:
        folder = directory / "out" / f"mnist.{name}.sources"
        assert "tk_plan_model" in (folder / "host.cpp").read_text()
        kernels = [path for path in folder.iterdir() if path.name != "host.cpp"]
        assert "tk_k0" in "".join(path.read_text() for path in kernels), name


def test_stages_before_the_last_need_no_compiler(directory: Path, bare: Mapping[str, str]) -> None:
    args = ("--stop-after", "host", "--dump", "dump")
    done = command.tk("compile", "mnist.onnx", *args, cwd=directory, env=bare)
    assert done.code == 0, done.err
    assert list((directory / "dump").rglob("*.cpp"))


def test_every_target_is_told_its_image(directory: Path, bare: Mapping[str, str]) -> None:
    """Each image is the one that `tk targets` names; the rest of the command is what was asked for."""
    images = {one["name"]: one["image"] for one in command.tk("targets", "--json", env=bare).json}
    args = ("--target", ",".join(DEVICES), "-o", "libraries")
    done = command.tk("compile", "mnist.onnx", *args, cwd=directory, env=bare)
    assert done.code == 4
    said = re.split(r"^.*target (\S+):$", done.err, flags=re.MULTILINE)
    messages = dict(zip(said[1::2], said[2::2], strict=True))
    assert list(messages) == DEVICES
    for name, message in messages.items():
        assert images[name], name
        assert f"`tk compile mnist.onnx --target {name} --image {images[name]} --build`" in message
        assert "`--emit source` needs no toolchain" in message
    assert not list((directory / "libraries").glob("*.so"))
