"""Builds on engines that fail on the way, with builders that are programs of the test."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler import BuildError, HostError, TkError, UsageError
from tests.support.broken_engine import Request, fake_engine, healthy
from tests.support.plans import small_plan
from tests.support.processes import ended
from toolchain.engine import build as build_module
from toolchain.engine import builders
from toolchain.engine.build import build_image
from toolchain.engine.builders import BuildKitClient, BuildRequest, Failure, build_with_api
from toolchain.engine.choice import BuildOptions
from toolchain.engine.client import Engine, open_engine
from toolchain.engine.endpoint import Endpoint
from toolchain.engine.events import Event
from toolchain.engine.watch import HungError, Patience
from toolchain.images.plan import ContextFile, Plan
from toolchain.web import UnreachableError

Start = Callable[..., Engine]
BASE = {"Id": "sha256:1", "Config": {}}
SHORT = Patience(answer=10.0, quiet=0.3, ask=0.3, tries=3, clean_up=0.5)


@pytest.fixture
def start() -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def begin(**answers: Callable[[Request], None]) -> Engine:
            def answer(request: Request) -> None:
                if healthy(request):
                    return
                name = request.path.partition("/")[0]
                if name in answers:
                    answers[name](request)
                else:
                    request.answer({"message": "no such thing"}, 404)

            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            endpoint = Endpoint(stack.enter_context(fake_engine(folder, answer)), "a test")
            return open_engine(endpoint, patience=SHORT)

        yield begin


def build(engine: Engine) -> tuple[Any, list[Event], list[str]]:
    events: list[Event] = []
    log: list[str] = []
    request = BuildRequest("tk/x:1", (ContextFile("Dockerfile", b"FROM scratch\n"),))
    failure, identity = build_with_api(engine, request, b"", events.append, log)
    return failure or identity, events, log


def stream(*parts: object) -> Callable[[Request], None]:
    return lambda one: one.answer(b"\r\n".join(json.dumps(part).encode() for part in parts))


def test_the_stream_of_an_engine(start: Start) -> None:
    parts = ({"stream": "Step 1/1 : FROM scr"}, {"stream": "atch\n"}, {"aux": {"ID": "sha256:2"}})
    identity, events, log = build(start(build=stream(*parts)))
    assert identity == "sha256:2"
    assert log == ["Step 1/1 : FROM scratch"]
    assert [one.kind for one in events] == ["started", "done"]


def test_an_error_in_the_stream(start: Start) -> None:
    parts = ({"stream": "Step 1/1 : RUN x\nx: not found\n"}, {"error": "x returned 127"})
    failure, events, log = build(start(build=stream(*parts)))
    assert failure.why == "x returned 127"
    assert [one.kind for one in events] == ["started", "output", "failed"]
    assert log[-1] == "x returned 127"


def test_a_refusal(start: Start) -> None:
    failure, _, _ = build(start(build=lambda one: one.answer({"message": "unknown flag: mount"}, 400)))
    assert failure.why == "unknown flag: mount"


def test_a_connection_that_drops(start: Start) -> None:
    with pytest.raises(HostError) as caught:
        build(start(build=Request.drop))
    assert "dropped the connection" in caught.value.what
    assert caught.value.lines()[1:] == []


def test_a_service_that_hangs(start: Start) -> None:
    began = time.monotonic()
    with pytest.raises(
        HungError, match=r"cannot build tk/x:1: nothing has come for \d s, and the engine at .* \(asked 3"
    ):
        build(start(build=Request.hang, _ping=Request.hang))
    assert time.monotonic() - began < 6


def test_a_service_that_is_silent_but_lives(start: Start) -> None:
    def slowly(request: Request) -> None:
        time.sleep(2)
        stream({"stream": "Step 1/1 : FROM scratch\n"}, {"aux": {"ID": "sha256:2"}})(request)

    asked: list[str] = []

    def ping(request: Request) -> None:
        asked.append(request.path)
        request.answer(b"OK")

    identity, _, _ = build(start(build=slowly, _ping=ping))
    assert identity == "sha256:2"
    assert len(asked) >= 2


PROGRAM = """#!/bin/sh
cat > /dev/null
echo "#1 [image 1/1] RUN make"
echo "#1 0.5 make: *** No rule to make target"
echo "#1 ERROR: executor failed running [/bin/sh -c make]: exit code: 2"
echo "executor failed running [/bin/sh -c make]: exit code: 2" >&2
exit 1
"""


@pytest.fixture
def failing_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "docker"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    client = BuildKitClient(program, ("build",), "20.10.24")
    monkeypatch.setattr(builders, "find_buildkit", lambda: (client, ()))


def images(request: Request) -> None:
    """No image but the base, which has the recipe's system."""
    if request.path == "images/base/json":
        request.answer(BASE)
    elif request.path == "images/json":
        request.answer([])
    else:
        request.answer({"message": "no such image"}, 404)


def containers(request: Request) -> None:
    if request.path == "containers/json":
        request.answer([])
    elif request.path == "containers/create":
        request.answer({"Id": "c", "Warnings": []}, 201)
    elif request.path.endswith("/archive"):
        request.answer(b"")
    else:
        request.answer(b"", 204)


def without_stand_in() -> Plan:
    import dataclasses

    plan = small_plan("base")
    return dataclasses.replace(plan, base=dataclasses.replace(plan.base, stand_in=False))


@pytest.mark.usefixtures("failing_client")
def test_a_failing_step_is_shown_with_its_last_lines(start: Start) -> None:
    engine = start(
        images=images,
        containers=containers,
        volumes=lambda one: one.answer({"Volumes": []}),
        _ping=lambda one: one.answer(b"OK"),
    )
    with pytest.raises(BuildError) as caught:
        build_image(engine, without_stand_in())
    error = caught.value
    assert error.code == 5
    assert error.why.splitlines() == [
        "[image 1/1] RUN make",
        "make: *** No rule to make target",
        "executor failed running [/bin/sh -c make]: exit code: 2",
    ]
    log = Path(error.where.partition(" (")[0])
    assert "No rule to make target" in log.read_text()


def test_caches_elsewhere_need_buildkit(start: Start) -> None:
    engine = start(images=images, containers=containers, volumes=lambda one: one.answer({"Volumes": []}))
    with pytest.raises(UsageError, match="only BuildKit can take or keep a cache"):
        build_image(engine, without_stand_in(), options=BuildOptions("classic", cache_to=("type=inline",)))


def test_a_builder_s_program_ends_when_its_engine_hangs(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\necho '#1 [1/1] RUN make'\nexec sleep 60\n")
    program.chmod(0o755)
    client = BuildKitClient(program, ("build",), "20.10.24")
    monkeypatch.setattr(builders, "find_buildkit", lambda: (client, ()))
    engine = start(
        images=images,
        containers=containers,
        volumes=lambda one: one.answer({"Volumes": []}),
        _ping=Request.hang,
    )
    began = time.monotonic()
    with pytest.raises(HungError, match=r"cannot build tk/small:one-\w+: nothing has come"):
        build_image(engine, without_stand_in())
    assert time.monotonic() - began < 8
    assert ended(int((tmp_path / "pid").read_text()))


@pytest.mark.usefixtures("failing_client")
def test_an_engine_that_has_gone_is_why_the_build_failed(start: Start) -> None:
    engine = start(
        images=images,
        containers=containers,
        volumes=lambda one: one.answer({"Volumes": []}),
        _ping=Request.drop,
    )
    with pytest.raises(HostError, match=r"cannot go on with the build: .* dropped the connection"):
        build_image(engine, without_stand_in())


SOLVE, HEAD = "ERROR: failed to solve:", 'Head "https://r.example/v2/debian/manifests/12"'


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        (
            f"{SOLVE} x: failed to do request: {HEAD}: dial tcp: lookup r.example: no such host",
            UnreachableError,
        ),
        (f"{SOLVE} x: failed to do request: {HEAD}: x509: unknown authority", BuildError),
        (f'{SOLVE} process "/bin/sh -c curl x" did not complete successfully: exit code: 6', BuildError),
    ],
)
def test_a_base_that_cannot_be_fetched_is_the_hosts_trouble(
    start: Start, why: str, kind: type[TkError], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As it is where tk fetches the base itself; with a step that fails it is not."""
    monkeypatch.setenv("TK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build_module, "check_base", lambda _engine, _plan: {})
    monkeypatch.setattr(build_module, "_with_some_builder", lambda _work, _recorder: ("x", Failure(why)))
    nothing: Any = {"containers": [], "volumes": {}, "_ping": b"OK"}
    engine = start(**{name: (lambda one, said=said: one.answer(said)) for name, said in nothing.items()})
    with pytest.raises(kind) as caught:
        build_image(engine, small_plan("base"))
    assert type(caught.value) is kind
    assert why in caught.value.why
