"""A network, channels-last between row-major ends: compiled for GPUs, run by the emulator, verified."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.pipeline import run_job
from compiler.stages.job import CompileJob
from tests.support.emulated_models import text_only

CHANNELS, SIZE = 32, 12


def _model(kind: int) -> onnx.ModelProto:
    """A residual block, a pool of windows and one of all pixels: no extent of space is a whole tile."""
    source = np.random.default_rng(0)
    constants: list[onnx.TensorProto] = []

    def conv(x: str, y: str, size: int) -> onnx.NodeProto:
        shape = (CHANNELS, CHANNELS, size, size)
        values = source.standard_normal(shape) / np.sqrt(CHANNELS * size * size)
        values = values.astype(helper.tensor_dtype_to_np_dtype(kind))
        named = {f"w{y}": values, f"b{y}": values[0, :, 0, 0]}
        constants.extend(numpy_helper.from_array(array, name) for name, array in named.items())
        return helper.make_node("Conv", [x, f"w{y}", f"b{y}"], [y], pads=[size // 2] * 4)

    nodes = [
        conv("x", "a", 1),
        helper.make_node("Relu", ["a"], ["ar"]),
        conv("ar", "b", 3),
        helper.make_node("Relu", ["b"], ["br"]),
        conv("br", "c", 3),
        helper.make_node("Add", ["c", "ar"], ["d"]),
        helper.make_node("Relu", ["d"], ["dr"]),
        conv("dr", "e", 1),
        helper.make_node("MaxPool", ["e"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        helper.make_node("GlobalAveragePool", ["p"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", kind, [1, CHANNELS, SIZE, SIZE]),
        helper.make_tensor_value_info("y", kind, [1, CHANNELS, 1, 1]),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("target", "kind", "tf32"),
    [
        ("cuda:sm_90", TensorProto.FLOAT, True),
        pytest.param("cuda:sm_80", TensorProto.FLOAT16, False, marks=pytest.mark.slow),
        pytest.param("rocm:gfx90a", TensorProto.FLOAT16, False, marks=pytest.mark.slow),
    ],
)
def test_verified(
    target: str, kind: int, tf32: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_only(monkeypatch)
    model, library, dump = tmp_path / "m.onnx", tmp_path / "m.so", tmp_path / "dump"
    onnx.save(_model(kind), model)
    options = compiler.CompileOptions(
        output=library, target=target, precision="tf32" if tf32 else "f32", dump=dump
    )
    run_job(CompileJob.of(model, options))
    layouts = (dump / "21-layout.txt").read_text().splitlines()
    assert sum(line.endswith("a, b, c, d -> a, c, d, b") for line in layouts) >= 3
    assert layouts[0].endswith("row-major")
    verified = compiler.verify_library(
        compiler.VerifyRequest(library, model, runs=1, device="emulator"), timeout=600
    )
    assert verified.passed, verified.outputs
