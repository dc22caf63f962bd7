"""The engines themselves: they answer, have the base, and a container sees what it should."""

from __future__ import annotations

import pytest

from tests.support.engine import TestEngine


def test_docker(docker_engine: TestEngine) -> None:
    engine = docker_engine.open()
    assert engine.kind == "docker"
    assert (engine.read_file(docker_engine.base, "/etc/os-release") or b"").startswith(b'PRETTY_NAME="Debian')
    assert engine.read_file(docker_engine.base, "/no/such/file") is None
    finished = engine.run(docker_engine.base, ["sh", "-c", "id -u; exit 3"], user="1000:1000")
    assert (finished.code, finished.output) == (3, "1000\n")
    with engine.guard("list"):
        assert engine.api.containers(all=True) == []


@pytest.mark.slow
def test_podman(podman_engine: TestEngine) -> None:
    engine = podman_engine.open()
    assert engine.kind == "podman"
    assert engine.run(podman_engine.base, ["echo", "x"]).output.strip() == "x"


@pytest.mark.slow
def test_remote(remote_engine: TestEngine, tmp_path: object) -> None:
    engine = remote_engine.open()
    assert not engine.is_local
    host = {"binds": {str(tmp_path): {"bind": "/seen", "mode": "ro"}}}
    assert engine.run(remote_engine.base, ["ls", "/seen"], host=host).output == ""
