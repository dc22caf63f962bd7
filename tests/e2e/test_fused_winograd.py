"""Winograd's convolution in one launch: CUDA and HIP text in the emulator, and its replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from compiler.library_inspection import inspect_library
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.stages.job import CompileJob
from tests.support.emulated_models import TARGETS, emulate, text_only
from tests.support.onnx_models import assert_close, model, run_onnxruntime
from tests.support.op_cases import floats

ONE_QUICK = [TARGETS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in TARGETS[1:])]
FORMS = {1: 3, 2: 4}
"""Chunks of channels, and the number of the form that has them."""


@pytest.mark.parametrize("chunks", FORMS)
@pytest.mark.parametrize("target", ONE_QUICK)
def test_as_onnxruntime(target: str, chunks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An odd image, two of them, channels that no tile divides, a bias, a residual and ReLU."""
    text_only(monkeypatch)
    chooser = ReplayChooser({"Conv.form": (FORMS[chunks],)}, AnalyticChooser())
    monkeypatch.setattr(CompileJob, "chooser_of", lambda *_: chooser)
    feeds = {"x": floats(2, 40, 9, 11), "other": floats(2, 24, 9, 11)}
    known = {"w": floats(24, 40, 3, 3), "bias": floats(24)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "other"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    proto = model(nodes, feeds, ["y"], known)
    got = emulate(proto, feeds, target, tmp_path)
    assert_close(got["y"], run_onnxruntime(proto, feeds)["y"], 1e-4, target)
    (kernel,) = inspect_library(tmp_path / f"{target}.so", check=True).kernels
    assert kernel.replays
    assert [one.grid[2] for one in kernel.launches] == ([1] if chunks == 1 else [chunks, 1])
