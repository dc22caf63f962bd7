"""Trials on the workers of a cluster, each of which has a device."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compiler import HostError
from tests.support.command import ROOT, Result, environment
from toolchain.matrix.cluster import Cluster

Tk = Callable[..., Result]

PLAN = """
models: {networks: [mnist], files: [own.onnx]}
targets:
  - {target: cpu, workers: [one, nobodys]}
  - target: cpu
    do: [compile]
do: [compile, verify, bench]
bench: {seconds: 0.1, warmup: 0}
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """A scheduler and a worker with the device `one`, both on this machine alone."""
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    file = tmp_path / "scheduler.json"
    local = ("--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file))
    programs = [
        ("dask_scheduler", "--port", "0", *local),
        ("dask_worker", "--nthreads", "1", "--resources", "device:one=1", *local, "--no-nanny"),
    ]
    started = []
    try:
        for name, *words in programs:
            argv = [sys.executable, "-m", f"distributed.cli.{name}", *words]
            log = (tmp_path / f"{name}.log").open("wb")
            started.append(
                subprocess.Popen(argv, cwd=ROOT, env=environment(), stdout=log, stderr=subprocess.STDOUT)
            )
            log.close()
            deadline = time.monotonic() + 60
            while not file.exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield str(json.loads(file.read_text())["address"])
    finally:
        for one in reversed(started):
            one.terminate()
            one.wait()


@pytest.mark.slow
def test_a_worker_with_the_device_makes_the_trial(scheduler: str, tmp_path: Path, tk: Tk) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    assert tk("zoo", "make", "mnist", "-o", "own.onnx").code == 0
    options = ("plan.yaml", "--scheduler", scheduler, "--records", "records", "--json")
    done = tk("matrix", "run", *options)
    assert done.code == 0, done.err
    found = {(Path(one["subject"]["model"]).stem or one["subject"]["network"], one["place"]["worker"]):
             (one["state"], one["why"]) for one in done.json["cells"]}  # fmt: skip
    missing = ("not-run", "no worker of the cluster has the resource device:nobodys")
    assert found == {
        (model, worker): end
        for model in ("mnist", "own")
        for worker, end in (
            ("one", ("verified", "")),
            ("nobodys", missing),
            ("here", ("compiled-only", "nothing else was asked for")),
        )
    }
    records = tk("matrix", "show", "mnist", "cpu", "--records", "records", "--json").json
    assert records
    again = tk("matrix", "run", *options).json
    assert (again["made"], again["kept"]) == (0, 6)


def test_without_the_package_or_a_scheduler_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(HostError, match="not installed") as caught:
        Cluster("tcp://127.0.0.1:1")
    assert "tk-toolchain[cluster]" in caught.value.hint
