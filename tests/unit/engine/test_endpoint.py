"""Which engine: the order of what names one, contexts and their keys, and what is wrong with a name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from compiler import BadInputError, UsageError
from toolchain.engine import endpoint
from toolchain.engine.endpoint import Endpoint, resolve_endpoint
from toolchain.settings import EngineSettings, engine_settings


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(endpoint, "DEFAULT_DOCKER", tmp_path / "no-docker.sock")
    monkeypatch.setattr(endpoint, "DEFAULT_PODMAN", tmp_path / "no-podman.sock")


def settings(home: Path, **variables: str) -> EngineSettings:
    return engine_settings({"HOME": str(home), "PATH": "/usr/bin", **variables})


def add_context(home: Path, name: str, host: str, *, current: bool = False, tls: bool = False) -> None:
    identity = hashlib.sha256(name.encode()).hexdigest()
    meta = home / ".docker" / "contexts" / "meta" / identity
    meta.mkdir(parents=True)
    document = {"Name": name, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
    (meta / "meta.json").write_text(json.dumps(document))
    if tls:
        keys = home / ".docker" / "contexts" / "tls" / identity / "docker"
        keys.mkdir(parents=True)
        (keys / "ca.pem").write_text("")
    if current:
        (home / ".docker" / "config.json").write_text(json.dumps({"currentContext": name}))


def test_the_order(tmp_path: Path) -> None:
    add_context(tmp_path, "here", "unix:///context.sock", current=True)
    add_context(tmp_path, "other", "tcp://other:2376")
    everything = settings(tmp_path, DOCKER_HOST="tcp://variable:1", DOCKER_CONTEXT="other")
    assert resolve_endpoint("ssh://me@box", settings=everything).url == "ssh://me@box"
    found = resolve_endpoint(settings=everything)
    assert (found.url, found.source) == ("tcp://variable:1", "DOCKER_HOST")
    found = resolve_endpoint(settings=settings(tmp_path, DOCKER_CONTEXT="other"))
    assert (found.url, found.source) == ("tcp://other:2376", "the context `other`, DOCKER_CONTEXT")
    found = resolve_endpoint(settings=settings(tmp_path))
    assert found.url == "unix:///context.sock"
    assert "currentContext" in found.source


def test_the_usual_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = settings(tmp_path, XDG_RUNTIME_DIR=str(tmp_path / "run"))
    docker, podman = tmp_path / "docker.sock", tmp_path / "podman.sock"
    monkeypatch.setattr(endpoint, "DEFAULT_DOCKER", docker)
    monkeypatch.setattr(endpoint, "DEFAULT_PODMAN", podman)
    assert resolve_endpoint(settings=own).url == f"unix://{docker}"  # so that the message names it
    podman.touch()
    assert resolve_endpoint(settings=own).url == f"unix://{podman}"
    assert resolve_endpoint(kind="docker", settings=own).url == f"unix://{docker}"
    rootless = tmp_path / "run" / "docker.sock"
    rootless.parent.mkdir()
    rootless.touch()
    assert resolve_endpoint(settings=own).url == f"unix://{rootless}"
    docker.touch()
    assert resolve_endpoint(settings=own).url == f"unix://{docker}"
    assert resolve_endpoint(kind="podman", settings=own).url == f"unix://{podman}"


def test_podman_has_a_variable_of_its_own(tmp_path: Path) -> None:
    own = settings(tmp_path, CONTAINER_HOST="unix:///c.sock", DOCKER_HOST="unix:///d.sock")
    assert resolve_endpoint(kind="podman", settings=own).url == "unix:///c.sock"
    assert resolve_endpoint(settings=own).url == "unix:///d.sock"


def test_keys(tmp_path: Path) -> None:
    add_context(tmp_path, "safe", "tcp://safe:2376", tls=True)
    found = resolve_endpoint(settings=settings(tmp_path, DOCKER_CONTEXT="safe"))
    assert found.tls is not None
    assert found.tls.verify
    assert found.tls.ca.exists()
    own = settings(tmp_path, DOCKER_HOST="tcp://x:1", DOCKER_TLS_VERIFY="1", DOCKER_CERT_PATH="/keys")
    found = resolve_endpoint(settings=own)
    assert found.tls is not None
    assert found.tls.cert == Path("/keys/cert.pem")
    assert resolve_endpoint("unix:///x", settings=own).tls is None


def test_a_path_is_a_socket(tmp_path: Path) -> None:
    assert resolve_endpoint("/run/x.sock", settings=settings(tmp_path)).url == "unix:///run/x.sock"


@pytest.mark.parametrize("url", ["docker", "ftp://x", "tcp://", "unix://a b", "--privileged"])
def test_no_address(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError, match="not the address of an engine"):
        resolve_endpoint(url, settings=settings(tmp_path))


def test_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_endpoint(kind="podmann", settings=settings(tmp_path))
    assert caught.value.hint == "did you mean 'podman'?"


def test_missing_context(tmp_path: Path) -> None:
    add_context(tmp_path, "laboratory", "unix:///x.sock")
    with pytest.raises(BadInputError) as caught:
        resolve_endpoint(settings=settings(tmp_path, DOCKER_CONTEXT="laboratori"))
    assert caught.value.hint == "did you mean 'laboratory'?"
    assert caught.value.where == "DOCKER_CONTEXT"


@pytest.mark.parametrize(
    "content", ["{", '{"Name": "broken", "Endpoints": {"docker": {"Host": 5}}}', '{"Endpoints": []}']
)
def test_broken_context(tmp_path: Path, content: str) -> None:
    add_context(tmp_path, "broken", "unix:///x.sock")
    [meta] = (tmp_path / ".docker" / "contexts" / "meta").glob("*/meta.json")
    meta.write_text(content)
    with pytest.raises(BadInputError) as caught:
        resolve_endpoint(settings=settings(tmp_path, DOCKER_CONTEXT="broken"))
    assert caught.value.where == str(meta)


def test_broken_configuration(tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text("currentContext: x")
    with pytest.raises(BadInputError, match="not JSON"):
        resolve_endpoint(settings=settings(tmp_path))


def test_what_it_says_of_itself() -> None:
    local = Endpoint("unix:///x.sock", "the default")
    assert str(local) == "unix:///x.sock (the default)"
    assert local.is_local
    assert not Endpoint("tcp://127.0.0.1:1", "DOCKER_HOST").is_local


def test_clients_of_engines_get_no_other_engine(tmp_path: Path) -> None:
    own = settings(tmp_path, DOCKER_HOST="tcp://x:1", DOCKER_CONTEXT="y", BUILDX_BUILDER="mine")
    assert "DOCKER_HOST" not in own.cli
    assert "DOCKER_CONTEXT" not in own.cli
    assert own.cli["BUILDX_BUILDER"] == "mine"
