"""Compiling in a container of a real image: the same bytes whoever does it, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compiler import sha256_file
from tests.support.command import ROOT
from tests.support.engine import TestEngine
from tests.support.images import cpu_image
from toolchain.containers.job import Job, run_job
from toolchain.containers.probe import probe_image

pytestmark = pytest.mark.slow

CLOCK = """
#include <time.h>
#include <sys/time.h>
/* Another clock: the same one, 400 days ago. */
#include <sys/syscall.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
  int status = (int)syscall(SYS_clock_gettime, id, t);
  if (id == CLOCK_REALTIME) t->tv_sec -= 400 * 86400;
  return status;
}
time_t time(time_t *out) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (out) *out = t.tv_sec;
  return t.tv_sec;
}
int gettimeofday(struct timeval *tv, void *zone) {
  struct timespec t;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &t);
  tv->tv_sec = t.tv_sec;
  tv->tv_usec = t.tv_nsec / 1000;
  return 0;
}
"""


@pytest.fixture(scope="module")
def docker_image(docker_engine: TestEngine) -> str:
    return cpu_image(docker_engine)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "mnist.onnx"
    subprocess.run(
        [sys.executable, "-m", "toolchain", "zoo", "make", "mnist", "-o", path], cwd=ROOT, check=True
    )
    return path


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def tk_at(tmp_path: Path) -> Run:
    def run(engine: TestEngine, *argv: object) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "DOCKER_HOST": engine.url, "PYTHONPATH": str(ROOT)}
        line = [sys.executable, "-m", "toolchain", *map(str, argv)]
        return subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True)

    return run


def leftovers(engine: TestEngine) -> list[str]:
    """Containers of ours that are there, with their state."""
    there = engine.open().api.containers(all=True)
    return [f"{one['Names'][0]} {one['Status']}" for one in there if "/tk-run" in one["Names"][0]]


@pytest.mark.parametrize("name", ["docker_engine", "remote_engine", "podman_engine"])
def test_the_contract(
    name: str, request: pytest.FixtureRequest, model: Path, tk_at: Run, tmp_path: Path
) -> None:
    engine: TestEngine = request.getfixturevalue(name)
    image = cpu_image(engine)
    made = tk_at(engine, "compile", model, "--target", "cpu", "--image", "cpu", "-o", "m.so", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["path"] == "m.so"
    assert "stand-in" in made.stderr
    verified = tk_at(engine, "verify", "m.so", "--model", model, "--image", image)
    assert verified.returncode == 0, verified.stderr
    assert "within tolerance" in verified.stdout
    ran = tk_at(engine, "run", "m.so", "--output-dir", "out", "--image", image)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "out" / "Plus214_Output_0.npy").exists()
    timed = tk_at(engine, "bench", "m.so", "--seconds", "0.1", "--json", "--image", image)
    assert json.loads(timed.stdout)["p50_ms"] > 0
    assert leftovers(engine) == []


def test_resnet50_compiled_inside_and_verified_outside(
    docker_engine: TestEngine, docker_image: str, tk_at: Run, tmp_path: Path
) -> None:
    assert tk_at(docker_engine, "zoo", "make", "resnet50").returncode == 0
    made = tk_at(docker_engine, "compile", "resnet50.onnx", "--image", docker_image, "-o", "model.so")
    assert made.returncode == 0, made.stderr
    inside = tk_at(docker_engine, "inspect", "model.so", "--json")
    assert json.loads(inside.stdout)["target"] == "cpu"
    verified = tk_at(docker_engine, "verify", "model.so", "--model", "resnet50.onnx")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_errors_keep_their_code_and_name_the_host_s_files(
    docker_engine: TestEngine, docker_image: str, tk_at: Run, tmp_path: Path
) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x07\x12")
    done = tk_at(docker_engine, "compile", "broken.onnx", "--image", docker_image)
    assert done.returncode == 3
    assert "broken.onnx" in done.stderr
    assert "/job" not in done.stderr
    assert not (tmp_path / "broken.so").exists()


def test_the_same_bytes_for_another_uid_path_clock_and_cache(
    docker_engine: TestEngine, docker_image: str, model: Path, tmp_path: Path
) -> None:
    engine = docker_engine.open()
    image = probe_image(engine, docker_image)
    clock = tmp_path / "clock.so"
    (tmp_path / "clock.c").write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", clock, tmp_path / "clock.c"], check=True)
    digests, said = set(), list[bytes]()
    for number, (owner, inside, preload) in enumerate(
        [((0, 0), "a/m.onnx", False), ((4321, 4321), "elsewhere/deep/other.onnx", True)]
    ):
        out = tmp_path / str(number)
        out.mkdir()
        job = Job(
            ("compile", f"/job/in/{inside}", "-o", "/job/out/m.so", "--no-container"),
            {inside: model, "clock.so": clock},
            out,
            environment={"LD_PRELOAD": "/job/in/clock.so"} if preload else {},
            owner=owner,
        )
        assert run_job(engine, image, job, said.append).status == 0, said
        digests.add(sha256_file(out / "m.so"))
    assert len(digests) == 1
    until = time.monotonic() + 10
    while leftovers(docker_engine) and time.monotonic() < until:
        time.sleep(0.1)
    engine.api.remove_volume("tk-cache-4321")


@pytest.fixture
def compiling(
    docker_engine: TestEngine, docker_image: str, model: Path, tmp_path: Path
) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    env = {**os.environ, "DOCKER_HOST": docker_engine.url, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "toolchain", "compile", str(model), "--image", docker_image, "-o", "m.so"]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(argv, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_compile_leaves_nothing(
    docker_engine: TestEngine,
    compiling: Callable[[], subprocess.Popen[bytes]],
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    expected = {128 + number, -number}  # by itself, or by the signal: the same to a shell
    for seconds in (0.8, 1.2, 1.7, 2.3, 3.0):
        child = compiling()
        time.sleep(seconds)
        child.send_signal(number)
        assert child.wait(5) in {*expected, 0}  # or it was done before
        until = time.monotonic() + 5
        while leftovers(docker_engine) and time.monotonic() < until:
            time.sleep(0.1)
        assert leftovers(docker_engine) == []
        assert [one.name for one in tmp_path.iterdir() if one.name != "m.so"] == []
    assert compiling().wait() == 0
    assert (tmp_path / "m.so").exists()
