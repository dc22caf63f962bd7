"""A small image on each engine and with each builder: what is in it, what is not, and what is left behind."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler import BuildError
from tests.support.engine import TestEngine
from tests.support.image_config import config_of
from tests.support.plans import MARK, plan_with_component, small_plan
from toolchain.engine import store
from toolchain.engine.build import build_image
from toolchain.engine.choice import BuilderName, BuildOptions
from toolchain.engine.client import Engine
from toolchain.engine.events import Event
from toolchain.images.plan import CA_SECRET, PATH_DEFAULT, Run, Stage

SECRETS = {CA_SECRET: MARK.encode()}
COMBINATIONS = [
    pytest.param("small_docker", "auto", id="docker"),
    pytest.param("docker_engine", "classic", id="docker-classic", marks=pytest.mark.slow),
    pytest.param("remote_engine", "auto", id="remote", marks=pytest.mark.slow),
    pytest.param("remote_engine", "classic", id="remote-classic", marks=pytest.mark.slow),
    pytest.param("podman_engine", "auto", id="podman", marks=pytest.mark.slow),
]


@pytest.fixture
def where(request: pytest.FixtureRequest) -> Iterator[tuple[Engine, str, BuilderName]]:
    name, builder = request.param
    under_test: TestEngine = request.getfixturevalue(name)
    engine = under_test.open()
    yield engine, under_test.base, builder
    ours = [one for one in store.list_images(engine, untagged=True) if one.name.startswith("small")]
    store.remove_images(engine, ours, force=True)
    assert containers(engine) == []
    assert volumes(engine) == []


def containers(engine: Engine) -> list[Any]:
    with engine.guard("list"):
        return [one["Names"] for one in engine.api.containers(all=True)]


def volumes(engine: Engine) -> list[str]:
    with engine.guard("list"):
        found = engine.api.volumes().get("Volumes") or []
    return [one["Name"] for one in found if not one["Name"].startswith("tk-cache-")]


def parametrize(function: Any) -> Any:
    pairs = [pytest.param(one.values, id=one.id, marks=one.marks) for one in COMBINATIONS]
    return pytest.mark.parametrize("where", pairs, indirect=True)(function)


@parametrize
def test_build(where: tuple[Engine, str, BuilderName]) -> None:
    engine, base, builder = where
    plan = small_plan(base)
    events: list[Event] = []
    hear = recording(events)
    built = build_image(engine, plan, options=BuildOptions(builder), secrets=SECRETS, progress=hear)
    assert not built.cached
    digest = hashlib.sha256(MARK.encode()).hexdigest()
    assert engine.run(plan.reference, ["cat", "/made"]).output == f"one {digest}  -\n"
    assert engine.run(plan.reference, ["id", "-u"]).output == "10000\n"
    assert built.log is not None
    assert "/made" in built.log.read_text()
    assert {"started", "done"} <= {one.kind for one in events}
    assert_nowhere(engine, plan.reference, MARK)
    assert config_of(engine, plan.reference) == {
        "Cmd": ["cat", "/made"],
        "User": "10000:10000",
        "Env": {"PATH": PATH_DEFAULT},
        "Labels": {**dict(plan.labels), **dict(plan.build_labels)},
    }

    started = time.monotonic()
    again = build_image(engine, plan, options=BuildOptions(builder), secrets=SECRETS)
    assert (again.cached, again.id) == (True, built.id)
    assert time.monotonic() - started <= 2

    [listed] = [one for one in store.list_images(engine) if one.name == "small-one"]
    assert (listed.state, listed.references, listed.plan) == ("stand-in", (plan.reference,), plan.key)
    store.remove_images(engine, [listed])
    rebuilt = build_image(engine, plan, options=BuildOptions(builder), secrets=SECRETS)
    assert not rebuilt.cached
    assert engine.run(plan.reference, ["cat", "/made"]).code == 0


@parametrize
def test_failing_step(where: tuple[Engine, str, BuilderName]) -> None:
    engine, base, builder = where
    bad = small_plan(base, word="bad", fails=True)
    with pytest.raises(BuildError) as caught:
        build_image(engine, bad, options=BuildOptions(builder), secrets=SECRETS)
    assert "no such thing: 42" in caught.value.why
    assert caught.value.code == 5
    assert [one for one in store.list_images(engine) if one.name == "small-bad"] == []


@pytest.mark.slow
@parametrize
def test_components_come_first(where: tuple[Engine, str, BuilderName]) -> None:
    engine, base, builder = where
    plan = plan_with_component(base)
    built = build_image(engine, plan, options=BuildOptions(builder))
    assert [one.reference for one in built.needs] == [plan.needs[0].reference]
    assert engine.run(plan.reference, ["cat", "/opt/part/file"]).output == "whole\n"
    [part] = [one for one in store.list_images(engine) if one.name == "small-part"]
    store.remove_images(engine, [one for one in store.list_images(engine) if one.name == "small-whole"])
    again = build_image(engine, plan, options=BuildOptions(builder))
    assert not again.cached
    assert [(one.id, one.cached) for one in again.needs] == [(part.id, True)]


@pytest.mark.slow
@parametrize
def test_no_cache_runs_every_step(where: tuple[Engine, str, BuilderName]) -> None:
    engine, base, builder = where
    plan = small_plan(base)
    build_image(engine, plan, options=BuildOptions(builder), secrets=SECRETS)
    events: list[Event] = []
    options = BuildOptions(builder, no_cache=True)
    built = build_image(engine, plan, secrets=SECRETS, options=options, progress=recording(events))
    assert not built.cached
    assert "kept" in "".join(one.text for one in events if one.kind == "output") or events
    assert all(one.kind != "cached" for one in events if one.text.startswith("RUN"))


@pytest.mark.slow
@parametrize
def test_no_network(where: tuple[Engine, str, BuilderName]) -> None:
    engine, base, builder = where
    plan = small_plan(base, word="alone")
    step = Run((("sh", "-c", "cat /proc/net/dev > /seen"),))
    last = plan.stages[-1]
    stages = (*plan.stages[:-1], Stage(last.name, (*last.instructions[:2], step, *last.instructions[2:])))
    plan = dataclasses.replace(plan, stages=stages)
    for network, reaches in (("none", False), ("", True)):
        options = BuildOptions(builder, no_cache=True, network=network)
        build_image(engine, plan, secrets=SECRETS, options=options)
        seen = engine.run(plan.reference, ["cat", "/seen"]).output
        assert ("eth0" in seen) == reaches, seen


def recording(events: list[Event]) -> Any:
    import contextlib

    return lambda _reference, _times: contextlib.nullcontext(events.append)


def assert_nowhere(engine: Engine, reference: str, mark: str) -> None:
    """The text is in no layer, no file, no configuration and no history of an image."""
    with engine.guard("save the image"):
        data = b"".join(engine.api.get_image(reference))
        history = str(engine.api.history(reference))
    assert mark not in history
    seen = 0
    with tarfile.open(fileobj=io.BytesIO(data)) as saved:
        for member in saved:
            stream = saved.extractfile(member) if member.isfile() else None
            content = stream.read() if stream else b""
            assert mark.encode() not in content, member.name
            seen += content.count(b"org.opencontainers.image.title")
    assert seen, "what was searched is not the image"


def test_a_file_of_an_image_is_read_without_running_it(small_docker: TestEngine) -> None:
    engine = small_docker.open()
    read = engine.read_file(small_docker.base, "/etc/os-release")
    assert read == Path("/etc/os-release").read_bytes()
    assert engine.read_file(small_docker.base, "/no/such/file") is None


def test_a_program_in_an_image(small_docker: TestEngine) -> None:
    engine = small_docker.open()
    finished = engine.run(small_docker.base, ["sh", "-c", "id -u; exit 3"], user="1000:1000")
    assert (finished.code, finished.output) == (3, "1000\n")
    assert containers(engine) == []


@pytest.mark.slow
def test_the_remote_engine_sees_no_files_of_ours(remote_engine: TestEngine, tmp_path: Any) -> None:
    (tmp_path / "file").write_text("x")
    engine = remote_engine.open()
    assert not engine.is_local
    host = {"binds": {str(tmp_path): {"bind": "/seen", "mode": "ro"}}}
    assert engine.run(remote_engine.base, ["ls", "/seen"], host=host).output == ""
