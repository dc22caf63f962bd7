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
    """Its activations are read a channel apart; weights and results are not."""
    text_only(monkeypatch)
    model, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(_convolution(64, 256, 56), model)
    run_job(
        CompileJob.of(model, compiler.CompileOptions(output=library, target="cuda:sm_90", precision="tf32"))
    )
    report = access_of(library)
    (launch,) = report.launches
    assert sum(row.lanes for row in launch.of("shared load")) > 0
    strided = [row for row in launch.of("load") if row.units / row.requests == 32]
    assert len(strided) == 16
    assert all(row.least / row.requests == 4 and row.lanes / row.requests == 32 for row in strided)
    assert sum(row.share for row in strided) > 0.8
    others = [row for row in launch.of("load", "store") if row not in strided]
    assert all(row.units == row.least for row in others)
    # Each of 64 x 56 x 56 elements is read once for each 64 of 256 results, in a sector of its own; the last
    # of the 25 blocks has half of its pixels.
    assert sum(row.units for row in strided) == 64 * 56 * 56 * 4
    assert launch.fetch_efficiency == pytest.approx((100352 + 16 * 3200) / (802816 + 16 * 3200))


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
