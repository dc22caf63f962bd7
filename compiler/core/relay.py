"""A program on our own streams, of which everything that it writes is heard on its way.

Bytes go on unchanged as they come. A stream that is a terminal stays one, and two that are the same file stay
the same, so that their order does; two different ones are as far in order as they are read. Signals that we
get are passed on, and its input is ours.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from compiler.core.process import Child, end, start
from compiler.core.terminal import Terminal, terminal_like

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that the program and what it has started get when we get them."""
SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a program."""
_CHUNK_BYTES = 1 << 16
_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 0.5
_LEFT_BYTES = 1 << 20
"""The most that a pipe holds unless somebody makes it larger: pipe(7)."""

Hear = Callable[[int, bytes], object]


@dataclass(frozen=True, slots=True)
class Streams:
    """Descriptors of this process that a program gets as its own."""

    stdin: int = 0
    stdout: int = 1
    stderr: int = 2


def relay(argv: Sequence[str], hear: Hear, streams: Streams | None = None) -> int:
    """Run `argv` to its end on our streams; returns its exit code, 128 + n when signal n ended it.

    `hear` gets each piece of output with the descriptor that it went to. Where standard output is a terminal
    the program has one of its own. What outlives it is heard for half a second. Raises HostError when it
    cannot be started.
    """
    own = streams or Streams()
    with contextlib.ExitStack() as stack:
        on_screen = os.isatty(own.stdout)
        terminal = stack.enter_context(terminal_like(own.stdout, own.stdin)) if on_screen else None
        outputs = _Outputs(own, terminal)
        stack.callback(outputs.close)
        signals = stack.enter_context(_passing_signals(terminal))
        child = start(
            argv,
            stdin=terminal.theirs if terminal is not None and terminal.keys is not None else own.stdin,
            stdout=outputs.theirs[own.stdout],
            stderr=outputs.theirs[own.stderr],
            prepare=terminal.take if terminal is not None else None,
        )
        stack.callback(end, child)
        outputs.close_theirs()
        signals.of(child)
        _follow(child, outputs, hear, terminal)
        code = child.wait()
    return code if code >= 0 else SIGNALLED - code


class _Outputs:
    """Where a program writes to, by our descriptor; and where that is read, while it is open."""

    def __init__(self, own: Streams, terminal: Terminal | None) -> None:
        self.theirs: dict[int, int] = {}
        self.sinks: dict[int, int] = {}
        self._is_screen = terminal is not None and terminal.ours
        if terminal is not None:
            self.theirs[own.stdout] = terminal.theirs
            self.sinks[terminal.ours] = own.stdout
        for one in (own.stdout, own.stderr):
            if one not in self.theirs:
                same = next((other for other in self.theirs if _is_same(one, other)), None)
                self.theirs[one] = self._pipe(one) if same is None else self.theirs[same]
        self._open = set(self.theirs.values())

    def _pipe(self, sink: int) -> int:
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self.sinks[ours] = sink
        return theirs

    def close_theirs(self) -> None:
        """Once the program has them: the end of what it writes is seen then."""
        for one in self._open:
            os.close(one)
        self._open.clear()

    def drop(self, source: int) -> None:
        """Read no more from there: who writes to it learns that nobody reads."""
        del self.sinks[source]
        if source != self._is_screen:  # that is closed with the terminal
            os.close(source)

    def close(self) -> None:
        self.close_theirs()
        for one in tuple(self.sinks):
            self.drop(one)


class _Signals:
    """Passes on signals to a program's process group; those that come before it is there when it is."""

    def __init__(self, terminal: Terminal | None) -> None:
        self._terminal = terminal
        self._child: Child | None = None
        self._early: list[int] = []

    def take(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGWINCH:
            if self._terminal is not None:
                self._terminal.copy_size()
        elif self._child is None:
            self._early.append(number)
        elif self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)

    def of(self, child: Child) -> None:
        """From now on they are for this child."""
        self._child = child
        for number in self._early:
            self.take(number, None)


@contextlib.contextmanager
def _passing_signals(terminal: Terminal | None) -> Iterator[_Signals]:
    """Signals go to a program instead of us; those that are ignored stay so, as nohup(1) wants it."""
    passed = _Signals(terminal)
    if threading.current_thread() is not threading.main_thread():  # Python handles signals in that one only
        yield passed
        return
    wanted = [*FORWARDED, *([signal.SIGWINCH] if terminal is not None else [])]
    before = {
        number: signal.signal(number, passed.take)
        for number in wanted
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield passed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _follow(child: Child, outputs: _Outputs, hear: Hear, terminal: Terminal | None) -> None:
    """Pass everything on until nobody writes any more, or the program has ended some time ago."""
    keys = _Keys(terminal)
    deadline = float("inf")
    while outputs.sinks and time.monotonic() < deadline:
        readable, writable, _ = select.select(
            [*outputs.sinks, *keys.sources()], keys.sinks(), [], _LOOK_SECONDS
        )
        for source in readable:
            if source in outputs.sinks:
                _pass_on(source, outputs, hear)
            else:
                keys.read()
        if writable:
            keys.write()
        if deadline == float("inf") and child.poll() is not None:
            deadline = time.monotonic() + _GRACE_SECONDS
    left = _LEFT_BYTES
    while left > 0 and outputs.sinks:
        readable, _, _ = select.select([*outputs.sinks], [], [], 0)
        if not readable:
            return
        left -= sum(_pass_on(source, outputs, hear) for source in readable)


def _pass_on(source: int, outputs: _Outputs, hear: Hear) -> int:
    """Write on what is there, and have it heard; returns its bytes."""
    sink = outputs.sinks[source]
    try:
        data = os.read(source, _CHUNK_BYTES)
    except BlockingIOError:
        return 0
    except OSError:  # EIO: nobody has the terminal's other end open any more
        data = b""
    if not data:
        outputs.drop(source)
        return 0
    hear(sink, data)
    try:
        _write(sink, data)
    except OSError:  # whoever read it is gone; the program learns that as it would of its own stream
        outputs.drop(source)
    return len(data)


class _Keys:
    """What is typed, on its way to the program's terminal."""

    def __init__(self, terminal: Terminal | None) -> None:
        self._from = None if terminal is None else terminal.keys
        self._to = -1 if terminal is None else terminal.ours
        self._waiting = b""

    def sources(self) -> list[int]:
        return [] if self._from is None or self._waiting else [self._from]

    def sinks(self) -> list[int]:
        return [self._to] if self._waiting else []

    def read(self) -> None:
        if self._from is None:
            return
        with contextlib.suppress(OSError):
            self._waiting = os.read(self._from, _CHUNK_BYTES)
        if not self._waiting:  # the terminal is gone
            self._from = None

    def write(self) -> None:
        try:
            self._waiting = self._waiting[os.write(self._to, self._waiting) :]
        except BlockingIOError:
            return
        except OSError:
            self._waiting, self._from = b"", None


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # whoever shares it with us made it so
            select.select([], [descriptor], [])


def _is_same(one: int, other: int) -> bool:
    """Whether two descriptors are of the same file, pipe or terminal."""
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:  # one is closed
        return False
