"""Who waits for a server or an engine that says nothing gives up at some time."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compiler import HostError
from toolchain.data import data_directory
from toolchain.engine.endpoint import Endpoint
from toolchain.engine.watch import Patience, Watch, WorkLostError
from toolchain.images.plan import BaseImage, ContextFile, Plan, Run, Stage
from toolchain.images.steps import site_step
from toolchain.provision.resolving import resolve_packages
from toolchain.site import SiteConfig

SCRIPT = data_directory("dockerfiles") / "tk" / "site.sh"
PATIENT = 60.0
"""Seconds for what gives up after one or two."""


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes every question, begins to answer, and says no more."""
    connections: list[socket.socket] = []

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connections.append(server.accept()[0])
                connections[-1].sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/x"
        server.shutdown(socket.SHUT_RDWR)
    for one in connections:
        one.close()


@pytest.mark.parametrize("program", ["curl", "wget", "python3"])
def test_a_download_that_stalls(silent: str, program: str, tmp_path: Path) -> None:
    text, patience = re.subn("^silence=[0-9]+$", "silence=1", SCRIPT.read_text(), flags=re.MULTILINE)
    text, programs = re.subn(r"command -v (\w+)", rf"[ \1 = {program} ]", text)
    assert (patience, programs > 1) == (1, True)
    script = tmp_path / "site.sh"
    script.write_text(text.replace("--retry 3", "--retry 0").replace("--tries=4", "--tries=1"))
    argv = ["sh", str(script), "fetch", silent, "0" * 64, str(tmp_path / "file")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENT, check=False)
    assert done.returncode != 0
    assert not (tmp_path / "file").exists()


class LosingEngine:
    """An engine whose word that a container has ended never comes."""

    def __init__(self) -> None:
        self.never = threading.Event()
        self.api = SimpleNamespace(put_archive=_nothing, start=_nothing, wait=self._wait)

    def _wait(self, _name: str, timeout: float) -> None:
        self.never.wait(timeout)

    def container(self, *_arguments: object, **_options: object) -> Any:
        return contextlib.nullcontext("tk-run-1")

    def guard(self, *_arguments: object) -> Any:
        return contextlib.nullcontext()

    def watch(self, doing: str, container: str) -> Watch:
        def ask(_seconds: float) -> None:
            raise WorkLostError(f"the container {container} has ended")

        return Watch(Endpoint("unix:///x", "test"), doing, Patience(quiet=0.1, ask=0.1, tries=1), ask)


def _nothing(*_arguments: object) -> None:
    pass


def test_packages_whose_container_ended_without_a_word() -> None:
    engine: Any = LosingEngine()
    stage = Stage("system", (Run((site_step("apt", "install", "gcc"),)),))
    files = (ContextFile("tk/site.sh", b""),)
    plan = Plan(
        name="x", repository="tk/x", tag="1", base=BaseImage("debian:1"), stages=(stage,), files=files
    )
    with pytest.raises(HostError, match=r"cannot ask for the packages of x: .*tk-run-1 has ended"):
        resolve_packages(engine, plan, SiteConfig())
    engine.never.set()
