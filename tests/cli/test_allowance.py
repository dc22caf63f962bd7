"""What a command that reads a model may take: time and memory, whatever the model or a compiler does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from compiler.core.allowance import Allowance, GoneOn, go_on_within
from compiler.core.diagnostics import CrashError
from compiler.core.memory import memory_here
from tests.promises.seeds import SEEDS
from tests.support.command import Result, environment

Tk = Callable[..., Result]
_SLEEPS = 'case " $* " in *" -c "*) echo $$ >> "$STARTED"; {what};; esac; exec g++ "$@"'
_HOLDS = f"exec {sys.executable} -c 'x = bytearray(900 << 20); import time; time.sleep(60)'"


@pytest.fixture
def slow(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """The environment of a compiler that does something else in place of compiling, and says its process."""
    onnx.save(SEEDS["perceptron"](), tmp_path / "m.onnx")

    def with_compiler(what: str) -> dict[str, str]:
        script = tmp_path / "cxx"
        script.write_text("#!/bin/sh\n" + _SLEEPS.format(what=what))
        script.chmod(0o755)
        started = str(tmp_path / "started")
        return {"TK_CXX": str(script), "TK_CACHE_DIR": str(tmp_path / "cache"), "STARTED": started}

    return with_compiler


def test_too_long(tk: Tk, slow: Callable[[str], dict[str, str]], tmp_path: Path) -> None:
    result = tk("compile", "m.onnx", "--timeout", "4", "--json", env=slow("sleep 60"))
    assert (result.code, result.json["error"]["code"]) == (4, 4)
    assert "4 s are allowed" in result.err
    assert "--timeout" in result.json["error"]["hint"]
    assert not (tmp_path / "m.so").exists()
    _all_end(tmp_path / "started")


def test_too_much_memory(tk: Tk, slow: Callable[[str], dict[str, str]], tmp_path: Path) -> None:
    result = tk("compile", "m.onnx", "--max-memory", "950 MB", env={**slow(_HOLDS), "TK_JOBS": "2"})
    assert result.code == 4, result.err
    assert "takes more memory" in result.err
    _all_end(tmp_path / "started")


def test_memory_that_the_kernel_refuses(tk: Tk, slow: Callable[[str], dict[str, str]]) -> None:
    result = tk("compile", "m.onnx", "--max-memory", "500 MB", env=slow(_HOLDS))
    assert result.code in (4, 5), result.err
    assert "Traceback" in result.err  # of the compiler's stand-in
    assert "MemoryError" in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_reach_who_goes_on(
    slow: Callable[[str], dict[str, str]], tmp_path: Path, number: signal.Signals
) -> None:
    tk = subprocess.Popen(
        [sys.executable, "-m", "toolchain", "compile", "m.onnx"],
        cwd=tmp_path, env=environment(slow("sleep 60")), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    started = tmp_path / "started"
    while not started.exists():
        assert tk.poll() is None
        time.sleep(0.02)
    tk.send_signal(number)
    _, said = tk.communicate(timeout=60)
    code, word = {
        signal.SIGINT: (130, "interrupted"),
        signal.SIGTERM: (143, "terminated"),
        signal.SIGKILL: (-9, ""),
    }[number]
    assert (tk.returncode, said) == (code, f"{word}\n" if word else "")
    _all_end(started)


def _runs(process: int) -> bool:
    """Whether a process runs: one that nobody waited for has ended, too."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _all_end(started: Path) -> None:
    """No process that said so there is left."""
    deadline = time.monotonic() + 60
    for number in map(int, started.read_text().split() if started.exists() else ()):
        while _runs(number):
            assert time.monotonic() < deadline, f"process {number} is still there"
            time.sleep(0.02)


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_no_time(tk: Tk, slow: Callable[[str], dict[str, str]], text: str) -> None:
    slow("true")
    result = tk("inspect", "m.onnx", f"--timeout={text}")
    assert (result.code, "--timeout" in result.err) == (2, True)


def test_none_is_no_limit(tk: Tk, slow: Callable[[str], dict[str, str]]) -> None:
    slow("true")
    assert tk("inspect", "m.onnx", "--timeout", "none", "--max-memory", "none").code == 0


def test_a_crash_is_told() -> None:
    with pytest.raises(CrashError, match="SIGSEGV"):
        _in_a_copy(lambda: os.kill(os.getpid(), signal.SIGSEGV))


def test_a_code_is_handed_on() -> None:
    with pytest.raises(GoneOn) as caught:
        _in_a_copy(lambda: os._exit(5))
    assert caught.value.code == 5


def _in_a_copy(do: Callable[[], object]) -> None:
    here = os.getpid()
    try:
        go_on_within(Allowance(60), "m.onnx")
        do()
    finally:
        if os.getpid() != here:
            os._exit(99)


def test_memory_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       1000 kB\nMemFree: 5 kB\n")
    (tmp_path / "group").write_text("512000\n")
    assert memory_here(tmp_path, tmp_path / "group") == 512_000
    (tmp_path / "group").write_text("max\n")
    assert memory_here(tmp_path, tmp_path / "group") == 1_024_000
    assert memory_here(tmp_path / "no", tmp_path / "no") is None
