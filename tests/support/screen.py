"""A terminal with a program on it: what it shows is read, and keys are typed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Mapping, Sequence

from tests.support.command import ROOT

SIZE = (31, 97)
"""Lines and columns at the start."""


class Screen:
    """A terminal with a program on it, which we look at and type on."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, stdin: str = "") -> None:
        self.text = b""
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", *SIZE, 0, 0))
            os.chdir(ROOT)
            if stdin:
                os.dup2(os.open(stdin, os.O_RDONLY), 0)
            os.execve(argv[0], list(argv), dict(os.environ if env is None else env))

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def read_until(self, wanted: bytes, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while wanted not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._master, 4096)
                except OSError:
                    raise AssertionError(f"it ended without {wanted!r}: {self.text!r}") from None

    def close(self) -> int:
        """The exit code, when it has ended."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and select.select([self._master], [], [], 5)[0]:
            try:
                self.text += os.read(self._master, 4096)
            except OSError:
                break
        _, status = os.waitpid(self.pid, 0)
        os.close(self._master)
        return os.waitstatus_to_exitcode(status)
