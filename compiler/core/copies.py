"""Calls that copies of this process make at the same time: nothing is sent to them, results come back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

from compiler.core.companion import forget_companions
from compiler.core.diagnostics import HostError

T = TypeVar("T")
_calls: dict[int, Callable[[int], Any]] = {}
"""What copies are there for, by the pipe that they share: functions cannot be sent, so copies have them."""


@contextmanager
def in_copies(call: Callable[[int], T], count: int, copies: int) -> Iterator[Iterator[T]]:
    """Give the results of `call(0)`, `call(1)`, ... in order; with fewer than two copies, called here.

    Copies begin at once and end with the context, and with this process. No other thread of it should start
    programs or hold a lock. The results can be pickled. Where the system gives no processes or semaphores,
    all is called here, too. What a call raises is raised by the iterator, and HostError when a copy was ended
    by somebody else.
    """
    if copies < 2:
        yield map(call, range(count))
        return
    reading, writing = os.pipe()  # nobody writes: the copies see when nobody can any more
    _calls[reading], pool = call, None
    try:
        try:
            pool = ProcessPoolExecutor(copies, get_context("fork"), _begin, (reading, writing))
            results = _told(pool.map(partial(_made, reading), range(count)))
        except (OSError, NotImplementedError):
            results = map(call, range(count))
        yield results
    finally:
        os.close(writing)
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        del _calls[reading]
        os.close(reading)


def _told(results: Iterator[T]) -> Iterator[T]:
    try:
        yield from results
    except BrokenProcessPool as error:
        raise HostError(
            "a copy of this process was ended",
            why="not by us; the system does that where memory is short",
            hint="free some memory, or set TK_JOBS=1",
        ) from error


def _begin(reading: int, writing: int) -> None:
    """What a copy does first. Interrupts are for the process that it was copied from."""
    forget_companions()
    os.close(writing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_original, args=(reading,), daemon=True).start()


def _end_with_original(reading: int) -> None:
    os.read(reading, 1)
    os._exit(1)


def _made(key: int, number: int) -> Any:
    return _calls[key](number)
