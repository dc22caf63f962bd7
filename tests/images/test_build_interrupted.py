"""A build that is interrupted or killed: soon nothing of it is left, and the next one needs no repair."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import environment
from tests.support.engine import TestEngine
from tests.support.leftovers import containers, remove_small_images, sleeping, until, volumes
from tests.support.plans import small_plan
from toolchain.engine import store
from toolchain.engine.build import build_image
from toolchain.engine.choice import BuildOptions

DRIVER = """
import signal, sys
from tests.support.plans import small_plan
from toolchain import main
from toolchain.engine.build import build_image
from toolchain.engine.client import open_engine
from toolchain.engine.choice import BuildOptions
from toolchain.engine.endpoint import Endpoint
url, base, builder, seconds = sys.argv[1:]
signal.signal(signal.SIGINT, main._interrupt)
signal.signal(signal.SIGTERM, main._terminate)
print("begins", flush=True)
build_image(open_engine(Endpoint(url, "a test")), small_plan(base, word="long", seconds=seconds),
            options=BuildOptions(builder), secrets={"tk-ca": b"mark"})
"""
PATIENCE = 5.0
ENGINES = [
    pytest.param("docker_engine", "auto", id="docker"),
    pytest.param("docker_engine", "classic", id="classic"),
    pytest.param("remote_engine", "auto", id="remote"),
    pytest.param("podman_engine", "auto", id="podman"),
]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
@pytest.mark.parametrize(("fixture", "builder"), ENGINES)
def test_nothing_is_left(
    request: pytest.FixtureRequest, tmp_path: Path, fixture: str, builder: str, number: signal.Signals
) -> None:
    under_test: TestEngine = request.getfixturevalue(fixture)
    engine = under_test.open()
    seconds = f"6{secrets.randbelow(10**9)}"
    argv = [sys.executable, "-c", DRIVER, under_test.url, under_test.base, builder, seconds]
    child = subprocess.Popen(argv, env=environment(), cwd=tmp_path, stderr=subprocess.DEVNULL)
    assert until(lambda: sleeping(seconds), 60), "the step never began"
    child.send_signal(number)
    child.wait(PATIENCE)
    assert until(lambda: not sleeping(seconds), PATIENCE), "the step still runs"
    assert until(lambda: containers(engine) == [], PATIENCE), containers(engine)
    assert volumes(engine) == []
    assert [one for one in store.list_images(engine) if one.name == "small-long"] == []
    plan = small_plan(under_test.base, word="long", seconds="0.1")
    assert not build_image(engine, plan, options=BuildOptions(builder), secrets={"tk-ca": b"mark"}).cached  # type: ignore[arg-type]
    remove_small_images(engine)
