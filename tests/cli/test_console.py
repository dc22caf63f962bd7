"""Tables, JSON, colours, progress, file names, completion."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler import ExitCode
from tests.support.command import Result, environment
from toolchain import console, progress
from toolchain.names import file_name
from toolchain.progress import Phase, Unit, count_text
from toolchain.settings import console_settings

Tk = Callable[..., Result]


def test_table_aligns_numbers_right_and_text_left() -> None:
    text = console.table(("name", "ms", "ok"), [("a", 1.5, True), ("longer", 12345, False)])
    assert text.splitlines() == ["name        ms  ok", "a          1.5  yes", "longer  12,345  no"]


def test_table_without_rows_is_its_header() -> None:
    assert console.table(("a", "b"), []) == "a  b"


@dataclass(frozen=True, slots=True)
class Record:
    path: Path
    values: tuple[object, ...]


def test_json_takes_records_numpy_and_infinities() -> None:
    record = Record(
        Path("a/b"), (np.float32(0.5), np.int64(3), math.nan, math.inf, ExitCode.HOST, None, True)
    )
    document = console.jsonable(record)
    assert json.loads(json.dumps(document, allow_nan=False)) == {
        "path": "a/b",
        "values": [0.5, 3, "nan", "inf", 4, None, True],
    }


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (102_400_000, "102.4 MB")]
)
def test_size(count: int, text: str) -> None:
    assert console.size(count) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "terminal", "color", "interactive"),
    [
        ({}, True, True, True),
        ({}, False, False, False),
        ({"NO_COLOR": "1"}, True, False, True),
        ({"FORCE_COLOR": "1"}, False, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False, True),
        ({"TERM": "dumb"}, True, False, False),
        ({"NO_COLOR": ""}, True, True, True),
    ],
)
def test_colour(env: dict[str, str], terminal: bool, color: bool, interactive: bool) -> None:
    found = console_settings(Terminal() if terminal else io.StringIO(), env)
    assert (found.color, found.interactive) == (color, interactive)


def test_progress_shows_on_a_terminal_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(console.sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    with progress.progress_bar("compiling x.onnx [3]") as tell:
        tell("kernels", 1, 4)
        wait_for("1 of 4", screen)
        tell("kernels", 3.5, 4)
        tell("link", 0, 0)
        wait_for("link", screen)
    text = screen.getvalue()
    assert "compiling x.onnx [3]: kernels" in text
    assert " left" in text
    assert "\x1b[38" not in text
    assert text.endswith("\x1b[2K")
    assert "\x1b[?25h" in text, "the cursor is visible again"


def wait_for(text: str, screen: Terminal) -> None:
    for _ in range(1000):
        if text in screen.getvalue():
            return
        time.sleep(0.01)
    pytest.fail(f"no {text!r} in {screen.getvalue()!r}")


def test_time_left_is_what_the_rest_takes_at_the_same_speed() -> None:
    state = Phase("kernels", done=2, total=8, started=100.0, told=110.0)
    assert state.seconds_left(110.0) == 30.0
    assert state.seconds_left(125.0) == 15.0
    assert state.seconds_left(200.0) == 0.0
    assert Phase("kernels", 0, 8, 100.0, 110.0).seconds_left(110.0) is None
    assert Phase("link", 5, 0, 100.0, 110.0).seconds_left(110.0) is None


@pytest.mark.parametrize(
    ("unit", "done", "total", "text"),
    [
        ("steps", 11.5, 57, "11 of 57"),
        ("part", 0.25, 1, "25 %"),
        ("bytes", 1.5e6, 2e6, "1.5 MB of 2.0 MB"),
        ("bytes", 1.5e6, 0, "1.5 MB"),
        ("steps", 0, 0, ""),
    ],
)
def test_count(unit: Unit, done: float, total: float, text: str) -> None:
    assert count_text(Phase("x", done, total, 0.0, 0.0), unit) == text


def test_progress_is_silent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(console.sys, "stderr", log)
    with progress.progress_bar("compiling") as tell:
        tell("kernels", 1, 4)
        time.sleep(0.05)
    assert log.getvalue() == ""


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("x", "x"),
        ("gpu_0/data_0", "gpu_0%2Fdata_0"),
        ("images:0", "images%3A0"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("", "%"),
        ("%2F", "%252F"),
        ("ä", "%C3%A4"),
        ("a\0b", "a%00b"),
    ],
)
def test_file_names(name: str, file: str) -> None:
    assert file_name(name) == file


@given(st.lists(st.text(max_size=300), unique=True, max_size=8))
def test_file_names_are_safe_and_differ(names: list[str]) -> None:
    encoded = [file_name(name) for name in names]
    assert len(set(encoded)) == len(names)
    assert all(
        len(one) <= 180 and one.isascii() and "/" not in one and one not in ("", ".", "..") for one in encoded
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["comp"], ["compile", "completion"]),
        (["compile", "--ta"], ["--target"]),
        (["zoo", ""], ["list", "make", "fetch"]),
        (["zoo", "make", "vgg16"], ["vgg16", "vgg16-bn"]),
        (["compile", "mod"], []),
        (["cache", "c"], ["clear"]),
        (["cache", "prune", "--max"], ["--max-size"]),
        (["zoo", "make", "mnist", "-o", "m"], []),
        (["compile", "--json", "--timi"], ["--timings"]),
        (["--de"], ["--debug"]),
    ],
)
def test_completion_completes(tk: Tk, words: list[str], expected: list[str]) -> None:
    assert tk("complete-words", "--", *words).out.splitlines() == expected


def test_completion_works_in_bash(tk: Tk, tmp_path: Path) -> None:
    """The script itself, with `tk` as a function and the variables that bash sets at a tab."""
    (tmp_path / "script").write_text(tk("completion", "bash").out)
    program = (
        f'tk() {{ "{sys.executable}" -m toolchain "$@"; }}; source ./script; '
        "COMP_WORDS=(tk zoo ma); COMP_CWORD=2; _tk_complete; echo ${COMPREPLY[@]}"
    )
    argv = ["bash", "-c", program]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "make\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_tk(tk: Tk, shell: str) -> None:
    result = tk("completion", shell)
    assert result.code == 0
    assert "tk complete-words -- " in result.out


def test_completion_without_a_shell_is_for_the_user_s(tk: Tk) -> None:
    assert tk("completion", env={"SHELL": "/usr/bin/fish"}).out == tk("completion", "fish").out
    unknown = tk("completion", env={"SHELL": "/bin/tcsh"})
    assert unknown.code == 2
    assert "`tcsh`" in unknown.err
    assert "choose bash, zsh or fish" in unknown.err


def test_a_group_without_a_command_lists_its_commands(tk: Tk) -> None:
    result = tk("zoo")
    assert result.code == 2
    assert "choose list or make or fetch" in result.err


def test_zoo_list_speaks_json(tk: Tk) -> None:
    names = [one["name"] for one in tk("zoo", "list", "--json").json]
    assert {"resnet50", "vgg19", "mnist", "unet"} <= set(names)


def test_version(tk: Tk) -> None:
    assert tk("--version").out == "tk 0.1.0\n"
