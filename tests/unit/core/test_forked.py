"""Calls in a copy of this process: answers, crashes, limits, and nothing left of a copy that is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compiler.core.diagnostics import InternalError
from compiler.core.forked import Tell, run_forked

MEMORY = 2_000_000_000


def test_an_answer() -> None:
    changed = [1]

    def call(tell: Tell) -> Mapping[str, Any]:
        changed.append(2)
        tell("first")
        tell("second")
        return {"here": os.getppid(), "changed": changed, "inf": float("inf")}

    done = run_forked(call, seconds=20, memory=MEMORY)
    assert done.answer == {"here": os.getpid(), "changed": [1, 2], "inf": float("inf")}
    assert (done.told, done.signal, done.timed_out) == ("second", 0, False)
    assert changed == [1]


def test_a_large_answer() -> None:
    done = run_forked(lambda _: {"text": "x" * 1_000_000}, seconds=20, memory=MEMORY)
    assert done.answer == {"text": "x" * 1_000_000}


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash(number: int) -> None:
    def call(tell: Tell) -> Mapping[str, Any]:
        tell("before")
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return {}

    done = run_forked(call, seconds=20, memory=MEMORY)
    assert (done.answer, done.told, done.signal, done.timed_out) == (None, "before", number, False)


def test_no_end() -> None:
    def call(tell: Tell) -> Mapping[str, Any]:
        tell("asleep")
        time.sleep(100)
        return {}

    done = run_forked(call, seconds=0.3, memory=MEMORY)
    assert (done.answer, done.told, done.timed_out) == (None, "asleep", True)
    assert 0.3 <= done.seconds < 10


def test_too_much_memory() -> None:
    def call(_: Tell) -> Mapping[str, Any]:
        try:
            bytearray(MEMORY)
        except MemoryError:
            return {"refused": True}
        return {"refused": False}

    assert run_forked(call, seconds=20, memory=MEMORY // 2).answer == {"refused": True}


def test_an_exception_is_a_defect_of_the_caller() -> None:
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        run_forked(lambda _: {"x": 1 // 0}, seconds=20, memory=MEMORY)


def test_what_it_prints_is_kept() -> None:
    def call(_: Tell) -> Mapping[str, Any]:
        os.write(1, b"to standard output\n")
        os.write(2, b"to standard error\n")
        return {}

    assert run_forked(call, seconds=20, memory=MEMORY).said == "to standard output\nto standard error\n"


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    from compiler.core.process import run

    def call(_: Tell) -> Mapping[str, Any]:
        run(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 100"])
        return {}

    assert run_forked(call, seconds=1.5, memory=MEMORY).timed_out
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the program lives on")
