"""The process that removes containers of a killed `tk`."""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from compiler import Companion, HostError
from tests.support.broken_engine import Request, fake_engine, healthy
from tests.support.command import ROOT
from toolchain.engine import reaper
from toolchain.engine.endpoint import Endpoint, Tls
from toolchain.engine.reaper import endpoint_of, introduction, left


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ([], ()),
        (["+a\n", "-a\n"], ()),
        (["+a\n", "+b\n", "-a\n"], ("b",)),
        (["-a\n", "+a\n", "+b"], ("a", "b")),
    ],
)
def test_what_is_left(lines: list[str], names: tuple[str, ...]) -> None:
    assert left(lines) == names


@pytest.mark.parametrize("tls", [None, Tls(Path("ca.pem"), Path("cert.pem"), Path("key.pem"), verify=True)])
def test_it_is_told_the_same_engine(tls: Tls | None) -> None:
    endpoint = Endpoint("tcp://127.0.0.1:2375", "DOCKER_HOST", tls)
    assert endpoint_of(introduction(endpoint)) == endpoint


WRITER = """
import os, sys, time
from compiler import Companion
reader = "import sys; lines = sys.stdin.read(); open(sys.argv[1], 'w').write(lines)"
companion = Companion([sys.executable, "-c", reader, sys.argv[1]], dict(os.environ))
companion.tell("+name")
print("told", flush=True)
time.sleep(60)
"""


def test_a_companion_outlives_the_kill(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    argv = [sys.executable, "-c", WRITER, str(heard)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
    until = time.monotonic() + 10
    while (not heard.exists() or not heard.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    assert heard.read_text() == "+name\n"


def test_a_companion_that_cannot_start_is_the_host_s_trouble() -> None:
    with pytest.raises(HostError, match="cannot start"):
        Companion(["/nonexistent/program"], {})


def test_telling_a_companion_that_is_gone_is_no_error() -> None:
    companion = Companion(["/bin/true"], {})
    companion.dismiss()
    companion.tell("+name")


def test_it_waits_for_the_engine_and_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    """Nobody listens when the input ends; private directories are removed at once, containers later."""
    secrets = tmp_path / "tk-build-0123456789abcdef.part"
    secrets.mkdir()
    (secrets / "tk-ca").write_text("mark")
    asked: list[str] = []

    def answer(request: Request) -> None:
        if not healthy(request):
            asked.append(f"{request.method} {request.path}")
            request.answer(b"", 204)

    with tempfile.TemporaryDirectory() as short:
        endpoint = Endpoint(f"unix://{short}/e.sock", "a test")
        child = subprocess.Popen(
            [sys.executable, "-m", "toolchain.engine.reaper"],
            stdin=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        )
        assert child.stdin is not None
        child.stdin.write(f"{introduction(endpoint)}\n+a\n+b\n-a\n")
        child.stdin.close()
        try:
            time.sleep(2)
            assert not secrets.exists()
            assert child.poll() is None
            with fake_engine(Path(short), answer):
                assert child.wait(20) == 0
        finally:
            child.kill()
            child.wait()
    assert set(asked) == {"DELETE containers/b"}
    assert len(asked) >= 4  # and again, as a request of `tk` may still be on its way


def test_a_lock_that_outlives_the_pipe_keeps_no_directory(tmp_path: Path) -> None:
    """What is still locked when the input ends is looked at again: a dying process closes file after file."""
    held = tmp_path / "tk-job-0123456789abcdef.part"
    held.mkdir()
    handle = os.open(held, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    argv = [sys.executable, "-P", "-m", "toolchain.engine.reaper"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, text=True, env=env) as child:
        assert child.stdin is not None
        child.stdin.write(introduction(Endpoint("tcp://127.0.0.1:1", "a test")) + "\n")
        child.stdin.close()
        threading.Timer(0.6, os.close, [handle]).start()
    assert not held.exists()


def test_an_orderly_end_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [introduction(Endpoint("tcp://127.0.0.1:1", "a test")), "+a", "-a", reaper.FAREWELL, ""]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(told)))
    monkeypatch.setattr(reaper.time, "sleep", lambda _seconds: pytest.fail("it waits"))
    reaper.main()


def test_who_was_told_nothing_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    reaper.main()
