"""The process that removes containers of a killed `tk`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler import Companion, HostError
from tests.support.command import ROOT
from toolchain.engine.endpoint import Endpoint, Tls
from toolchain.engine.guardian import endpoint_of, introduction, left


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
