"""Engines that are not there, hang, drop the connection or answer with errors: one line, with the fix."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compiler import HostError
from tests.support import command
from tests.support.broken_engine import VERSION, Answer, Request, fake_engine, healthy
from toolchain.engine import failures, store
from toolchain.engine.client import lacks_program, open_engine
from toolchain.engine.endpoint import Endpoint
from toolchain.recipes.catalog import load_catalog
from toolchain.web import UnreachableError

Start = Callable[[Answer], Endpoint]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    import contextlib
    import tempfile

    with contextlib.ExitStack() as stack:

        def begin(answer: Answer) -> Endpoint:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))  # sockets need short names
            return Endpoint(stack.enter_context(fake_engine(folder, answer)), "a test")

        yield begin


def message(error: pytest.ExceptionInfo[HostError]) -> str:
    assert error.value.code == 4
    [line] = error.value.lines()
    assert "\n" not in line
    return line


def test_no_socket(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        open_engine(Endpoint(f"unix://{tmp_path}/docker.sock", "DOCKER_HOST"))
    line = message(caught)
    assert f"no container engine answers at unix://{tmp_path}/docker.sock (DOCKER_HOST)" in line
    assert "--docker-host" in line


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        open_engine(Endpoint("tcp://127.0.0.1:1", "DOCKER_HOST"))
    assert "no container engine answers at tcp://127.0.0.1:1" in message(caught)


def test_no_such_host() -> None:
    with pytest.raises(HostError) as caught:
        open_engine(Endpoint("tcp://no-such-host.invalid:2375", "--docker-host"))
    assert "has no address" in message(caught)


def test_not_a_socket(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError) as caught:
        open_engine(Endpoint(f"unix://{tmp_path}/file", "--docker-host"))
    assert "no container engine answers" in message(caught)


def test_it_hangs(start: Start) -> None:
    began = time.monotonic()
    with pytest.raises(HostError) as caught:
        open_engine(start(Request.hang), seconds=0.3)
    assert "does not answer within 0.3 s" in message(caught)
    assert time.monotonic() - began < 3


def test_it_drops_the_connection(start: Start) -> None:
    with pytest.raises(HostError) as caught:
        open_engine(start(Request.drop))
    assert "dropped the connection" in message(caught)


def test_it_answers_500(start: Start) -> None:
    with pytest.raises(HostError) as caught:
        open_engine(start(lambda one: one.answer({"message": "disk\nis full"}, 500)))
    line = message(caught)
    assert "answers 500: disk is full" in line
    assert "see its log" in line


def test_it_is_no_engine(start: Start) -> None:
    with pytest.raises(HostError) as caught:
        open_engine(start(lambda one: one.answer(b"<html>hello</html>")))
    assert "cannot use the container engine" in message(caught)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Request.drop, "dropped the connection"),
        (lambda one: one.answer({"message": "broken"}, 500), "answers 500: broken"),
        (lambda one: one.answer({"message": "not you"}, 403), "refuses with 403: not you"),
    ],
)
def test_later(start: Start, answer: Answer, text: str) -> None:
    engine = open_engine(start(lambda one: healthy(one) or answer(one)))
    with pytest.raises(HostError) as caught:
        engine.image("x")
    assert text in message(caught)
    assert message(caught).startswith("error: cannot look up the image x: ")


GET = 'Get "https://registry.example.com/v2/": '
LOOKUP = f"{GET}dial tcp: lookup registry.example.com"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (f"{LOOKUP} on 127.0.0.11:53: no such host", "no address for"),
        (f"{LOOKUP}: no such host".replace('"', ""), "no address for"),
        (f"pinging container registry x: {LOOKUP}: Temporary failure in name resolution", "no address for"),
        (f"{GET}proxyconnect tcp: {LOOKUP} on 1.1.1.1:53: server misbehaving", "no address for"),
        (f"{GET}x509: certificate signed by unknown authority", "does not trust the certificate of"),
        (f"{GET}dial tcp 10.0.0.1:443: connect: connection refused", "cannot reach"),
        (f"{GET}net/http: request canceled while waiting for connection", "cannot reach"),
        (f"{GET}net/http: TLS handshake timeout", "cannot reach"),
    ],
)
def test_a_registry_that_the_engine_cannot_ask(start: Start, said: str, text: str) -> None:
    """Docker and podman answer 500 with their library's words; the engine is well."""
    engine = open_engine(start(lambda one: healthy(one) or one.answer({"message": said}, 500)))
    with pytest.raises(HostError) as caught, engine.guard("ask the registry for the digest of x"):
        engine.api.inspect_distribution("registry.example.com/x:1")
    line = message(caught)
    assert f"{text}" in line
    assert "registry.example.com" in line.partition(text)[2]
    assert "answers 500" not in line
    assert "restart it" not in line
    assert isinstance(caught.value, UnreachableError) is ("certificate" not in text)


@pytest.mark.parametrize(
    ("image", "said", "kind", "hint"),
    [
        ("x:1", f"{LOOKUP}: no such host", UnreachableError, "mirrors.registry"),
        (
            "r.example.com/x:1",
            "unauthorized: authentication required",
            HostError,
            "`docker login r.example.com`",
        ),
        ("nvidia/cuda:1", "toomanyrequests: You have reached your limit", HostError, "`docker login`"),
        ("x:1", "write /var/lib/docker/x: no space left on device", HostError, "see the log of the engine"),
    ],
)
def test_a_pull_that_breaks_off(
    start: Start, image: str, said: str, kind: type[HostError], hint: str
) -> None:
    """The answer begins well; what is wrong comes in the stream."""
    engine = open_engine(start(lambda one: healthy(one) or one.answer({"error": said})))
    with pytest.raises(HostError) as caught:
        store.pull_base(engine, image)
    assert type(caught.value) is kind
    assert hint in caught.value.hint
    assert said in caught.value.why


def test_known_causes_that_are_named_are_in_the_recipes() -> None:
    named = {
        name
        for _, _, meaning, _ in failures._BEYOND
        for name in re.findall(r"known cause ([a-z-]+)", meaning)
    }
    assert named
    assert named <= set(load_catalog().issues)


def test_it_hangs_later(start: Start) -> None:
    engine = open_engine(start(lambda one: healthy(one) or one.hang()))
    engine.api.timeout = 0.3
    with pytest.raises(HostError) as caught:
        engine.image("x")
    assert "does not answer within 0.3 s" in message(caught)


def test_another_kind_than_asked_for(start: Start) -> None:
    with pytest.raises(HostError) as caught:
        open_engine(start(lambda one: one.answer(VERSION)), kind="podman")
    assert "docker 25.0.0 answers" in message(caught)


def test_podman_is_told_by_what_it_says(start: Start) -> None:
    facts = {**VERSION, "Components": [{"Name": "Podman Engine"}, {"Name": "Conmon"}]}
    assert open_engine(start(lambda one: one.answer(facts)), kind="podman").kind == "podman"


def test_missing_image_is_no_failure(start: Start) -> None:
    engine = open_engine(start(lambda one: healthy(one) or one.answer({"message": "no such image"}, 404)))
    assert engine.image("x") is None


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ("ls",),
        ("build", "cpu"),
        ("check", "cpu"),
        ("pull", "cpu", "--registry", "r.example"),
        ("push", "cpu", "--registry", "r.example"),
        ("rm", "cpu"),
        ("prune",),
    ],
)
def test_commands_say_it_in_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    host = f"unix://{tmp_path}/none.sock"
    result = command.tk("image", *arguments, "--docker-host", host, cwd=tmp_path)
    assert (result.code, result.out) == (4, "")
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("error: cannot use the container engine: no container engine answers at")


def test_a_command_with_an_engine_that_fails(start: Start, tmp_path: Path) -> None:
    for answer in (Request.drop, lambda one: one.answer({"message": "no"}, 500)):
        where = start(lambda one, answer=answer: healthy(one) or answer(one))
        result = command.tk("image", "ls", "--docker-host", where.url, cwd=tmp_path)
        assert (result.code, result.err.count("\n")) == (4, 1), result.err


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ('runc create failed: exec: "g++": executable file not found in $PATH: unknown', True),
        ('runc create failed: exec: "/opt/x/g++": stat /opt/x/g++: no such file or directory: unknown', True),
        ("crun: executable file `/opt/x/g++` not found: No such file or directory", True),
        ('exec: "/etc/passwd": permission denied: unknown', False),
        ("error mounting /opt to rootfs: stat /opt: no such file or directory", False),
    ],
)
def test_a_program_that_the_image_has_not(words: str, missing: bool) -> None:
    """The words of runc, as Docker 20.10 hands them on, and of crun."""
    assert lacks_program(words) is missing
