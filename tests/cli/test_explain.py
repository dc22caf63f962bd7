"""`tk explain` as typed: logs, commands, browsing, a team's own records; and hints in errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler import BuildError, HostError
from tests.support.command import ROOT, Result, environment
from tests.support.screen import Screen
from toolchain.advice import advice_on, explained
from toolchain.recipes.issues_page import issues_page

Tk = Callable[..., Result]
PTXAS = "ptxas error   : Entry function 'k' uses too much shared data (0x10000 bytes, 0xc000 max)"


def test_a_log(tk: Tk, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_bytes(
        b"\x1b[32mok\x1b[0m\n\xff\xfe\n#9 1.5 \x1b[31m" + PTXAS.encode() + b"\nSegmentation fault\n"
    )
    result = tk("explain", log)
    assert result.code == 0
    for part in (
        "1. shared-memory-too-large: the first error, line 3",
        f"\n   {PTXAS}",
        "cause:",
        "evidence:",
        "fix:",
    ):
        assert part in result.out
    document = tk("explain", log, "--json").json
    assert [one["id"] for one in document["causes"]] == ["shared-memory-too-large", "segmentation-fault"]
    assert document["causes"][0]["line_number"] == 3
    assert document["unknown"] == []


def test_what_is_unknown(tk: Tk) -> None:
    result = tk("explain", "-", input="fine\nld: error: frobnicated 12\n")
    assert result.code == 1
    assert "2: ld: error: frobnicated 12" in result.out
    assert 'patterns: ["ld: error: frobnicated"]' in result.out
    document = tk("explain", "-", "--json", input="ld: error: frobnicated 12\n")
    assert document.code == 1
    assert document.json == {"causes": [], "unknown": [{"number": 1, "text": "ld: error: frobnicated 12"}]}


def test_nothing_wrong(tk: Tk) -> None:
    result = tk("explain", "-", input="[1/1] Linking error.o\ndone\n")
    assert (result.code, result.out) == (0, "nothing in it looks like an error\n")


@pytest.mark.parametrize(("code", "expected"), [("exit 3", 3), ("kill -9 $$", 137), ("exit 0", 0)])
def test_a_command(code: str, expected: int, tk: Tk) -> None:
    script = f"echo out; echo 'Name: CUDA_ERROR_ILLEGAL_ADDRESS' >&2; {code}"
    result = tk("explain", "--", "sh", "-c", script)
    assert (result.code, result.out) == (expected, "out\n")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in result.err
    assert ("1. cuda-illegal-address" in result.err) == bool(expected)
    result = tk("explain", "--json", "--", "sh", "-c", script)
    assert result.code == result.json["exit_code"] == expected
    assert [one["id"] for one in result.json["causes"]] == ["cuda-illegal-address"] * bool(expected)
    assert "out\n" in result.err


def test_a_command_on_a_terminal() -> None:
    """It has that terminal, too; the explanation comes when it has ended, on lines of their own."""
    script = (
        "[ -t 0 ] && [ -t 1 ] && stty size; printf 'Name: CUDA_ERROR_ILLEGAL_ADDRESS\\n' >&2; read x; exit $x"
    )
    words = ("-m", "toolchain", "explain", "--", "sh", "-c", script)
    screen = Screen([sys.executable, *words], environment())
    screen.read_until(b"ADDRESS\r\n")
    screen.type(b"4\r")
    assert screen.close() == 4
    lines = screen.text.replace(b"\r\n", b"\n").split(b"\n")
    assert lines[:2] == [b"31 97", b"Name: CUDA_ERROR_ILLEGAL_ADDRESS"]
    assert b"`sh` ended with exit code 4" in lines
    assert b"1. cuda-illegal-address: the first error, line 2" in lines


def test_the_order_of_two_streams_that_are_one(tmp_path: Path) -> None:
    """As `2>&1` makes them: lines are numbered as a reader sees them."""
    script = "echo one; echo two >&2; echo three; echo 'Name: CUDA_ERROR_ILLEGAL_ADDRESS' >&2; exit 1"
    words = ("-m", "toolchain", "explain", "--", "sh", "-c", script)
    done = subprocess.run(
        [sys.executable, *words], env=environment(), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.startswith("one\ntwo\nthree\nName: CUDA_ERROR_ILLEGAL_ADDRESS\n")
    assert "cuda-illegal-address: the first error, line 4" in done.stdout


def test_a_command_that_is_not_there(tk: Tk) -> None:
    assert tk("explain", "--", "no-such-program").code == 4


@pytest.mark.parametrize("words", [(), ("a", "b"), ("a", "--", "true"), ("--list", "a")])
def test_one_thing_at_a_time(words: tuple[str, ...], tk: Tk) -> None:
    result = tk("explain", *words)
    assert result.code == 2
    assert "tk explain build.log" in result.err


def test_browsing(tk: Tk) -> None:
    result = tk("explain", "hip-no-binary")
    assert result.code == 0
    assert "fix:" in result.out
    assert tk("explain", "hip-no-binary", "--json").json["platforms"] == ["amd", "hygon"]
    result = tk("explain", "hip-no-binry")
    assert result.code == 3
    assert "did you mean 'hip-no-binary'?" in result.err
    assert tk("explain", "x" * 5000).code == 3
    listed = tk("explain", "--list", "--json").json
    assert "hip-no-binary" in [one["id"] for one in listed]
    assert len(tk("explain", "--list").out.splitlines()) == len(listed) + 1


def test_a_teams_records_come_first(tk: Tk, tmp_path: Path) -> None:
    (tmp_path / "ours" / "issues").mkdir(parents=True)
    (tmp_path / "ours" / "issues" / "x.yaml").write_text(
        "issues:\n  - {id: our-shared, patterns: [too much shared data], cause: a, evidence: b, action: c}\n"
    )
    site = tmp_path / "site.yaml"
    site.write_text("recipes: [ours]\n")
    document = tk("explain", "-", "--json", "--site", site, input=PTXAS).json
    assert [one["id"] for one in document["causes"]] == ["our-shared", "shared-memory-too-large"]


def test_a_failed_program_is_explained_in_the_error() -> None:
    error = explained(BuildError("nvcc refused", why=f"x\n{PTXAS}", hint="report it"))
    first, last = error.hint.splitlines()
    assert first.startswith("known cause shared-memory-too-large: ")
    assert last == "report it"
    assert explained(error).hint == error.hint  # once
    assert explained(BuildError("x", why="nothing known", hint="h")).hint == "h"
    assert explained(HostError("x", why=PTXAS)).hint == ""
    assert advice_on([PTXAS, "hint: known cause shared-memory-too-large: ..."]) == []


def test_tk_compile_explains_what_its_compiler_says(tk: Tk, tmp_path: Path) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *--version*|*-E*|*-v*|*-dM*) exec g++ "$@";; esac\n'
        f'echo "{PTXAS}" >&2\nexit 1\n'
    )
    compiler.chmod(0o755)
    assert tk("zoo", "make", "mnist").code == 0
    result = tk(
        "compile", "mnist.onnx", env={"TK_CXX": str(compiler), "TK_CACHE_DIR": str(tmp_path / "cache")}
    )
    assert result.code == 5, result.err
    assert "hint: known cause shared-memory-too-large: " in result.err


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "known-issues.md").read_text() == issues_page(), "run `bin/just docs`"
