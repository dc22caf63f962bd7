"""Calls in a copy of this process: what was imported and changed here is there, and a crash is a result."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler.core.companion import forget_companions, reap_if_killed, reaped
from compiler.core.diagnostics import InternalError

_CHUNK_BYTES = 1 << 16
_TAIL_BYTES = 1 << 14
_TOLD, _ANSWER = "told", "answer"

Tell = Callable[[str], None]
"""Says how far a call has come; the last that it said is known whatever becomes of it."""


@dataclass(frozen=True, slots=True)
class Forked:
    """A call that has ended.

    answer: what it returned, None where it did not get that far. told: the last that it said. signal: what
    ended it, 0 for none. timed_out: whether that was us. said: the end of what it printed. seconds: wall
    time.
    """

    answer: Mapping[str, Any] | None
    told: str
    signal: int
    timed_out: bool
    said: str
    seconds: float


def run_forked(call: Callable[[Tell], Mapping[str, Any]], *, seconds: float, memory: int) -> Forked:
    """Make a call, whose answer is what JSON holds, in a copy of this process.

    `memory` limits the bytes of data that it, and each program that it starts, may have. No other thread of
    this process should hold a lock. The copy leads a process group of its own, killed with us.
    """
    started = time.monotonic()
    reading, writing = os.pipe()
    output = os.memfd_create("tk-forked")
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer_and_end(call, writing, output, memory)
    os.close(writing)
    with contextlib.suppress(OSError):  # else the child has done it
        os.setpgid(child, child)
    reap_if_killed(child)
    status, parts = None, list[bytes]()
    try:
        if _read(reading, started + seconds, parts):
            status = _wait(child, started + seconds)
        timed_out = status is None
    finally:
        os.close(reading)
        if status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        reaped(child)
        said = _tail(output)
        os.close(output)
    told, answer = _messages(b"".join(parts))
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if answer is None and not number:
        raise InternalError("a forked call ended without an answer", why=said[-2000:])
    return Forked(answer, told, number, timed_out, said, time.monotonic() - started)


def _answer_and_end(
    call: Callable[[Tell], Mapping[str, Any]], writing: int, output: int, memory: int
) -> None:
    """What the copy does; it never returns, and runs nothing that this process has for its own end."""
    try:
        forget_companions()
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(output, stream)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = memory if most == resource.RLIM_INFINITY else min(memory, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
        answer = call(lambda text: _send(writing, _TOLD, text))
        _send(writing, _ANSWER, answer)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - the parent says it
        os.write(output, f"\n{type(error).__name__}: {error}".encode(errors="backslashreplace"))
    finally:
        os._exit(1)


def _send(writing: int, kind: str, value: object) -> None:
    data = (json.dumps({kind: value}) + "\n").encode()
    while data:
        data = data[os.write(writing, data) :]


def _read(reading: int, deadline: float, parts: list[bytes]) -> bool:
    """Collect all that the copy sends; False where it has not ended in time."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            return False
        part = os.read(reading, _CHUNK_BYTES)
        if not part:
            return True
        parts.append(part)


def _wait(child: int, deadline: float) -> int | None:
    """The status of a child that has closed its pipe."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)


def _messages(data: bytes) -> tuple[str, Mapping[str, Any] | None]:
    told, answer = "", None
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break  # it was ended in the middle of a word
        message = json.loads(line)
        told, answer = message.get(_TOLD, told), message.get(_ANSWER, answer)
    return told, answer


def _tail(output: int) -> str:
    size = os.fstat(output).st_size
    return os.pread(output, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="backslashreplace")
