"""A program in a container on this terminal: input, output, signals and size passed on, its own exit status.

The container ends with `tk`, also when `tk` is killed by kill -9. Standard input cannot tell, as its end is
no more than the end of the input; so a second process in the container, the watchdog, reads from a
connection that `tk` holds open and ends everything when that closes. The program starts once the watchdog
is there, and gives up when none comes. The engine removes the container when it has ended.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import signal
import socket
import tarfile
import termios
import threading
import time
import tty
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from compiler import HostError
from toolchain.engine.client import Engine
from toolchain.engine.sockets import STDERR, closing_stream, never_time_out, raw_socket
from toolchain.engine.watch import followed

_WATCHDOG_FILE = ".watchdog"
_WAIT_FOR_WATCHDOG = (
    'watchdog=$1; shift; n=0; while [ ! -e "$watchdog" ]; do n=$((n+1)); [ "$n" -gt 140 ] && exit 125; '
    'sleep 0.02; done; rm -f "$watchdog"; exec "$@"'
)
"""The program's first words: wait some three seconds at most for the watchdog, whose file is $1."""
_WATCHDOG = ': > "$0"; cat > /dev/null; trap "" TERM; kill -TERM -1; sleep 1; kill -KILL -1'
"""The watchdog: say that it is there, wait for the end of the connection, end every process of this user."""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that the program gets when `tk` gets them."""
_PATIENCE_SECONDS = 3.0
"""How long a program may take to end after a signal that ends programs, before it is killed."""
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Streams:
    """File descriptors of this process; `tty`: both ends are a terminal, and the container gets one, too."""

    stdin: int = 0
    stdout: int = 1
    stderr: int = 2
    tty: bool = False


@dataclass(frozen=True, slots=True)
class ContainerUser:
    """Who the program runs as; `groups` are the further ones that it is given; `home` is writable."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def run_attached(
    engine: Engine,
    image: str,
    argv: Sequence[str],
    *,
    user: ContainerUser,
    arguments: Mapping[str, Any],
    streams: Streams,
) -> int:
    """Run `argv`, after the image's entry point, and return its exit status (128 + n for signal n).

    `arguments` are those of `Engine.container`; they make `user.home` writable. The user gets an entry in
    the container's passwd and group files; the image is not changed. Raises HostError for troubles of the
    engine.
    """
    given = dict(arguments)
    host = {**given.pop("host", {}), "auto_remove": True, "init": True}
    watchdog = f"{user.home}/{_WATCHDOG_FILE}"
    script = ["/bin/sh", "-c", _WAIT_FOR_WATCHDOG, "tk", watchdog, *_entry_point(engine, image), *argv]
    own = {**given, "stdin_open": True, "tty": streams.tty}
    with engine.container(image, script[1:], entrypoint=script[:1], host=host, **own) as name:
        session = _Session(engine, name, streams)
        with closing_stream(session.attach()):
            session.start()
            add_user(engine, name, user)
            with closing_stream(session.hold(watchdog, f"{user.uid}:{user.gid}")):
                return session.follow()


def _entry_point(engine: Engine, image: str) -> list[str]:
    facts = engine.image(image)
    if facts is None:
        raise HostError(f"the engine at {engine.endpoint} has no image {image}; build or pull it")
    return [str(one) for one in (facts.get("Config") or {}).get("Entrypoint") or ()]


def add_user(engine: Engine, container: str, user: ContainerUser) -> None:
    """Give a container names for its user and groups, as many programs ask for them.

    A container that was made but not started would stay when `tk` is killed, so this comes after its start.
    """
    files = {}
    for path, lines in _entries(user).items():
        text = (engine.read_in(container, path) or b"").decode(errors="surrogateescape")
        known = {line.split(":")[2] for line in text.splitlines() if line.count(":") >= 2}
        new = [line for number, line in lines.items() if number not in known]
        if new:
            whole = "".join(f"{line}\n" for line in [*text.splitlines(), *new])
            files[path.rpartition("/")[2]] = whole.encode(errors="surrogateescape")
    if files:
        with engine.guard("name the user in the container"):
            engine.api.put_archive(container, "/etc", _archive(files))


def _entries(user: ContainerUser) -> dict[str, dict[str, str]]:
    """Lines of /etc/passwd and /etc/group, by number."""
    groups = dict.fromkeys((user.gid, *user.groups))
    return {
        "/etc/passwd": {str(user.uid): f"user{user.uid}:x:{user.uid}:{user.gid}:tk:{user.home}:/bin/sh"},
        "/etc/group": {str(one): f"host{one}:x:{one}:" for one in groups},
    }


def _archive(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()[: archive.offset]  # as `builders.archive`


class _Session:
    """One container from before its start to its end."""

    def __init__(self, engine: Engine, name: str, streams: Streams) -> None:
        self._engine = engine
        self._name = name
        self._streams = streams
        self._socket: Any = None
        self._ended = threading.Event()
        self._status: int | None = None
        self._asked_to_end = 0
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._started = time.time()

    def attach(self) -> Any:
        """Connect to the container's streams."""
        wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        with self._engine.guard("attach to the container"):
            self._socket = self._engine.api.attach_socket(self._name, params=wanted)
        never_time_out(self._socket)
        return self._socket

    def start(self) -> None:
        """Start it, with somebody waiting for its end."""
        threading.Thread(target=self._wait, daemon=True).start()
        with self._engine.guard("start the container"):
            self._engine.api.start(self._name)

    def hold(self, watchdog: str, user: str) -> Any:
        """Start its watchdog: the connection that is returned keeps it alive."""
        argv = ["/bin/sh", "-c", _WATCHDOG, watchdog]
        with self._engine.guard("hold the container"):
            made = self._engine.api.exec_create(
                self._name, argv, stdin=True, stdout=False, stderr=False, user=user
            )
            held = self._engine.api.exec_start(made["Id"], socket=True)
        never_time_out(held)
        return held

    def follow(self) -> int:
        """Pass everything on until it ends, and return its exit status."""
        with _raw(self._streams), self._passing_signals():
            threading.Thread(target=self._send_input, daemon=True).start()
            threading.Thread(target=self._send_signals, daemon=True).start()
            with self._engine.guard("read from the container"):
                self._copy_output()
            self._ended.wait(_PATIENCE_SECONDS)
        if self._asked_to_end and self._status == 128 + signal.SIGKILL:
            return 128 + self._asked_to_end
        return self._exit_status()

    def _copy_output(self) -> None:
        from docker.utils.socket import frames_iter

        watch = self._engine.watch("follow the program", self._name)
        for stream, data in followed(lambda: frames_iter(self._socket, tty=self._streams.tty), watch):
            _write(self._streams.stderr if stream == STDERR else self._streams.stdout, data)

    def _send_input(self) -> None:
        raw = raw_socket(self._socket)
        with contextlib.suppress(OSError):
            while data := os.read(self._streams.stdin, _CHUNK_BYTES):
                raw.sendall(data)
        with contextlib.suppress(OSError):
            raw.shutdown(socket.SHUT_WR)

    def _wait(self) -> None:
        """Learn the exit status; the engine may have removed the container before it was asked."""
        import docker.errors
        import requests

        # Podman answers 0 for a container that was removed (observed on 4.3).
        condition = "next-exit" if self._engine.kind == "podman" else "removed"
        with contextlib.suppress(docker.errors.DockerException, requests.RequestException, OSError):
            answer = self._engine.api.wait(self._name, timeout=None, condition=condition)
            if not answer.get("Error"):
                self._status = int(answer["StatusCode"])
        self._ended.set()

    def _exit_status(self) -> int:
        if self._status is not None:
            return self._status
        with self._engine.guard("learn how the program ended"):
            wanted = {"container": [self._name], "event": ["die"]}
            events = self._engine.api.events(
                since=int(self._started) - 1, until=int(time.time()) + 1, filters=wanted, decode=True
            )
            for event in events:
                facts = event.get("Actor", {}).get("Attributes", {})
                return int(facts.get("exitCode", facts.get("containerExitCode")))
        raise HostError(
            "the engine does not say how the program ended; see its log, and run the command again"
        )

    @contextlib.contextmanager
    def _passing_signals(self) -> Iterator[None]:
        """Have signals sent to the container; the window's size, too, where there is a terminal."""
        before = {number: signal.signal(number, self._take_signal) for number in FORWARDED}
        if self._streams.tty:
            before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._take_signal)
            self._signals.put(signal.SIGWINCH)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._signals.put(0)

    def _take_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.put(number)

    def _send_signals(self) -> None:
        while number := self._signals.get():
            with contextlib.suppress(Exception):  # the container may have ended meanwhile
                if number == signal.SIGWINCH:
                    size = os.get_terminal_size(self._streams.stdin)
                    self._engine.api.resize(self._name, size.lines, size.columns)
                else:
                    self._send_signal(number)

    def _send_signal(self, number: int) -> None:
        again = self._asked_to_end == number
        ends = number in (signal.SIGTERM, signal.SIGHUP)
        if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._asked_to_end = number
        self._engine.api.kill(self._name, signal.Signals(number).name)
        if again or (ends and not self._ended.wait(_PATIENCE_SECONDS)):
            self._engine.api.kill(self._name, "SIGKILL")


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextlib.contextmanager
def _raw(streams: Streams) -> Iterator[None]:
    """The terminal as the program in the container sees it: every key is passed on, Ctrl-C among them."""
    if not streams.tty:
        yield
        return
    before = termios.tcgetattr(streams.stdin)
    try:
        tty.setraw(streams.stdin, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(streams.stdin, termios.TCSADRAIN, before)


def groups_of(options: Iterable[str]) -> tuple[int, ...]:
    """The numbers among the values of `--group-add`."""
    return tuple(int(one) for one in options if one.isdigit())
