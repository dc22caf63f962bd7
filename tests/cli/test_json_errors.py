"""With `--json` a command prints one document, always: also when it fails, and however it fails."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest
import typer

import compiler
from tests.support.command import Result
from toolchain import console, main
from toolchain.commands.multi_target import run_each

Tk = Callable[..., Result]
FIELDS = {"what", "where", "why", "hint", "code"}


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (("compile", "x.onnx"), 3, "cannot read a file"),
        (("compile",), 2, "missing argument 'MODEL'"),
        (("compil",), 2, "no such command 'compil'"),
        (("compile", "x.onnx", "--targt", "cpu"), 2, "no such option: --targt"),
        (("run", "x.so"), 3, "cannot read a file"),
        (("zoo", "make", "resnet5"), 2, "no network is called 'resnet5'"),
        (("image", "show", "rocm-99"), 2, ""),
        (("image", "shw"), 2, "no such command 'shw'"),
        (("image", "lint", "nowhere"), 3, "cannot read a file"),
        (("image", "bundle", "import", "nowhere", "--engine", "docker"), 3, "cannot read a file"),
        (("image", "build", "cpu", "--docker-host", "unix:///nowhere.sock"), 4, ""),
        (("image", "run", "cpu", "--docker-host", "unix:///nowhere.sock", "--", "true"), 125, "--json shows"),
        (("image", "shell", "cpu"), 125, "--json shows what would be run"),
        (("setup", "cpu", "--docker-host", "unix:///nowhere.sock"), 4, "this machine is not ready for cpu"),
        (
            ("image", "push", "cpu", "--registry", "https://r.example/team"),
            2,
            "`https://r.example/team` is no",
        ),
        (("setup", "cpu", "--open"), 2, "--json and --open exclude each other"),
    ],
)
def test_an_error_is_one_document(tk: Tk, arguments: tuple[str, ...], code: int, what: str) -> None:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    result = tk(*arguments[:end], "--json", *arguments[end:])
    assert result.code == code, result.err
    error = result.json["error"]
    assert set(error) == FIELDS
    assert error["code"] == code
    assert error["what"].startswith(what)
    assert f"error: {error['what']}" in result.err.splitlines()


def test_without_json_nothing_is_written(tk: Tk) -> None:
    assert tk("compile", "x.onnx").out == ""


def test_json_behind_two_dashes_is_for_the_program(tk: Tk) -> None:
    words = ("image", "run", "cpu", "--docker-host", "unix:///nowhere.sock", "--", "program", "--json")
    result = tk(*words)
    assert (result.code, result.out) == (125, "")


def raising(error: BaseException, before: str = "") -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command()
    def command(json: bool = False) -> None:
        if before:
            console.data_json({"result": before})
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "what"),
    [
        (ZeroDivisionError("division"), 70, "unexpected ZeroDivisionError: division"),
        (MemoryError(), 4, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (main.Terminated(), 143, "terminated"),
        (typer.Exit(7), 7, "the command failed"),
        (compiler.BuildError("refused", why="one\ntwo"), 5, "refused"),
    ],
)
def test_every_end_has_a_document(
    error: BaseException,
    code: int,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert in_process(raising(error), monkeypatch) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["error"]["what"], document["error"]["code"]) == (what, code)


def test_a_result_that_was_printed_stays_the_only_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = compiler.WrongResultError("differs")
    assert in_process(raising(error, before="report"), monkeypatch) == 6
    assert json.loads(capsys.readouterr().out) == {"result": "report"}


def in_process(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(main, "tk_app", lambda _names: app)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return main.main(["--json"])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_of_several_targets_each_failure_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"error": {"what": "said inside"}}

    def do(part: dict[str, object]) -> None:
        if part["target"] == ["a"]:
            raise compiler.BuildError("refused", where="here")
        if part["target"] == ["b"]:
            console.data_json(said)
        raise typer.Exit(5)

    with pytest.raises(typer.Exit):
        run_each(do, [{"target": [name], "json": True} for name in "abc"])
    first, second, third = json.loads(capsys.readouterr().out)
    assert first == {
        "target": "a",
        "error": {"what": "refused", "where": "here", "why": "", "hint": "", "code": 5},
    }
    assert second == {"target": "b", **said}
    assert (third["target"], third["error"]["code"]) == ("c", 5)
