"""A terminal of its own for a program that we start on ours: its output, size and keys are passed on.

As util-linux's script(1): keys reach the program's terminal unread, which makes a signal of
Ctrl-C; lines are edited and broken there, too, so ours leaves them as they are meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import termios
import tty
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.core.diagnostics import HostError

_SIZE_BYTES = bytes(8)  # struct winsize: four unsigned shorts
_OUTPUT_FLAGS = 1
"""Where tcgetattr(3), as Python gives it, has the flags of output."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """A pseudo-terminal (pty(7)): `ours` is the end that we read and write, `theirs` is the program's.

    screen: the descriptor of the terminal of ours that it stands for. keys: the descriptor that its keys come
    from, None where our input is no terminal, or the terminal is another job's now.
    """

    ours: int
    theirs: int
    screen: int
    keys: int | None

    def copy_size(self) -> None:
        """Give it the size of the screen; programs on it get SIGWINCH where that is another one."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self.screen, termios.TIOCGWINSZ, _SIZE_BYTES)
            fcntl.ioctl(self.ours, termios.TIOCSWINSZ, size)

    def take(self) -> None:
        """Make it the terminal of this process, which leads a session: for a child before it is a program."""
        fcntl.ioctl(self.theirs, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def terminal_like(screen: int, keys: int) -> Iterator[Terminal]:
    """A terminal set as that of the descriptor `screen`, which hands on all keys until it is closed.

    `keys` is standard input. The caller closes `theirs` as soon as the program has it. Raises HostError where
    there is none left.
    """
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        raise HostError(
            "cannot make a terminal for the program",
            why=error.strerror or str(error),
            hint="send the output to a file or through a pipe: `2>&1 | cat`",
        ) from error
    taken = keys if os.isatty(keys) and _is_in_front(keys) else None
    found = Terminal(ours, theirs, screen, taken)
    before = termios.tcgetattr(screen)
    own = list(before)
    if taken is None:  # our terminal breaks the lines
        own[_OUTPUT_FLAGS] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, own)
    found.copy_size()
    os.set_blocking(ours, False)
    try:
        if taken is not None:
            tty.setraw(taken, termios.TCSADRAIN)
        yield found
    finally:
        os.close(ours)
        if taken is not None:
            termios.tcsetattr(taken, termios.TCSADRAIN, before)


def _is_in_front(terminal: int) -> bool:
    """Whether our job has the terminal: others that read or set it are stopped."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # not the terminal that controls us
        return False
