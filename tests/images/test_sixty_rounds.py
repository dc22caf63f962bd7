"""Sixty rounds: `tk` is stopped, or its engine falls ill, in the middle of a build, a run and a compile.

A round starts `tk` with a real Docker engine behind a relay (tests/support/ill_engine.py). At a drawn moment

- SIGINT, SIGTERM or SIGKILL is sent to `tk`, or
- the engine begins to drop all connections, to hang on all of them, or to answer 500 to all requests, for
  good. Then `tk` has to end by itself, with the exit code of an unfit host. How patient it is, it is told
  here: its real patience, two minutes, would make the rounds long. Once it has ended the engine gets well
  again, as one that does not answer cannot remove anything.

Five seconds later at most, counted from the signal or from the engine's recovery, the engine has neither a
container nor a volume of that round, no process of the interrupted step runs, the folder holds no file but a
whole result, and the temporary folder is empty. The next `tk` does its work, with nothing done in between.

The build is of a small plan on the stand-in base, with BuildKit and without it in turns, and its last step
never ends by itself; nor does the program of the run. The compile is of MNIST, in the image `cpu`; it may be
done before the moment comes, and then its result has to be there. Moments are drawn over the whole of a start
and beyond, from the round's number alone, so that a round can be repeated: `pytest -k round-17-`. What was
seen in each round is printed (`-s`).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from compiler import sha256_file
from tests.support.command import environment
from tests.support.engine import TestEngine
from tests.support.ill_engine import IllEngine, Illness, ill_engine
from tests.support.leftovers import containers, remove_small_images, sleeping, until, volumes
from toolchain.engine.build import build_image
from toolchain.images.named import plan_named
from toolchain.images.selection import Selection

pytestmark = pytest.mark.slow

What = Literal["build", "run", "compile"]
How = signal.Signals | Illness
SOON = 5.0
"""Seconds until nothing may be left."""
GIVES_UP = 25.0
"""Seconds until `tk` has given up an ill engine, with the patience below, on a busy machine."""
COUNTS: tuple[tuple[How, int], ...] = (
    (signal.SIGINT, 4),
    (signal.SIGTERM, 2),
    (signal.SIGKILL, 5),
    ("drops", 3),
    ("hangs", 3),
    ("answers 500", 3),
)
LATEST = {"build": 6.0, "run": 3.5, "compile": 4.0}
"""Seconds from the start of `tk` to the last moment that may be drawn."""
UNFIT = {"build": 4, "run": 125, "compile": 4}
"""Exit codes for a host that is not fit; `tk image run` leaves all but 125 to the program."""

_PATIENT = """
import signal, sys
from toolchain import main
from toolchain.engine import client, watch
client.PATIENCE = watch.Patience(answer=5.0, quiet=1.0, ask=1.0, tries=3, clean_up=2.0)
"""
TK = f"{_PATIENT}\nsys.exit(main.main())"
BUILD = f"""{_PATIENT}
from compiler import TkError
from tests.support.plans import small_plan
from toolchain.engine.build import build_image
from toolchain.engine.choice import BuildOptions
from toolchain.engine.endpoint import Endpoint
url, base, builder, seconds = sys.argv[1:]
signal.signal(signal.SIGINT, main._interrupt)
signal.signal(signal.SIGTERM, main._terminate)
try:
    build_image(client.open_engine(Endpoint(url, "a test")), small_plan(base, word="long", seconds=seconds),
                options=BuildOptions(builder), secrets={{"tk-ca": b"mark"}})
except TkError as error:
    print("\\n".join(error.lines()), file=sys.stderr)
    sys.exit(error.code)
except main.Terminated:
    sys.exit(128 + signal.SIGTERM)
"""


@dataclass(frozen=True, slots=True)
class Round:
    """What `tk` does, how it is disturbed, and after how many seconds."""

    number: int
    what: What
    how: How
    moment: float
    builder: str

    def __str__(self) -> str:
        how = (
            self.how.name if isinstance(self.how, signal.Signals) else f"engine-{self.how.replace(' ', '-')}"
        )
        return f"round-{self.number:02d}-{self.what}-{how}"


def _rounds() -> Iterator[Round]:
    whats: tuple[What, ...] = ("build", "run", "compile")
    number = 0
    for how, count in COUNTS:
        for turn in range(count):
            for what in whats:
                number += 1
                moment = random.Random(number).uniform(0.3, LATEST[what])
                yield Round(number, what, how, moment, ("auto", "classic")[turn % 2])


ROUNDS = tuple(_rounds())


@dataclass(frozen=True, slots=True)
class Place:
    """Where rounds happen: the engine itself, the image and the model to compile, the library's digest."""

    engine: TestEngine
    image: str
    model: Path
    digest: str


@pytest.fixture(scope="module")
def place(docker_engine: TestEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if not docker_engine.url.startswith("unix:"):
        pytest.skip("the relay needs an engine on a local socket")
    folder = tmp_path_factory.mktemp("model")
    engine = docker_engine.open()
    named = plan_named("cpu", Selection(base=docker_engine.base))
    image = build_image(engine, named.plan, site=named.site).reference
    words = [sys.executable, "-m", "toolchain"]
    subprocess.run([*words, "zoo", "make", "mnist", "-o", folder / "m.onnx"], env=environment(), check=True)
    compiled = [*words, "compile", "m.onnx", "--image", image, "--docker-host", docker_engine.url]
    subprocess.run([*compiled, "-o", "m.so"], cwd=folder, env=environment(), check=True)
    yield Place(docker_engine, image, folder / "m.onnx", sha256_file(folder / "m.so"))
    remove_small_images(engine)


def _argv(one: Round, place: Place, url: str, seconds: str) -> list[str]:
    """`tk` at its work; `seconds` is how long the build's last step and the program of the run take."""
    if one.what == "build":
        return [sys.executable, "-c", BUILD, url, place.engine.base, one.builder, seconds]
    words = [sys.executable, "-c", TK]
    if one.what == "run":
        return [*words, "image", "run", place.engine.base, "--docker-host", url, "--", "sleep", seconds]
    return [*words, "compile", str(place.model), "--image", place.image, "--docker-host", url, "-o", "m.so"]


def test_there_are_sixty() -> None:
    assert len(ROUNDS) == 60
    assert {(one.what, one.how) for one in ROUNDS} == {(what, how) for what in LATEST for how, _ in COUNTS}


@pytest.mark.parametrize("one", ROUNDS, ids=str)
def test_nothing_is_left_and_the_next_run_works(place: Place, tmp_path: Path, one: Round) -> None:
    engine = place.engine.open()
    before = containers(engine), volumes(engine)
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    seconds = f"7{one.number:02d}{os.getpid()}"
    with _relay(place.engine.url) as relay:
        argv = _argv(one, place, relay.url, seconds)
        child = subprocess.Popen(
            argv, cwd=work, env=environment({"TMPDIR": str(temporary)}), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with _killed_at_the_end(child):
            time.sleep(one.moment)
            began = time.monotonic()
            if isinstance(one.how, signal.Signals):
                child.send_signal(one.how)
                _, said = child.communicate(timeout=SOON)
                counted = began
            else:
                relay.fall_ill(one.how)
                _, said = child.communicate(timeout=GIVES_UP)
                counted = time.monotonic()
                relay.recover()
            gone = time.monotonic() - began
        _check_end(one, child.returncode, said)

        def left() -> list[str]:
            found = [name for name in containers(engine) if name not in before[0]]
            found += [name for name in volumes(engine) if name not in before[1]]
            found += ["its last step"] * sleeping(seconds)
            found += [str(path) for path in temporary.rglob("*")]
            return found + [path.name for path in work.iterdir() if path.name != "m.so"]

        until(lambda: not left(), SOON - (time.monotonic() - counted))
        assert left() == [], said
        clean = time.monotonic() - counted
        assert clean <= SOON + 0.5  # looking takes time, too
        if one.what == "compile" and (child.returncode == 0 or (work / "m.so").exists()):
            assert sha256_file(work / "m.so") == place.digest
        took = _next_run(one, place, relay.url, work, temporary)
    moment = f"at {one.moment:.2f} s: ended {child.returncode} after {gone:.2f} s"
    last = said.strip().splitlines()[-1][:200] if said.strip() else "(silent)"
    sys.stdout.write(f"\n{one} {moment}, clean after {clean:.2f} s, next run {took:.2f} s | {last}\n")


@contextlib.contextmanager
def _relay(url: str) -> Iterator[IllEngine]:
    """A relay whose socket has a short name, as sockets must."""
    with tempfile.TemporaryDirectory() as folder, ill_engine(url, Path(folder)) as relay:
        yield relay


@contextlib.contextmanager
def _killed_at_the_end(child: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        child.kill()
        child.communicate()


def _check_end(one: Round, status: int, said: str) -> None:
    assert "Traceback" not in said or one.how == signal.SIGINT, said  # Python's own, where nobody handles it
    by_signal = isinstance(one.how, signal.Signals)
    expected = {128 + one.how, -one.how} if by_signal else {UNFIT[one.what]}  # type: ignore[operator]
    assert status in expected | ({0} if one.what == "compile" else set()), said


def _next_run(one: Round, place: Place, url: str, work: Path, temporary: Path) -> float:
    """The same again, but for steps that end; returns how long it took."""
    began = time.monotonic()
    argv = _argv(one, place, url, f"0.{one.number:03d}1")
    done = subprocess.run(
        argv, cwd=work, env=environment({"TMPDIR": str(temporary)}), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if one.what == "compile":
        assert sha256_file(work / "m.so") == place.digest
    assert list(temporary.iterdir()) == []
    return time.monotonic() - began
