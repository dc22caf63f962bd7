"""Waiting for an engine as long as it lives, and no longer.

A build may print nothing for an hour, and a shell may stand idle for a day, so there is no limit on the time
that work takes. But when nothing has come for a while the engine is asked on a second connection whether it
still lives, and whether the work goes on. One that does not answer time after time is given up.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from compiler import HostError
from toolchain.engine import failures
from toolchain.engine.endpoint import Endpoint

T = TypeVar("T")

_LOOK_SECONDS = 0.25
"""How often somebody who waits looks at the time: nobody notices so short a delay."""
_READ_AHEAD = 64
"""Parts of a stream that may wait for their reader; then the engine waits, and memory is not filled."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to wait for an engine.

    first: for its first answer; one reached by ssh or network three times that. answer: for any other answer,
    or between two parts of a stream. quiet: how long work may say nothing before the engine is asked; ask:
    for the answer to that, and from one question to the next; tries: questions in a row without an answer
    until it is given up: two minutes with these numbers, as for any other answer (a machine that swaps while
    it links LLVM may be deaf for one). clean_up: for the removal of what was begun, while a user waits for
    the end; what stays is the reaper's.
    """

    first: float = 5.0
    answer: float = 120.0
    quiet: float = 30.0
    ask: float = 20.0
    tries: int = 6
    clean_up: float = 3.0


PATIENCE = Patience()


Ask = Callable[[float], None]
"""Asks whether work goes on, within so many seconds; raises some error when there is no good answer."""


class HungError(HostError):
    """An engine was given up; what it still has of this `tk` is left to the reaper."""


class WorkLostError(HostError):
    """The engine lives, but what is waited for has ended, and the connection to it has not said so."""


class Watch:
    """Tells an engine that is silent from one that hangs, for the one thread that waits for it.

    `doing` completes "cannot ...".
    """

    def __init__(self, endpoint: Endpoint, doing: str, patience: Patience, ask: Ask) -> None:
        self._endpoint = endpoint
        self._doing = doing
        self._patience = patience
        self._ask = ask
        self._heard = self._asked = time.monotonic()
        self._answer: queue.SimpleQueue[Exception | None] | None = None
        self._misses = 0

    def heard(self) -> None:
        """Something has come from the engine."""
        self._heard = time.monotonic()
        self._misses = 0

    def check(self) -> None:
        """Look at the time, and ask or judge an answer when it is time to; never blocks.

        Raises HungError when the engine has not answered often enough.
        """
        now, quiet = time.monotonic(), self._patience.quiet
        if self._answer is not None:
            self._take_answer(self._answer, now)
        elif now - self._heard >= quiet and (self._misses or now - self._asked >= quiet):
            self._begin(now)

    def _begin(self, now: float) -> None:
        answer: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._answer, self._asked = answer, now
        threading.Thread(target=self._question, args=(answer,), daemon=True).start()

    def _question(self, answer: queue.SimpleQueue[Exception | None]) -> None:
        began = time.monotonic()
        try:
            self._ask(self._patience.ask)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no good answer
            time.sleep(max(0.0, began + self._patience.ask - time.monotonic()))  # a refusal comes at once
            answer.put(error)
        else:
            answer.put(None)

    def _take_answer(self, answer: queue.SimpleQueue[Exception | None], now: float) -> None:
        try:
            error = answer.get_nowait()
        except queue.Empty:
            if now - self._asked < 2 * self._patience.ask:
                return
            error = TimeoutError()  # through ssh no limit on a socket holds
        self._answer = None
        self._misses = 0 if error is None else self._misses + 1
        if error is not None and self._misses >= self._patience.tries:
            raise self._given_up(error, now)

    def _given_up(self, error: Exception, now: float) -> HungError:
        if isinstance(error, WorkLostError):
            what, fix = error.what, "run the command again"
        else:
            what, fix = failures.cause(self._endpoint, error, self._patience.ask)
        return HungError(
            f"cannot {self._doing}: nothing has come for {now - self._heard:.0f} s, and {what}"
            f" (asked {self._misses} times); {fix}"
        )


def followed(parts: Callable[[], Iterator[T]], watch: Watch) -> Iterator[T]:
    """What `parts()` yields, read in another thread while this one watches the engine.

    Errors of `parts` are raised here. Raises HungError; then the thread is left waiting, as nothing wakes it
    on every kind of connection, and goes with the process.
    """
    arrived: queue.Queue[_Part | _End] = queue.Queue(_READ_AHEAD)
    over = threading.Event()
    threading.Thread(target=_read, args=(parts, arrived, over), daemon=True).start()
    try:
        while True:
            try:
                one = arrived.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                watch.check()
                continue
            watch.heard()
            if isinstance(one, _Part):
                yield one.value
            elif one.error is not None:
                raise one.error
            else:
                return
    finally:
        over.set()


@dataclass(frozen=True, slots=True)
class _Part:
    value: Any


@dataclass(frozen=True, slots=True)
class _End:
    error: Exception | None


def _read(
    parts: Callable[[], Iterator[Any]], arrived: queue.Queue[_Part | _End], over: threading.Event
) -> None:
    """Hand on all parts, and then how they ended, unless nobody wants them any more."""
    end = _End(None)
    try:
        for part in parts():
            _put(arrived, _Part(part), over)
            if over.is_set():
                return
    except Exception as error:  # noqa: BLE001 - raised again by who follows
        end = _End(error)
    _put(arrived, end, over)


def _put(arrived: queue.Queue[_Part | _End], one: _Part | _End, over: threading.Event) -> None:
    while not over.is_set():
        with contextlib.suppress(queue.Full):
            arrived.put(one, timeout=_LOOK_SECONDS)
            return


def awaited(call: Callable[[], T], watch: Watch) -> T:
    """What `call()` returns, called in another thread while this one watches the engine; see `followed`."""
    [result] = followed(lambda: iter([call()]), watch)
    return result
