"""A program in a container on this terminal: streams, status, signals, and its end when tk is killed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pty
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command import environment
from tests.support.engine import TestEngine

pytestmark = pytest.mark.slow

Start = Callable[..., "subprocess.Popen[bytes]"]


def argv(engine: TestEngine, *program: str, options: tuple[str, ...] = ()) -> list[str]:
    words = ["image", "run", engine.base, "--docker-host", engine.url, *options, "--", *program]
    return [sys.executable, "-m", "toolchain", *words]


@pytest.fixture(params=["docker_engine", "podman_engine"])
def engine(request: pytest.FixtureRequest) -> Iterator[TestEngine]:
    found: TestEngine = request.getfixturevalue(request.param)
    yield found
    assert _left(found, 5) == []


@pytest.fixture
def start(engine: TestEngine, tmp_path: Path) -> Iterator[Start]:
    """Start `tk image run`; what still runs at the end of the test is killed."""
    with contextlib.ExitStack() as children:

        def run(
            *program: str, options: tuple[str, ...] = (), stdin: int = subprocess.PIPE
        ) -> subprocess.Popen[bytes]:
            child = subprocess.Popen(
                argv(engine, *program, options=options),
                cwd=tmp_path,
                env=environment(),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            children.enter_context(child)
            children.callback(child.kill)
            return child

        yield run


def _left(engine: TestEngine, seconds: float) -> list[str]:
    """Containers of tk that are there after some time at most."""
    opened = engine.open()
    deadline = time.monotonic() + seconds
    while True:
        with opened.guard("list containers"):
            found = opened.api.containers(all=True, filters={"label": "tk.owner"})
        if not found or time.monotonic() > deadline:
            return [f"{one['Names']} {one['Status']}" for one in found]
        time.sleep(0.1)


def test_output_errors_and_status(start: Start) -> None:
    out, err = (child := start("sh", "-c", "echo out; echo err >&2; exit 7")).communicate(timeout=60)
    assert (child.returncode, out, err) == (7, b"out\n", b"err\n")


def test_input_of_any_bytes(start: Start) -> None:
    data = os.urandom(3_000_000)
    out, _ = (child := start("sha256sum")).communicate(data, timeout=120)
    assert (child.returncode, out.split()[0].decode()) == (0, hashlib.sha256(data).hexdigest())


def test_output_of_any_length(start: Start) -> None:
    out, _ = start("sh", "-c", "head -c 20000000 /dev/zero").communicate(timeout=120)
    assert len(out) == 20_000_000


def test_a_program_that_reads_nothing(start: Start, engine: TestEngine) -> None:
    out, err = (child := start("true")).communicate(b"x" * 100_000, timeout=60)
    assert (child.returncode, out) == (0, b"")
    assert err == b"" or engine.kind == "podman"  # which says in the stream that nobody read it


def test_the_status_of_a_signal_and_of_no_program(start: Start) -> None:
    child = start("sh", "-c", "kill -SEGV $$")
    child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGSEGV
    child = start("no-such-program")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 127
    assert b"no-such-program" in err


def test_the_folder_is_there_and_files_are_ours(start: Start, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("text")
    out, _ = start("sh", "-c", "cat given; touch made; pwd").communicate(timeout=60)
    assert out == b"text/work\n"
    assert (tmp_path / "made").stat().st_uid == os.getuid()
    out, _ = start("sh", "-c", "pwd; ls", options=("--no-folder",)).communicate(timeout=60)
    assert out == b"/tk/home\n"


def _ready(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_reach_the_program(start: Start, engine: TestEngine, number: int, status: int) -> None:
    child = start("sh", "-c", "echo ready; exec sleep 1000", stdin=subprocess.DEVNULL)
    _ready(child)
    child.send_signal(number)
    assert child.wait(10) == status
    assert _left(engine, 5) == []


def test_a_program_may_handle_an_interrupt(start: Start) -> None:
    child = start("sh", "-c", "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done")
    _ready(child)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=20)
    assert (child.returncode, out) == (9, b"caught\n")


def test_a_program_that_will_not_end_is_killed(start: Start, engine: TestEngine) -> None:
    child = start(
        "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done", stdin=subprocess.DEVNULL
    )
    _ready(child)
    child.send_signal(signal.SIGTERM)
    assert child.wait(10) == 143
    assert _left(engine, 5) == []


def test_it_ends_when_tk_is_killed(start: Start, engine: TestEngine) -> None:
    """The program's input is still open, and it ignores what can be ignored."""
    script = "trap '' TERM INT HUP; echo ready; sleep 1000 & while :; do sleep 1; done"
    child = start("sh", "-c", script)
    _ready(child)
    started = time.monotonic()
    child.kill()
    child.wait(10)
    assert _left(engine, 5) == []
    assert time.monotonic() - started < 6


def test_whenever_tk_is_ended_nothing_stays(start: Start, engine: TestEngine) -> None:
    """Rounds over the whole of a start: before, while and after the container is made, started and held."""
    chance = random.Random(0)
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM) * 4:
        child = start("sleep", "1000", stdin=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.3, 3.0))
        child.send_signal(number)
        ended = time.monotonic()
        child.wait(10)
        assert _left(engine, 5) == [], number
        assert time.monotonic() - ended < 5, number
        time.sleep(0.3)
        assert _left(engine, 1) == [], number


def test_the_end_of_the_input_is_no_end(start: Start) -> None:
    child = start("sh", "-c", "cat; sleep 1.5; echo done", stdin=subprocess.DEVNULL)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (0, b"done\n")


def test_on_a_terminal(engine: TestEngine, tmp_path: Path) -> None:
    said, status = _on_terminal(
        [sys.executable, "-m", "toolchain", "image", "shell", engine.base, "--docker-host", engine.url],
        [
            ("/work", "stty size; test -t 0 && echo is-a-tty\r"),
            ("is-a-tty\r\n", "sleep 1000\r"),
            ("sleep 1000", "\x03"),
            ("/work", "exit 5\r"),
        ],
        tmp_path,
    )
    assert status == 5, said
    assert "33 101" in said


def _on_terminal(words: list[str], talk: list[tuple[str, str]], cwd: Path) -> tuple[str, int]:
    """Run on a terminal of 33 lines and 101 columns; each text is typed when what it waits for has come."""
    import fcntl
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    child = subprocess.Popen(
        words,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=cwd,
        env=environment(),
        start_new_session=True,
    )
    os.close(follower)
    said, seen = "", 0
    deadline = time.monotonic() + 60
    waiting = list(talk)
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.1)[0]:
            try:
                said += os.read(leader, 65536).decode(errors="replace")
            except OSError:
                break
        if waiting and waiting[0][0] in said[seen:]:
            _, text = waiting.pop(0)
            seen = len(said)
            time.sleep(0.3)
            os.write(leader, text.encode())
        if child.poll() is not None and not waiting:
            break
    os.close(leader)
    child.kill() if child.poll() is None else None
    return said, child.wait(10)
