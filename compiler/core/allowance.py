"""The rest of a program in a copy of it, which is ended where it takes more time or memory than it may.

What the copy does is done by nobody else, so that no input can keep or fill the process that watches: it
holds nothing and waits. Memory is limited twice: the kernel refuses the copy what is beyond (`RLIMIT_DATA`),
and what it holds with all that it starts is added up now and then.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from compiler.core.companion import forget_companions, reap_if_killed, reaped, stand_by
from compiler.core.diagnostics import CrashError, LimitError
from compiler.core.memory import held_bytes

_CHECK_SECONDS = 0.5
_copies: set[int] = set()


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a program may take: wall seconds, and bytes held with all that it starts; None for any."""

    seconds: float | None = None
    memory: int | None = None


class GoneOn(BaseException):
    """A copy of this process did the rest, and has ended with `code`; an error for no handler of errors."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def is_copy() -> bool:
    """Whether this process goes on for another one, which waits for it."""
    return os.getpid() in _copies


def go_on_within(allowance: Allowance, where: str) -> None:
    """Return in a copy of this process, which may take no more than is allowed; in a copy do nothing.

    In this process raises GoneOn when the copy has ended, LimitError when it took too much and was killed,
    and CrashError when a signal ended it; `where` is for these. Signals are handed on to the copy. No other
    thread should hold a lock.
    """
    if is_copy() or allowance == Allowance():
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    stand_by()
    child = os.fork()
    if child == 0:
        _copies.add(os.getpid())
        forget_companions()
        with suppress(OSError):
            os.setpgid(0, 0)
        _limit_own_memory(allowance.memory)
        return
    with suppress(OSError):  # else the child has done it
        os.setpgid(child, child)
    reap_if_killed(child)
    with _signals_handed_on(child):
        code = os.waitstatus_to_exitcode(_status(child, allowance, where))
    reaped(child)
    if code < 0:
        raise _crashed(-code, where)
    raise GoneOn(code)


def _limit_own_memory(memory: int | None) -> None:
    if memory is not None:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = memory if most == resource.RLIM_INFINITY else min(memory, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


@contextmanager
def _signals_handed_on(child: int) -> Iterator[None]:
    """Let the copy, in a group of its own, know what a terminal and others tell this process."""

    def hand_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    def stop(_number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.killpg(child, signal.SIGCONT)

    handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), hand_on) | {signal.SIGTSTP: stop}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _status(child: int, allowance: Allowance, where: str) -> int:
    """Wait for the copy, and look after it meanwhile; its status as `waitpid` has it."""
    started = time.monotonic()
    handle = os.pidfd_open(child)
    try:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        while not ended.poll(_CHECK_SECONDS * 1000):
            _check(child, allowance, time.monotonic() - started, where)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reaped(child)
        raise
    finally:
        os.close(handle)
    return os.waitpid(child, 0)[1]


def _check(child: int, allowance: Allowance, seconds: float, where: str) -> None:
    if allowance.seconds is not None and seconds > allowance.seconds:
        raise LimitError(
            "this takes longer than it may",
            where=where,
            why=f"it was ended after {seconds:.0f} s; {allowance.seconds:g} s are allowed",
            hint="allow more with `--timeout SECONDS`, if you trust the model",
        )
    held = held_bytes(child) if allowance.memory is not None else 0
    if allowance.memory is not None and held > allowance.memory:
        raise LimitError(
            "this takes more memory than it may",
            where=where,
            why=f"it was ended when it held {held:,} bytes; {allowance.memory:,} are allowed",
            hint="allow more with `--max-memory SIZE`, if you trust the model",
        )


def _crashed(number: int, where: str) -> CrashError:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    hint = "please report it with the model, if you can: no model should do that"
    if number == signal.SIGKILL:
        hint = "somebody killed it, or the kernel did because the machine had no memory left"
    return CrashError("this was ended by a signal", where=where, why=name, hint=hint)
