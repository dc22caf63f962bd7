"""Calls that copies of this process make at the same time: nothing is sent to them, results come back."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, TypeVar

from compiler.core.companion import forget_companions
from compiler.core.diagnostics import HostError

T = TypeVar("T")


@contextmanager
def in_copies(call: Callable[[int], T], count: int, copies: int) -> Iterator[Iterator[T]]:
    """Give the results of `call(0)`, `call(1)`, ... in order; with fewer than two copies, called here.

    Copies begin at once and end with the context, and with this process. No other thread of it should start
    programs or hold a lock. The results can be pickled. Where the system gives no more processes, all is
    called here, too. What a call raises is raised by the iterator, and HostError when a copy was ended by
    somebody else.
    """
    if copies < 2:
        yield map(call, range(count))
        return
    made = _Copies(call)
    try:
        refused = False
        try:
            made.start(copies)
        except OSError:
            refused = True
        yield map(call, range(count)) if refused else made.ask(count)
    finally:
        made.end()


class _Copies:
    """Copies of this process, each with a connection of its own, so that none that ends disturbs another.

    They hold the reading end of a pipe into which nobody writes: they see when nobody can any more.
    """

    def __init__(self, call: Callable[[int], Any]) -> None:
        self._call = call
        self._reading, self._writing = os.pipe()
        self._processes: list[Any] = []
        self._connections: list[Connection] = []
        self._threads: ThreadPoolExecutor | None = None

    def start(self, copies: int) -> None:
        """Make copies; raises OSError where the system refuses one."""
        context = get_context("fork")
        for _ in range(copies):
            ours, theirs = context.Pipe()
            self._connections.append(ours)
            with theirs:
                process = context.Process(target=self._answer, args=(theirs,), daemon=True)
                process.start()
            self._processes.append(process)

    def ask(self, count: int) -> Iterator[Any]:
        """What the copies make of numbers, in order; a thread for each of them waits for its answers."""
        free: SimpleQueue[tuple[int, Connection]] = SimpleQueue()
        for process, connection in zip(self._processes, self._connections, strict=True):
            free.put((process.pid, connection))
        self._threads = ThreadPoolExecutor(len(self._connections))
        return self._threads.map(partial(_asked, free), range(count))

    def end(self) -> None:
        """End the copies at once, wherever they are."""
        os.close(self._writing)
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.join()
        for connection in self._connections:
            connection.close()
        os.close(self._reading)

    def _answer(self, connection: Connection) -> None:
        """What a copy does. Interrupts are for the process that it was copied from."""
        forget_companions()
        os.close(self._writing)
        for one in self._connections:
            one.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.Thread(target=self._end_with_original, daemon=True).start()
        with suppress(EOFError, OSError):  # then nobody asks any more
            while True:
                number = connection.recv()
                try:
                    connection.send((self._call(number), None))
                except Exception as error:  # noqa: BLE001 - the original raises it
                    error.add_note(traceback.format_exc())
                    connection.send((None, error))

    def _end_with_original(self) -> None:
        os.read(self._reading, 1)
        os._exit(1)


def _asked(free: SimpleQueue[tuple[int, Connection]], number: int) -> Any:
    """What the next copy that has nothing to do makes of a number."""
    process, connection = free.get()
    try:
        connection.send(number)
        result, error = connection.recv()
    except (EOFError, OSError) as ended:
        raise HostError(
            "a copy of this process was ended",
            where=f"process {process}",
            why="not by us; the system does that where memory is short",
            hint="free some memory, or set TK_JOBS=1",
        ) from ended
    finally:
        free.put((process, connection))
    if error is not None:
        raise error
    return result
