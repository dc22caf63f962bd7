"""`kill -9` in the middle of a compile: the library is the old or the new one, and nothing stays behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.core.files import sha256_file
from tests.support import command
from tests.support.onnx_models import model

ROWS, COLUMNS = 2048, 1024  # 8 MB of weights, so that writing takes a while


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """Two models, 0.onnx and 1.onnx, and their libraries, 0.so and 1.so."""
    directory = tmp_path_factory.mktemp("kill")
    for number in (0, 1):
        x = np.zeros((1, ROWS), np.float32)
        weights = np.random.default_rng(number).standard_normal((ROWS, COLUMNS)).astype(np.float32)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        onnx.save(model([node], {"x": x}, ["y"], {"w": weights}), directory / f"{number}.onnx")
        assert command.tk("compile", f"{number}.onnx", cwd=directory).code == 0
    return directory


def environment(place: Path, own_cache: Path) -> dict[str, str]:
    """Nothing finished is in the cache, objects are; temporary files have a place of their own."""
    shutil.rmtree(place / "cache", ignore_errors=True)
    (place / "cache").mkdir()
    (place / "cache" / "objects").symlink_to(own_cache / "objects")
    (place / "tmp").mkdir(exist_ok=True)
    return command.environment({"TK_CACHE_DIR": str(place / "cache"), "TMPDIR": str(place / "tmp")})


def start(place: Path, env: dict[str, str], number: int) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "toolchain", "compile", f"{number}.onnx", "-o", "m.so"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(argv, cwd=place, env=env, stdout=quiet, stderr=quiet, start_new_session=True)


def kill_at_random(place: Path, own_cache: Path, times: int) -> Counter[str]:
    """Compile the two models in turns over one output; returns how often each content was found."""
    digests = {sha256_file(place / f"{number}.so"): f"library {number}" for number in (0, 1)}
    shutil.copy(place / "0.so", place / "m.so")
    started = time.perf_counter()
    assert start(place, environment(place, own_cache), 1).wait() == 0
    whole = time.perf_counter() - started
    source = random.Random(times)
    found: Counter[str] = Counter()
    for turn in range(times):
        running = start(place, environment(place, own_cache), turn % 2)
        time.sleep(source.uniform(0.1, 1.05) * whole)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        found[digests.get(sha256_file(place / "m.so"), "neither")] += 1
    return found


def assert_clean(place: Path, own_cache: Path) -> None:
    """One more compile that is left alone removes what the killed ones left."""
    assert start(place, environment(place, own_cache), 0).wait() == 0
    assert (place / "m.so").read_bytes() == (place / "0.so").read_bytes()
    assert [path.name for path in place.glob(".*.part")] == []
    assert [path.name for path in (place / "tmp").iterdir()] == []


def test_three_kills(place: Path, own_cache: Path) -> None:
    assert kill_at_random(place, own_cache, 3)["neither"] == 0
    assert_clean(place, own_cache)


@pytest.mark.slow
def test_fifty_kills(place: Path, own_cache: Path) -> None:
    found = kill_at_random(place, own_cache, 50)
    assert found["neither"] == 0
    assert set(found) == {"library 0", "library 1"}  # some compiles were quicker than the kill
    assert_clean(place, own_cache)


def test_what_a_living_compile_works_on_is_left_alone(place: Path, own_cache: Path) -> None:
    env = environment(place, own_cache)
    first, second = (start(place, env, number) for number in (0, 1))
    assert first.wait() == second.wait() == 0
    assert sha256_file(place / "m.so") in {sha256_file(place / f"{number}.so") for number in (0, 1)}
    assert [path.name for path in place.glob(".*.part")] == []
