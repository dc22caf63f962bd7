"""A hundred first builds that are interrupted: nothing is left, the lock is whole, the next try works.

Each round is a new user in a new project who types `tk image build cpu`, on Docker, podman and Docker over
TCP: versions are locked, then the image is built. At a drawn moment

- SIGINT or SIGKILL is sent to `tk`,
- the engine is gone: it drops all connections, for good (through a relay, which needs a local socket; Docker
  over TCP is disturbed by signals and by a full disk only), or
- the disk with the project, or with the user's state, is full from the start.

Seconds later the engine has neither a container nor a volume of that round, temporary folders are empty, and
`tk.lock` is not there, or is whole. The next `tk`, with nothing done in between, builds the image. The base
has what `cpu` installs, so that a round takes seconds. A round can be repeated: `pytest -k round-017-`.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.support.command import ROOT, environment
from tests.support.engine import TestEngine
from tests.support.ill_engine import IllEngine, ill_engine
from tests.support.leftovers import containers, until, volumes
from toolchain.engine import store
from toolchain.engine.build import build_image
from toolchain.engine.client import Engine
from toolchain.images.lock.file import read_lock
from toolchain.images.named import plan_named
from toolchain.images.plan import BaseImage, From, Plan, Run, Stage
from toolchain.images.selection import Selection

pytestmark = pytest.mark.slow

How = Literal["SIGINT", "SIGKILL", "engine-gone", "disk-full"]
SOON = 10.0
"""Seconds until nothing may be left, on a busy machine."""
GIVES_UP = 40.0
"""Seconds until `tk` has given up an engine that is gone, with the patience below."""
LATEST = 14.0
"""Seconds from the start of `tk` to the last moment that may be drawn."""
COUNTS: Mapping[str, Mapping[How, int]] = {
    "docker_engine": {"SIGINT": 9, "SIGKILL": 9, "engine-gone": 9, "disk-full": 7},
    "podman_engine": {"SIGINT": 9, "SIGKILL": 9, "engine-gone": 9, "disk-full": 6},
    "remote_engine": {"SIGINT": 13, "SIGKILL": 13, "disk-full": 7},
}
_PATIENT = (
    "import sys; from toolchain import main; from toolchain.engine import client, watch;"
    " client.PATIENCE = watch.Patience(answer=5.0, quiet=1.0, ask=1.0, tries=3, clean_up=2.0);"
    " sys.exit(main.main())"
)
_FULL = 'mount -t tmpfs -o size=32k tmpfs "$1" && shift && exec "$@"'
"""A shell's words: a disk that is as good as full in the folder, for the program and nobody else."""


@dataclass(frozen=True, slots=True)
class Round:
    """On which engine, how it is disturbed, and after how many seconds."""

    number: int
    engine: str
    how: How
    moment: float

    def __str__(self) -> str:
        return f"round-{self.number:03d}-{self.engine.removesuffix('_engine')}-{self.how}"


def _rounds() -> Iterator[Round]:
    number = 0
    for engine, hows in COUNTS.items():
        for how, count in hows.items():
            for _ in range(count):
                number += 1
                yield Round(number, engine, how, random.Random(number).uniform(0.3, LATEST))


ROUNDS = tuple(_rounds())


def test_there_are_a_hundred() -> None:
    assert len(ROUNDS) == 100


@dataclass(frozen=True, slots=True)
class Place:
    """An engine, and the base that has all that `cpu` installs."""

    under_test: TestEngine
    engine: Engine
    base: str


@pytest.fixture(params=ROUNDS, ids=str)
def one(request: pytest.FixtureRequest) -> Round:
    found: Round = request.param
    return found


@pytest.fixture
def place(one: Round, request: pytest.FixtureRequest) -> Place:
    under_test: TestEngine = request.getfixturevalue(one.engine)
    engine = under_test.open()
    packages = plan_named("cpu", Selection(lock=None)).plan.apt
    install = ("apt-get", "install", "--yes", "--no-install-recommends", *packages)
    steps = (From(under_test.base, "base"), Run((("apt-get", "update"), install)))
    plan = Plan(
        "full-base",
        "tk-test/full-base",
        "1",
        BaseImage(under_test.base, os="debian-12", stand_in=True),
        (Stage("base", steps),),
    )
    return Place(under_test, engine, build_image(engine, plan).reference)


def test_nothing_is_left_and_the_next_try_works(one: Round, place: Place, tmp_path: Path) -> None:
    if one.how == "disk-full" and os.geteuid() != 0:
        pytest.skip("only root can mount a disk that is full")
    folders = {name: tmp_path / name for name in ("project", "state", "cache", "temporary")}
    for folder in folders.values():
        folder.mkdir()
    (folders["project"] / ".git").mkdir()
    before = containers(place.engine), volumes(place.engine)
    images = {image.id for image in store.list_images(place.engine, untagged=True)}

    def left() -> list[str]:
        found = [name for name in containers(place.engine) if name not in before[0]]
        found += [name for name in volumes(place.engine) if name not in before[1]]
        return found + [str(path) for path in folders["temporary"].rglob("*")]

    with _relay(place.under_test.url, one) as (url, relay):
        words = ["image", "build", "cpu", "--base", place.base, "--docker-host", url]
        said = _interrupted(one, words, folders, relay)
        until(lambda: not left(), SOON)  # an engine that was gone is back: what it has is removed now
    assert left() == [], said
    for lock in (folders["project"] / "tk.lock", folders["state"] / "tk" / "tk.lock"):
        read_lock(lock)  # raises when it is not whole
        assert [path.name for path in lock.parent.glob("*tk.lock*")] in ([], ["tk.lock"])
    words = ["image", "build", "cpu", "--base", place.base, "--docker-host", place.under_test.url]
    done = subprocess.run(
        [sys.executable, "-m", "toolchain", *words], cwd=folders["project"], env=_environment(folders),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = [image for image in store.list_images(place.engine, untagged=True) if image.id not in images]
    store.remove_images(place.engine, [image for image in made if image.name == "cpu"], force=True)


def _environment(folders: Mapping[str, Path]) -> dict[str, str]:
    return environment({
        "TMPDIR": str(folders["temporary"]), "XDG_STATE_HOME": str(folders["state"]),
        "TK_CACHE_DIR": str(folders["cache"]), "PYTHONPATH": str(ROOT),
    })  # fmt: skip


@contextlib.contextmanager
def _relay(url: str, one: Round) -> Iterator[tuple[str, IllEngine | None]]:
    """The engine's address for `tk`, and what makes it go away."""
    if one.how != "engine-gone":
        yield url, None
        return
    with tempfile.TemporaryDirectory() as folder, ill_engine(url, Path(folder)) as relay:
        yield relay.url, relay


def _interrupted(one: Round, words: list[str], folders: Mapping[str, Path], relay: IllEngine | None) -> str:
    """Start `tk`, disturb it, and wait for its end; what it said."""
    argv = [sys.executable, "-c", _PATIENT, *words]
    if one.how == "disk-full":
        disk = folders["project"] if one.number % 2 else folders["state"]
        argv = ["unshare", "--mount", "sh", "-euc", _FULL, "full", str(disk), *argv]
    child = subprocess.Popen(
        argv, cwd=folders["project"], env=_environment(folders), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if one.how == "disk-full":
            _, said = child.communicate(timeout=300)
            assert child.returncode in (0, 4), said
            assert "Traceback" not in said
            return said
        time.sleep(one.moment)
        if relay is None:
            child.send_signal(signal.Signals[one.how])
            _, said = child.communicate(timeout=SOON)
            assert child.returncode in (0, 128 + signal.Signals[one.how], -signal.Signals[one.how]), said
            return said
        relay.fall_ill("drops")
        _, said = child.communicate(timeout=GIVES_UP)
        relay.recover()
        assert child.returncode in (0, 4), said
        return said
    finally:
        child.kill()
        child.communicate()
