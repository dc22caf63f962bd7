"""Private arrays for which a device's local memory has no room: each block gets its part of global memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.targets import opencl
from tests.support.onnx_models import model


def test_a_model_runs_without_local_memory(
    tmp_path: Path, opencl_driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencl, "LOCAL_BYTES", 0)
    random = np.random.default_rng(7)
    x, w = (random.standard_normal(shape, np.float32) for shape in ((1, 32, 28, 28), (32, 32, 3, 3)))
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    path, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(model([node], {"x": x}, ["y"], {"w": w}), path)
    options = compiler.CompileOptions(output=library, target="opencl-cpu")
    compiler.compile_model(path, options)
    launches = [one for kernel in compiler.manifest_of(library)["kernels"] for one in kernel["launches"]]
    assert max(one["block_bytes"] for one in launches) > 0
    assert max(one["shared_bytes"] for one in launches) == 0
    report = compiler.verify_library(compiler.VerifyRequest(library, path, runs=2, device=opencl_driver))
    assert report.passed, report.outputs
