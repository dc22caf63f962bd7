"""`--workers`: how many candidates this machine builds at a time; it is `TK_JOBS` of one search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.core.diagnostics import UsageError
from compiler.core.settings import load_settings
from compiler.reports import CompileOptions
from compiler.stages.job import CompileJob
from compiler.tune import tuner
from compiler.tune.report import TuneRequest
from tests.support.onnx_models import model


class SeenError(Exception):
    """So many compilations at a time."""


@pytest.mark.parametrize(("workers", "wanted"), [(None, 5), (3, 3)])
def test_a_search_builds_so_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None, wanted: int
) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    arrays = {"x": np.ones((4, 8), np.float32)}, ["y"], {"w": np.ones((8, 16), np.float32)}
    onnx.save(model([node], *arrays), tmp_path / "m.onnx")

    def machine(job: CompileJob, threads: int | None) -> None:
        assert threads == load_settings().threads
        raise SeenError(job.settings.jobs)

    monkeypatch.setenv("TK_JOBS", "5")
    monkeypatch.setattr(tuner, "local_machine", machine)
    options = CompileOptions(tmp_path / "m.so")
    with pytest.raises(SeenError, match=str(wanted)):
        tuner.tune_plan(TuneRequest(tmp_path / "m.onnx", options, tmp_path / "t.db", workers=workers))


def test_a_cluster_is_checked_before_a_model_is_read(tmp_path: Path) -> None:
    from compiler.cluster.address import ClusterAddress

    beyond = ClusterAddress("tcp://192.0.2.1:8786")
    request = TuneRequest(tmp_path / "none.onnx", CompileOptions(tmp_path / "m.so"), cluster=beyond)
    with pytest.raises(UsageError, match="beyond this machine a cluster needs TLS"):
        tuner.tune_model(request)
