"""Where a command does its work: options that exclude each other, and machines that lack something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Result

Tk = Callable[..., Result]


@pytest.fixture
def model(tk: Tk, tmp_path: Path) -> Path:
    assert tk("zoo", "make", "mnist").code == 0
    return tmp_path / "mnist.onnx"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--frozen"], "--frozen has no use here"),
        (["--image", "cpu", "--no-container"], "exclude each other"),
        (["--with", "setup.sh"], "--with has no use here"),
        (["--image", "r.example/a:1", "--with-pip", "rich"], "named by its reference is taken as it is"),
    ],
)
def test_options_that_make_no_sense(tk: Tk, model: Path, options: list[str], said: str) -> None:
    done = tk("compile", model, *options)
    assert done.code == 2
    assert said in done.err


def test_an_image_without_an_engine_is_the_host_s_trouble(tk: Tk, model: Path, tmp_path: Path) -> None:
    env = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = tk("compile", model, "--image", "cpu", env=env)
    assert done.code == 4
    assert done.err.count("\n") == 1
    assert "no container engine answers" in done.err


def test_an_image_with_additions_is_the_one_that_build_makes(tk: Tk, model: Path, tmp_path: Path) -> None:
    env = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    added = ("--with-apt", "htop", "--with-pip", "rich==13.7.1")
    built = tk("image", "build", "cpu", *added, "--dry-run", "--json", env=env)
    used = tk("compile", model, "--image", "cpu", *added, "--explain", "--json", env=env)
    assert used.code == 0, used.err
    assert used.json["job"]["image"] == built.json["images"][0]["reference"]
    pushed = tk("image", "publish", "cpu", *added, "--registry", "r.example", "--dry-run", "--json")
    assert pushed.json["images"][0]["reference"] == f"r.example/{used.json['job']['image']}"


def test_without_compiler_and_engine_the_compiler_is_what_is_missing(
    tk: Tk, model: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    env = {"PATH": str(empty), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = tk("compile", model, env=env)
    assert done.code == 4
    assert "no C++ compiler" in done.err


def test_who_asks_for_an_image_is_told_of_the_engine(tk: Tk, model: Path, tmp_path: Path) -> None:
    env = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "TK_DPCXX": "", "PATH": "/usr/bin:/bin"}
    done = tk("compile", model, "--target", "sycl-nvidia", "--build", env=env)
    assert done.code == 4
    assert "no container engine answers" in done.err
    assert "this machine itself has no toolchain for sycl-nvidia" in done.err


def test_a_view_in_an_image_keeps_its_options(tk: Tk, model: Path, tmp_path: Path) -> None:
    env = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    words = ("--image", "cpu", "--explain", "--no-profile", "--arch", "x86-64-v3", "--json")
    done = tk("view", model, *words, env=env)
    assert done.code == 0, done.err
    command = done.json["job"]["command"]
    assert command[0] == "view"
    assert {"--no-profile", "--arch=x86-64-v3", "--json", "--no-container"} <= set(command)
    assert not [word for word in command if word.startswith("--output")]
    page = tk("view", model, "--image", "cpu", "--explain", env=env)
    assert "--output=/" in page.out


def test_a_missing_engine_is_said_once(tk: Tk, model: Path, tmp_path: Path) -> None:
    env = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "PATH": "/usr/bin:/bin"}
    done = tk("compile", model, "--target", "sycl-nvidia", "--explain", env=env)
    assert done.code == 0, done.err
    assert done.err.count("no container engine answers") == 1


def test_the_options_are_those_of_every_command_that_can_run_elsewhere(tk: Tk) -> None:
    for command in ("compile", "run", "verify", "bench", "view"):
        assert "--image" in tk(command, "--help", env={"COLUMNS": "200"}).out, command
