"""Every error becomes a message on standard error and its exit code, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import compiler
from tests.support.command import Result, environment
from tests.support.processes import ended
from toolchain import main

Tk = Callable[..., Result]


@pytest.mark.parametrize(
    ("arguments", "code", "first", "hint"),
    [
        (("compil", "x"), 2, "error: no such command 'compil'", "hint: did you mean 'compile'"),
        (("frobnicate",), 2, "error: no such command 'frobnicate'", "hint: see `tk --help`"),
        (("compile",), 2, "error: missing argument 'MODEL'", "hint: see `tk compile --help`"),
        (
            ("compile", "x.onnx", "--targt", "cpu"),
            2,
            "error: no such option: --targt",
            "did you mean '--target'?",
        ),
        (("compile", "x.onnx", "--threads", "0"), 2, "error: invalid value for '--threads'", ""),
        (("compile", "x.onnx", "--threads", "many"), 2, "error: invalid value for '--threads'", ""),
        (("compile", "x.onnx", "--shape", "x"), 2, "error: expected NAME=VALUE, found `x`", ""),
        (("compile", "x.onnx", "--shape", "x=1,a"), 2, "error: cannot read the value of `x`", ""),
        (("compile", "x.onnx", "--shape", "x=-1"), 2, "error: cannot read the value of `x`", ""),
        (("compile", "x.onnx", "--bind", "x=1", "--bind", "x=2"), 2, "error: `x` is given twice", ""),
        (("compile", "x.onnx", "--bind", "x=[1,"), 2, "error: cannot read the value of `x`", ""),
        (
            ("compile", "x.onnx", "--emit", "libary"),
            2,
            "error: cannot emit `libary`",
            "did you mean 'library'?",
        ),
        (("compile", "x.onnx"), 3, "error: cannot read a file", "hint: check the path"),
        (("compile", "resnet50"), 3, "error: cannot read a file", "hint: `tk zoo make resnet50`"),
        (("compile", "."), 3, "error: expected a file, found a directory", ""),
        (("run", "x.so"), 3, "error: cannot read a file", "hint: check the path"),
        (
            ("run", "x.so", "--format", "npx"),
            2,
            "error: cannot write files of the format `npx`",
            "did you mean 'npz'?",
        ),
        (("verify", "x.so"), 2, "error: missing option '--model'", ""),
        (("bench", "x.so"), 3, "error: cannot read a file", ""),
        (("inspect", "x.so"), 3, "error: cannot read a file", ""),
        (("zoo", "make", "resnet5"), 2, "error: no network is called 'resnet5'", "did you mean 'resnet50'?"),
        (
            ("image", "lint", "x", "--format", "sarf"),
            2,
            "error: invalid value for '--format': 'sarf' is not one of 'text', 'json', 'sarif', 'github'",
            "did you mean 'sarif'?",
        ),
        (("zoo", "mak"), 2, "error: no such command 'mak'", "hint: did you mean 'make'"),
        (("completion", "bsh"), 2, "error: no completion for the shell `bsh`", "did you mean 'bash'?"),
        (("demo", "resnet5"), 2, "error: no network is called 'resnet5'", ""),
    ],
)
def test_message_and_code(tk: Tk, arguments: tuple[str, ...], code: int, first: str, hint: str) -> None:
    result = tk(*arguments)
    assert result.code == code, result.err
    assert result.out == ""
    assert result.err.startswith(first)
    assert hint in result.err
    assert "Traceback" not in result.err


def test_no_arguments_show_the_help_and_fail(tk: Tk) -> None:
    result = tk()
    assert result.code == 2
    assert "compile" in result.err
    assert result.out == ""


def test_debug_shows_the_traceback_wherever_it_stands(tk: Tk) -> None:
    for arguments in (("--debug", "compile", "x"), ("compile", "x", "--debug"), ("compile", "--debug", "x")):
        result = tk(*arguments)
        assert result.code == 3
        assert "Traceback" in result.err
        assert "\nerror: cannot read a file\n" in result.err


def test_debug_by_environment(tk: Tk) -> None:
    assert "Traceback" in tk("compile", "x", env={"TK_DEBUG": "1"}).err
    bad = tk("compile", "x", env={"TK_DEBUG": "perhaps"})
    assert (bad.code, bad.err.splitlines()[0]) == (2, "error: TK_DEBUG is neither on nor off")


def test_debug_after_two_dashes_is_an_argument(tk: Tk) -> None:
    result = tk("compile", "--", "--debug")
    assert (result.code, "Traceback" in result.err) == (3, False)


KINDS = ["UsageError", "BadInputError", "HostError", "BuildError", "WrongResultError", "CrashError"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_its_code(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = getattr(compiler, kind)("what", where="where", why="one\ntwo", hint="do")
    code, err = run_raising(error, monkeypatch, capsys)
    assert code == error.default_code
    assert err == "error: what\nwhere: where\nwhy: one\n  two\nhint: do\n"


def test_unexpected_exception(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = run_raising(ZeroDivisionError("division"), monkeypatch, capsys)
    assert code == 70
    assert err.startswith("error: unexpected ZeroDivisionError: division\n")
    assert "please report it" in err
    assert "`--debug`" in err
    assert "Traceback" not in err


def test_internal_error_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = run_raising(compiler.InternalError("promise broken"), monkeypatch, capsys)
    assert code == 70
    assert "please report it" in err


def test_a_file_of_a_like_name_is_meant(tk: Tk, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    result = tk("compile", str(tmp_path / "modl.onnx"))
    assert (result.code, result.err.splitlines()[-1]) == (3, "hint: did you mean 'model.onnx'?")


def test_out_of_memory_is_the_machines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = run_raising(MemoryError(), monkeypatch, capsys)
    assert (code, err.splitlines()[0]) == (4, "error: out of memory")


def test_interrupt_in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_raising(KeyboardInterrupt(), monkeypatch, capsys) == (130, "interrupted\n")


def run_raising(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Exit code and standard error of a command that raises `error`."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command()
    def command() -> None:
        raise error

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(main, "tk_app", lambda _names: app)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return main.main([]), capsys.readouterr().err
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_WAITING = """
import sys, time
from toolchain import main
from toolchain.commands import targets
import compiler
def wait():
    print("waiting", flush=True)
    from compiler.core import process
    process.run([sys.executable, "-c", "import time; time.sleep(60)"])
compiler.list_targets = wait
sys.exit(main.main(["targets"]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_and_its_children(number: signal.Signals, code: int) -> None:
    waiting = subprocess.Popen(
        [sys.executable, "-c", _WAITING],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "waiting\n"
    children = wait_for_child(waiting.pid)
    waiting.send_signal(number)
    _, err = waiting.communicate(timeout=20)
    assert waiting.returncode == code, err
    assert "Traceback" not in err
    assert all(ended(child) for child in children)


def wait_for_child(pid: int) -> list[int]:
    for _ in range(1000):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if text:
            return [int(one) for one in text]
        signal.sigtimedwait([], 0.01)
    raise AssertionError("no child was started")


@pytest.mark.parametrize(
    "words", [("targets",), ("zoo", "list"), ("image", "list"), ("zoo", "list", "--json")]
)
def test_a_reader_that_stops_is_no_error(words: tuple[str, ...]) -> None:
    """As behind `| head -1`."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "toolchain", *words],
        env=environment(), stdout=write, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_nobody_listening_on_standard_error_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "toolchain", "compile", "nowhere.onnx", "--json"],
        env=environment(), stdout=subprocess.PIPE, stderr=write, text=True, check=False,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (3, 3)


def test_full_disk_on_standard_output() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "toolchain", "zoo", "list"],
            env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 4
    assert done.stderr.startswith("error: cannot write to standard output\nwhy: No space left on device")
    assert "Traceback" not in done.stderr
