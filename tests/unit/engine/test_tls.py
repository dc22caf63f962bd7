"""An engine behind TLS with a CA of its own, as `dockerd --tlsverify`: its keys count, and no others."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from compiler import HostError
from tests.support.broken_engine import VERSION
from toolchain.engine.client import open_engine
from toolchain.engine.endpoint import Endpoint, resolve_endpoint
from toolchain.settings import engine_settings


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, and cert.pem with key.pem signed by it, good for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("no program `openssl` makes the keys")
    folder = tmp_path_factory.mktemp("keys")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    new = ["-newkey", "rsa:2048", "-nodes"]
    for argv in (
        ["req", "-x509", *new, "-days", "2", "-subj", "/CN=ca", "-keyout", "ca-key.pem", "-out", "ca.pem"],
        ["req", "-x509", *new, "-days", "2", "-subj", "/CN=other", "-keyout", "x.pem", "-out", "other.pem"],
        ["req", *new, "-subj", "/CN=engine", "-keyout", "key.pem", "-out", "request.pem"],
        ["x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial",
         "-days", "2", "-extfile", "names", "-out", "cert.pem"],
    ):  # fmt: skip
        subprocess.run(["openssl", *argv], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def port(keys: Path) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps(VERSION).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(HTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "cert.pem", keys / "key.pem")
    context.load_verify_locations(keys / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with Server(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_its_own_ca_counts(keys: Path, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(keys / "other.pem"))
    assert open_engine(engine_at(port, tmp_path, DOCKER_CERT_PATH=str(keys))).version == VERSION["Version"]


def test_without_keys(port: int, tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        open_engine(engine_at(port, tmp_path))
    [line] = caught.value.lines()
    assert "DOCKER_CERT_PATH" in line


def engine_at(port: int, home: Path, **variables: str) -> Endpoint:
    known = {
        "HOME": str(home),
        "DOCKER_HOST": f"tcp://127.0.0.1:{port}",
        "DOCKER_TLS_VERIFY": "1",
        **variables,
    }
    return resolve_endpoint(settings=engine_settings(known))
