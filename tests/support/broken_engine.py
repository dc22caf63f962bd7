"""An engine that misbehaves: a server on a socket that answers as a test says."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

VERSION = {"Version": "25.0.0", "ApiVersion": "1.44", "Components": [{"Name": "Engine"}]}


class Request:
    """One request, and the ways to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: bytes, stop: threading.Event) -> None:
        self.method = handler.command
        self.path = handler.path.partition("?")[0].partition("/v1.")[2].partition("/")[2] or handler.path
        self.path = self.path.partition("?")[0].lstrip("/")
        self.query = handler.path.partition("?")[2]
        self.body = body
        self._handler = handler
        self._stop = stop

    def answer(self, value: Any, status: int = 200) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self._handler.send_response(status)
        self._handler.send_header("Content-Type", "application/json")
        self._handler.send_header("Content-Length", str(len(data)))
        self._handler.end_headers()
        self._handler.wfile.write(data)

    def drop(self) -> None:
        self._handler.close_connection = True
        self._handler.connection.close()

    def hang(self) -> None:
        self._stop.wait(60)
        self._handler.close_connection = True


Answer = Callable[[Request], None]


@contextlib.contextmanager
def fake_engine(folder: Path, answer: Answer) -> Iterator[str]:
    """The URL of an engine that says its version and leaves everything else to `answer`."""
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(self, body, stop)
            with contextlib.suppress(OSError, ValueError):
                answer(request)

        do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = handle_one  # noqa: N815 - names of the library

        def address_string(self) -> str:
            return "client"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass

    path = folder / "e.sock"
    with Server(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            stop.set()
            server.shutdown()
            thread.join()


def healthy(request: Request) -> bool:
    """Answer questions about the version; says whether it did."""
    if request.path == "version":
        request.answer(VERSION)
        return True
    return False
