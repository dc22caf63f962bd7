"""A `tk` that is forked, as in most tests, does what one in a new Python does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.core.files import sha256_file
from tests.support import command
from tests.support.command import Result, environment

LINES = [
    (),
    ("--version",),
    ("image", "--help"),
    ("compil",),
    ("compile", "nothing.onnx"),
    ("compile", "nothing.onnx", "--json", "--debug"),
    ("image", "render", "cuda-11.2"),
    ("image", "lint", "-"),
    ("zoo", "make", "mnist"),
    ("compile", "mnist.onnx", "--dump", "dump"),
    ("run", "mnist.so", "--output-dir", "out", "--json"),
    ("verify", "mnist.so", "--model", "mnist.onnx"),
    ("cache",),
]
CHANGES = {"TK_JOBS": "1", "TK_DEBUG": "0", "FORCE_COLOR": "1", "NO_COLOR": ""}
_VARIES = re.compile(
    r"\d+\.\d+ (s|ms)\b|\"seconds\": [\d.e-]+|File \".*?, line \d+, in <?\w+>?\n(    .*\n)*"
    r"|(?m:^(objects|total) +\d.*)"
)
"""Times, calls on the way to tk's own, and what other tests put into the shared part of the cache."""


def type_all(run: Callable[..., Result], folder: Path, objects: Path) -> tuple[list[Result], dict[str, str]]:
    """What each line says in a folder of its own with a cache of its own, and the files that they leave.

    What compilers made is shared: neither compiles anything anew, which is not what differs.
    """
    work, cache = folder / "work", folder / "cache"
    work.mkdir(parents=True)
    cache.mkdir()
    (cache / "objects").symlink_to(objects)
    env = environment({**CHANGES, "TK_CACHE_DIR": str(cache), "HOME": str(folder)})
    done = []
    for line in LINES:
        one = run(list(line), work, env, 300, "FROM debian\nRUN apt-get install x\n")
        texts = (_VARIES.sub("", text.replace(str(folder), "")) for text in (one.out, one.err))
        done.append(Result(one.code, *texts))
    return done, {
        str(path.relative_to(work)): sha256_file(path) for path in work.rglob("*") if path.is_file()
    }


def test_forked_and_started_are_the_same(tmp_path: Path, own_cache: Path) -> None:
    assert command.tk("zoo", "make", "mnist", cwd=tmp_path).code == 0
    assert command.tk("compile", "mnist.onnx", cwd=tmp_path).code == 0
    forked, files = type_all(command.fork, tmp_path / "forked", own_cache / "objects")
    started, expected = type_all(command.start, tmp_path / "started", own_cache / "objects")
    assert {one.code for one in started} >= {0, 2, 3}
    for line, one, other in zip(LINES, forked, started, strict=True):
        assert one == other, line
    assert {"mnist.onnx", "mnist.so", "dump/README.txt"} <= files.keys()
    assert files == expected


def test_commands_do_not_meet(tmp_path: Path) -> None:
    """What one command changes in its process is not there for the next."""
    (tmp_path / "here").mkdir()
    assert command.tk("zoo", "make", "mnist", cwd=tmp_path / "here").code == 0
    assert command.tk("zoo", "make", "mnist", "--debug", cwd=tmp_path, env={"TK_DEBUG": "1"}).code == 0
    assert "Traceback" not in command.tk("compile", "nothing.onnx", cwd=tmp_path).err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "mnist.onnx"]


@pytest.mark.parametrize("variable", ["PYTHONHASHSEED", "LD_PRELOAD", "LC_ALL"])
def test_what_is_read_at_start_gets_a_new_python(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "fork", None)
    assert command.tk("--version", cwd=tmp_path, env={variable: ""}).code == 0
