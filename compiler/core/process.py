"""The one place that starts programs: an argument list, never a shell; no child outlives its call, nor us."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from compiler.core.companion import MARK, cannot_start, reap_if_killed, reaped, stand_by
from compiler.core.diagnostics import CrashError, HostError, MemoryLimitError
from compiler.core.files import lack_of_room
from compiler.core.memory import held_bytes
from compiler.core.settings import inherited_environment

_GRACE_SECONDS = 0.5
_CHECK_SECONDS = 0.25
_LACKS = {
    "no space left on device": "free some space there, or choose another place with TMPDIR",
    "file too large": "raise the limit of a file's size (ulimit -f)",
    "file size limit exceeded": "raise the limit of a file's size (ulimit -f)",
    "disk quota exceeded": "free some space there, or choose another place with TMPDIR",
    "cannot allocate memory": "free some memory, or set TK_JOBS=1 to compile one file at a time",
    "virtual memory exhausted": "free some memory, or set TK_JOBS=1 to compile one file at a time",
    "out of memory": "free some memory, or set TK_JOBS=1 to compile one file at a time",
    "killed signal terminated program": "free some memory, or set TK_JOBS=1 to compile one file at a time",
}
"""What compilers and linkers say when the machine, not their input, is the trouble, and what helps."""
_NUMBERS = {
    "no space left on device": errno.ENOSPC,
    "disk quota exceeded": errno.EDQUOT,
    "file too large": errno.EFBIG,
    "file size limit exceeded": errno.EFBIG,
}
Child = subprocess.Popen[bytes]
_lock = threading.RLock()  # re-entrant: a signal handler may call stop_all while its own thread holds it
_running: set[Child] = set()
_stopped = threading.Event()


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that has ended; `returncode` is negative when a signal ended it; `seconds` is wall time."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float


def check_host(done: Completed, place: Path | None = None) -> None:
    """Raise HostError when a failed program says that the machine lacks something: space or memory.

    `place` is where it writes: how much is free there is said, too.
    """
    for line in done.stderr.splitlines():
        for complaint, hint in _LACKS.items():
            if complaint in line.lower():
                room = "" if place is None else lack_of_room(place, _NUMBERS.get(complaint))
                why = "\n".join(part for part in (line.strip(), room) if part)
                where = "" if place is None else str(place)
                raise HostError(f"`{Path(done.argv[0]).name}` cannot go on", where=where, why=why, hint=hint)


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,  # noqa: A002 - the name that subprocess uses
    on_line: Callable[[str], object] | None = None,
    on_error_line: Callable[[str], object] | None = None,
    merged: bool = False,
    check: Callable[[], object] | None = None,
    memory: int | None = None,
) -> Completed:
    """Run `argv` to its end with captured output (UTF-8, undecodable bytes escaped).

    merged: standard output and errors as one stream, in the order in which they are written.
    `on_line` gets each line of standard output as soon as it is there, without its end, in another thread;
    `on_error_line` those of standard error.
    `check` is called four times a second in another thread; what it raises ends the program, and is raised.
    `memory` is how many bytes the child may hold with all that it starts, looked at as often.
    The child leads a process group of its own, which is killed as a whole on timeout (seconds) or interrupt.
    Raises HostError when the program cannot be started, CrashError when it does not end in time and
    MemoryLimitError when it holds more memory than it may.
    """
    started = time.monotonic()
    child = start(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
    )
    hearing = (("stdout", on_line), ("stderr", on_error_line))
    readers = {name: _LineReader(child, name, hear) for name, hear in hearing if hear is not None}
    checks = [one for one in (check, _memory_check(argv[0], child.pid, memory)) if one is not None]
    checker = _Checker(child, checks) if checks else None
    try:
        stdout, stderr = child.communicate(input, timeout)
    except subprocess.TimeoutExpired as error:
        raise CrashError(
            f"`{argv[0]}` did not end within {timeout:g} s",
            where=" ".join(argv),
            hint="raise the time limit, or look for what keeps it busy",
        ) from error
    finally:
        end(child)
        lines = {name: reader.close() for name, reader in readers.items()}
        if checker is not None:
            checker.close()
    return Completed(
        argv=tuple(argv),
        returncode=child.returncode,
        stdout=_text(lines.get("stdout", stdout)),
        stderr=_text(lines.get("stderr", stderr)),
        seconds=time.monotonic() - started,
    )


def _text(data: bytes | None) -> str:
    return (data or b"").decode(errors="backslashreplace")


class _LineReader:
    """Takes a child's standard output or error over and hands on its lines while the child runs."""

    def __init__(self, child: Child, name: str, on_line: Callable[[str], object]) -> None:
        self._stream: IO[bytes] = getattr(child, name)
        setattr(child, name, None)  # communicate() leaves it alone now
        self._on_line = on_line
        self._lines: list[bytes] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            self._lines.append(line)
            self._on_line(line.decode(errors="backslashreplace").rstrip("\n"))

    def close(self) -> bytes:
        """Everything that the child wrote; to be called when it has ended."""
        self._thread.join(_GRACE_SECONDS)  # a process that left the child's group may hold the pipe open
        if not self._thread.is_alive():
            self._stream.close()
        return b"".join(self._lines)


class _Checker:
    """Looks after a child while it runs, and kills it when something is wrong."""

    def __init__(self, child: Child, checks: Sequence[Callable[[], object]]) -> None:
        self._child = child
        self._checks = checks
        self._over = threading.Event()
        self._error: Exception | None = None
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._over.wait(_CHECK_SECONDS):
            try:
                for check in self._checks:
                    check()
            except Exception as error:  # noqa: BLE001 - raised again by who waits for the child
                self._error = error
                _kill_group(self._child)
                return

    def close(self) -> None:
        """Stop; raises what the check has raised."""
        self._over.set()
        if self._error is not None:
            raise self._error


def _memory_check(program: str, pid: int, limit: int | None) -> Callable[[], object] | None:
    if limit is None:
        return None

    def check() -> None:
        held = held_bytes(pid)
        if held > limit:
            raise MemoryLimitError(
                f"`{program}` held more memory than it may",
                why=f"{held:,} bytes; the limit is {limit:,}",
                hint="raise the memory limit",
            )

    return check


def stop_all() -> None:
    """Kill every program that `run` waits for in any thread, and from now on each one as soon as it starts.

    For the end of a process: an interrupt reaches the main thread only, and children lead their own groups.
    Safe in a signal handler.
    """
    _stopped.set()
    with _lock:
        for child in tuple(_running):
            _kill_group(child)


def stopping() -> bool:
    """Whether `stop_all` was called: what waits may give up."""
    return _stopped.is_set()


def start(
    argv: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    prepare: Callable[[], object] | None = None,
) -> Child:
    """Start `argv`, for `end` to end it; the streams are file descriptors, or what subprocess takes for them.

    The child leads a session of its own, and its environment has a mark of ours. `prepare` is called in it
    before it becomes the program. Raises HostError when it cannot be started.
    """
    environment = {**(inherited_environment() if env is None else env), MARK: stand_by()}
    try:
        with deferred_signals():
            child = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=environment,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=prepare,
            )
            reap_if_killed(child.pid)
            with _lock:
                _running.add(child)
                if _stopped.is_set():
                    _kill_group(child)
    except OSError as error:
        raise cannot_start(argv, error) from error
    return child


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until what belongs together is done: a child is started and known, say.

    Python runs signal handlers in the main thread only, so other threads need nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    raising = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in raising:
        signal.signal(number, lambda number, _frame: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)
        for one in arrived:
            signal.raise_signal(one)


def end(child: Child) -> None:
    """Kill the group of a child that `start` made and that has not ended, reap it and close its pipes."""
    with _lock:
        _running.discard(child)
    if child.returncode is None:
        _kill_group(child)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_SECONDS)
    reaped(child.pid)
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _kill_group(child: Child) -> None:
    """Kill the group of a child that was not reaped: until then no one else can be given its process id."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
