"""What accesses of compiled models cost, counted in the emulator: flaws that reading kernels had found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.pipeline import run_job
from compiler.stages.job import CompileJob
from compiler.verify.access import access_of
from tests.support.emulated_models import text_only


def _convolution(channels: int, results: int, size: int) -> onnx.ModelProto:
    weights = np.ones((results, channels, 1, 1), np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, results, size, size])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_convolution_of_resnet50_on_matrix_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels lie side by side, fused lines and columns or not: each request fills its sectors."""
    text_only(monkeypatch)
    model, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(_convolution(256, 64, 56), model)
    run_job(
        CompileJob.of(model, compiler.CompileOptions(output=library, target="cuda:sm_90", precision="tf32"))
    )
    (launch,) = access_of(library).launches
    assert any("tk_load_matrices<" in row.text for row in launch.rows)
    assert all(row.units == row.least for row in launch.of("load", "copy", "store"))
    assert launch.fetch_efficiency == 1.0
    assert launch.worst_conflict <= 2


def test_a_vector_is_one_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here g++ would load vectors as a whole and once more by elements, which are 16 bytes apart."""
    text_only(monkeypatch)
    model, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(_convolution(64, 256, 56), model)
    run_job(CompileJob.of(model, compiler.CompileOptions(output=library, target="cuda:sm_70")))
    (launch,) = access_of(library).launches
    wide = [row for row in launch.rows if "tk_load_aligned<tk_f32x4>" in row.text and "load" in row.kind]
    assert {row.kind for row in wide} == {"load", "shared load"}
    assert {row.bytes for row in wide} == {16}
    assert launch.worst_conflict == 1
    assert launch.fetch_efficiency == 1.0


def test_sizes_that_a_run_decides_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_only(monkeypatch)
    model, library = tmp_path / "m.onnx", tmp_path / "m.so"
    node = helper.make_node("Relu", ["x"], ["y"])
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy"]
    graph = helper.make_graph([node], "g", kinds[:1], kinds[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    options = compiler.CompileOptions(output=library, target="cuda", dims={"n": (1, 64)})
    run_job(CompileJob.of(model, options))
    with pytest.raises(compiler.BadInputError, match=r"(?s)counted for one size.*a run decides n"):
        access_of(library)
