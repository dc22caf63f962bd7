"""Programs that outlive us for a moment, to clean up when we are killed.

Nobody is told of SIGKILL but who reads from a pipe whose other end we hold: it ends with us.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler.core.diagnostics import HostError

_GRACE_SECONDS = 0.5
_KILL_WHAT_RUNS = """
running=
while read -r word group; do
    rest=
    for one in $running; do [ "$one" = "$group" ] || rest="$rest $one"; done
    running=$rest
    [ "$word" = started ] && running="$running $group"
    [ "$word" = over ] && set --
done
for one in $running; do kill -s KILL -- "-$one"; done
[ $# = 1 ] || exit 0
for one in $(grep -lszx -- "$1" /proc/[0-9]*/environ); do
    one=${one#/proc/}
    kill -s KILL -- "-${one%/environ}"
done
"""
"""For `sh`: keeps the process groups that it is told of, and kills them when there is no more to read.

Those that we were killed before we could tell of have its argument in their environment. A process that we
start holds our end of its input until it is the program that it becomes, so there is none without.
"""
MARK = "TK_STARTED_BY"
"""Of programs that we start: whose end is theirs, too."""
_lock = threading.RLock()  # re-entrant: a signal handler may end a program while its own thread holds it
_reapers: dict[int, _Reaper | None] = {}
"""By our own process id, as a forked process needs one of its own; None where none can be started."""
_marks: dict[int, str] = {}
"""What programs that we start have as their MARK, likewise: no process before us had it."""


class Companion:
    """A program that is told things while we live and acts when we end, also when we are killed.

    It reads lines from its standard input, whose end is how it knows ours. It has a session of its own.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        try:
            self._child = subprocess.Popen(
                list(argv),
                env=None if env is None else dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise cannot_start(argv, error) from error

    def tell(self, line: str) -> None:
        """Send one line; when the companion is gone, nobody is told."""
        stream = self._child.stdin
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.write(f"{line}\n".encode())
                stream.flush()

    def let_go(self) -> None:
        """Close a copy of our end of its input, which else would keep it from seeing the end of ours."""
        stream = self._child.stdin
        if stream is not None:
            with contextlib.suppress(OSError):
                os.close(stream.fileno())
            self._child.stdin = None

    def dismiss(self) -> None:
        """Close its input; wait for its end if it has nothing to do, else leave it to its work."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._child.communicate(timeout=_GRACE_SECONDS)


class _Reaper(Companion):
    """Kills the process groups of programs that we started, when we are killed."""

    def __init__(self) -> None:
        super().__init__(["sh", "-c", _KILL_WHAT_RUNS, "sh", f"{MARK}={_mark()}"])

    def dismiss(self) -> None:
        """See `Companion`; we could tell of all that we started."""
        self.tell("over -")
        super().dismiss()


def stand_by() -> str:
    """Have ready what `reap_if_killed` tells, which takes a while to start.

    Returns the MARK for the environment of a program: one that has it is killed with us before it is told of.
    """
    with _lock:
        _reaper()
        return _mark()


def reap_if_killed(group: int) -> None:
    """Have a process group killed when this process ends without having said `reaped`."""
    _tell(f"started {group}")


def reaped(group: int) -> None:
    """A process group has ended: its number may soon be another's."""
    _tell(f"ended {group}")


def forget_companions() -> None:
    """In a copy of a process: let go of its companions, which wait for the end of that process alone."""
    with _lock:
        for companion in _reapers.values():
            if companion is not None:
                atexit.unregister(companion.dismiss)
                companion.let_go()
        _reapers.clear()


def _tell(line: str) -> None:
    with _lock:
        reaper = _reaper()
        if reaper is not None:
            reaper.tell(line)


def _reaper() -> _Reaper | None:
    """The companion of this process that kills what runs; to be called under the lock."""
    own = os.getpid()
    if own not in _reapers:
        _reapers[own] = None
        with contextlib.suppress(HostError):
            _reapers[own] = made = _Reaper()
            atexit.register(made.dismiss)
    return _reapers[own]


def _mark() -> str:
    return _marks.setdefault(os.getpid(), os.urandom(16).hex())


def cannot_start(argv: Sequence[str], error: OSError) -> HostError:
    """What is said of a program that the system does not start."""
    return HostError(
        f"cannot start `{argv[0]}`",
        where=" ".join(argv),
        why=error.strerror or str(error),
        hint=f"install the package that provides `{Path(argv[0]).name}`, or put it on the PATH",
    )
