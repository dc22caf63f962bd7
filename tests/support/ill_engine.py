"""A real engine that falls ill: a relay before its socket that drops, hangs or answers 500 when told to."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

Illness = Literal["drops", "hangs", "answers 500"]
ILLNESSES: tuple[Illness, ...] = ("drops", "hangs", "answers 500")

_BODY = json.dumps({"message": "the engine is ill"}).encode()
_ANSWER_500 = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)
_CHUNK_BYTES = 1 << 16


class IllEngine:
    """Relays every byte while the engine is well.

    One that drops closes all connections, and new ones at once. One that hangs passes nothing on in either
    direction on any connection, not even that it was closed, but forgets nothing: all of it arrives when the
    engine is well again, as with a process that was stopped and goes on. One that answers 500 does so to
    whatever it is asked from now on; what it was sending already goes on.
    """

    def __init__(self, url: str, path: Path) -> None:
        self.url = f"unix://{path}"
        self._target = url.removeprefix("unix://")
        self._illness: Illness | None = None
        self._passes = threading.Event()
        self._passes.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(64)
        self._start(self._serve)

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def fall_ill(self, illness: Illness) -> None:
        self._illness = illness
        if illness == "hangs":
            self._passes.clear()
        if illness == "drops":
            self._cut_all()

    def recover(self) -> None:
        self._illness = None
        self._passes.set()

    def close(self) -> None:
        self.recover()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._cut_all()
        for thread in self._threads:
            thread.join()
        for one in (self._server, *(one for pair in self._pairs for one in pair)):
            one.close()

    def _cut_all(self) -> None:
        for pair in self._pairs:
            _cut(*pair)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(self._target)
            self._pairs.append((client, engine))
            if self._illness == "drops":
                _cut(client, engine)
                continue
            self._start(self._relay, client, engine, client)
            self._start(self._relay, engine, client, client)

    def _relay(self, source: socket.socket, sink: socket.socket, client: socket.socket) -> None:
        try:
            while data := source.recv(_CHUNK_BYTES):
                self._passes.wait()
                if self._illness == "answers 500" and source is client:
                    client.sendall(_ANSWER_500)
                    _cut(source, sink)
                    return
                sink.sendall(data)
            self._passes.wait()
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            _cut(source, sink)


def _cut(*both: socket.socket) -> None:
    for one in both:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def ill_engine(url: str, folder: Path) -> Iterator[IllEngine]:
    """A relay to the engine at `url` (unix), with a socket in `folder`, well at first."""
    engine = IllEngine(url, folder / "ill.sock")
    try:
        yield engine
    finally:
        engine.close()
