"""Tolerances from the model, and the two references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.core.diagnostics import BadInputError, HostError, UsageError
from compiler.verify import reference
from compiler.verify.reference import make_reference
from compiler.verify.tolerance import reduction_length, tolerance_for


def model() -> onnx.ModelProto:
    """Conv, MatMul, Gemm with constants: sums of 3*3*4, 16 and 8 products, and one MatMul of two inputs."""
    rng = np.random.default_rng(0)
    weights = {
        "conv": rng.standard_normal((4, 4, 3, 3)),
        "matmul": rng.standard_normal((16, 8)),
        "gemm": rng.standard_normal((5, 8)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "conv"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "matmul"], ["m"]),
        helper.make_node("Gemm", ["m", "gemm"], ["y"], transB=1),
        helper.make_node("MatMul", ["y", "t"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 2, 2]),
            helper.make_tensor_value_info("t", TensorProto.FLOAT, [5, 3]),
        ],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3])],
        [
            *(numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items()),
            numpy_helper.from_array(np.array([1, 16]), "shape"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    onnx.save(model(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


FEEDS = {"x": np.ones((1, 4, 2, 2), np.float32), "t": np.ones((5, 3), np.float32)}


def test_reduction_length() -> None:
    assert reduction_length(model()) == 36 + 16 + 8 + 5


def test_reductions_count_with_the_shapes_of_the_inputs() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=1),
        helper.make_node("Softmax", ["x"], ["p"], axis=-1),
        helper.make_node("Add", ["s", "p"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 10])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert reduction_length(proto) == 0
    assert reduction_length(proto, {"x": (7, 10)}) == 70 + 10


def test_tolerances_grow_and_are_bounded() -> None:
    f32 = np.dtype(np.float32)
    values = [tolerance_for(f32, n) for n in (0, 64, 1000, 100_000, 10**9)]
    assert values == sorted(values)
    assert values[0] == values[1]
    assert values[-1] == 1e-4
    assert tolerance_for(np.dtype(np.int64), 1000) == 0
    assert (
        tolerance_for(np.dtype(np.float16), 64) > tolerance_for(f32, 64) > tolerance_for(np.dtype("f8"), 64)
    )


@pytest.mark.parametrize("length", [64, 1024, 16384])
def test_rounding_errors_of_sums_are_within_tolerance(length: int) -> None:
    rng = np.random.default_rng(length)
    a, b = rng.standard_normal((2, 64, length)).astype(np.float32)
    exact = (a.astype(np.float64) * b).sum(1)
    one_by_one = np.array([np.add.accumulate(row, dtype=np.float32)[-1] for row in a * b])
    needed = np.abs(one_by_one - exact).max() / np.abs(exact).max()
    assert needed < tolerance_for(a.dtype, length)


def test_both_references_agree(saved: Path) -> None:
    one, notes = make_reference(saved, "onnxruntime")
    two, _ = make_reference(saved, "onnx")
    assert one.name.startswith("onnxruntime ")
    assert "reference evaluator" in two.name
    assert notes == ()
    assert np.allclose(one.run(FEEDS)["z"], two.run(FEEDS)["z"], rtol=1e-5)


def test_auto_without_onnxruntime(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "has_onnxruntime", lambda: False)
    found, notes = make_reference(saved, "auto")
    assert "reference evaluator" in found.name
    assert "not installed" in notes[0]
    with pytest.raises(HostError, match="not installed"):
        make_reference(saved, "onnxruntime")


def test_auto_where_onnxruntime_refuses(tmp_path: Path) -> None:
    proto = model()
    proto.ir_version = 99
    onnx.save(proto, tmp_path / "new.onnx")
    with pytest.raises(BadInputError, match="onnxruntime cannot load the model"):
        make_reference(tmp_path / "new.onnx", "onnxruntime")


def test_unknown_reference_and_damaged_model(saved: Path) -> None:
    with pytest.raises(UsageError, match="onnxruntim") as caught:
        make_reference(saved, "onnxruntim")
    assert "did you mean" in caught.value.hint
    saved.write_bytes(b"not onnx")
    for choice in ("auto", "onnxruntime", "onnx"):
        with pytest.raises(BadInputError, match="cannot load the model"):
            make_reference(saved, choice)
