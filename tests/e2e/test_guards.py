"""Calls that a run leaves out change no result: branches, rounds and steps; oracle: onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler import CompileOptions, SizeRange

Array = np.ndarray[Any, np.dtype[Any]]
node, info = helper.make_node, helper.make_tensor_value_info
FLOAT, RNG = TensorProto.FLOAT, np.random.default_rng(3)


def some(*shape: int) -> Array:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def _model(
    nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any], **known: Array
) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(array, name) for name, array in known.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def branches() -> onnx.ModelProto:
    """Two products, or two others, as the sum of the input is positive or not."""

    def branch(name: str) -> onnx.GraphProto:
        nodes = [
            node("MatMul", ["x", f"{name}1"], [f"{name}h"]),
            node("MatMul", [f"{name}h", f"{name}2"], [f"{name}y"]),
        ]
        return helper.make_graph(nodes, name, [], [info(f"{name}y", FLOAT, (8, 8))])

    nodes = [
        node("ReduceSum", ["x"], ["total"], keepdims=0),
        node("Greater", ["total", "zero"], ["positive"]),
        node("If", ["positive"], ["y"], then_branch=branch("a"), else_branch=branch("b")),
    ]
    known = {f"{name}{n}": some(8, 8) for name in "ab" for n in (1, 2)}
    return _model(
        nodes, [info("x", FLOAT, (8, 8))], [info("y", FLOAT, (8, 8))], zero=np.zeros((), np.float32), **known
    )


def lengths() -> onnx.ModelProto:
    """Layers in both directions, of three sequences with lengths of their own."""
    known = {"w": some(2, 16, 3), "r": some(2, 16, 4)}
    inputs = [info("x", FLOAT, (6, 3, 3)), info("count", TensorProto.INT32, (3,))]
    made = node(
        "LSTM", ["x", "w", "r", "", "count"], ["y", "h", "c"], hidden_size=4, direction="bidirectional"
    )
    outputs = [info("y", FLOAT, (6, 2, 3, 4)), *(info(name, FLOAT, (2, 3, 4)) for name in "hc")]
    return _model([made], inputs, outputs, **known)


def tagger() -> onnx.ModelProto:
    """Any number of words: two layers, the second in both directions, and a product behind them."""
    nodes = [
        node("LSTM", ["x", "w0", "r0"], ["first", "h"], hidden_size=4),
        node("Squeeze", ["first", "one"], ["inner"]),
        node("GRU", ["inner", "w1", "r1"], ["second"], hidden_size=4, direction="bidirectional"),
        node("Transpose", ["second"], ["beside"], perm=[0, 2, 1, 3]),
        node("Reshape", ["beside", "flat"], ["rows"]),
        node("MatMul", ["rows", "last"], ["tags"]),
        node("ReduceSum", ["rows", "zero"], ["total"], keepdims=0),
    ]
    known = {"w0": some(1, 16, 3), "r0": some(1, 16, 4), "w1": some(2, 12, 4), "r1": some(2, 12, 4)}
    known |= {"one": np.array([1]), "zero": np.array([0]), "flat": np.array([0, 0, 8]), "last": some(8, 5)}
    outputs = [info("tags", FLOAT, ("T", 1, 5)), info("total", FLOAT, (1, 8)), info("h", FLOAT, (1, 1, 4))]
    return _model(nodes, [info("x", FLOAT, ("T", 1, 3))], outputs, **known)


def _counted(*counts: int) -> Mapping[str, Array]:
    return {"x": some(6, 3, 3), "count": np.array(counts, np.int32)}


CASES: Mapping[str, tuple[Callable[[], onnx.ModelProto], list[Mapping[str, Array]]]] = {
    "branches": (branches, [{"x": some(8, 8) + shift} for shift in (1, -1, 1)]),
    "lengths": (lengths, [_counted(*counts) for counts in ((6, 1, 3), (2, 2, 2), (1, 1, 1), (6, 6, 6))]),
    "tagger": (tagger, [{"x": some(count, 1, 3)} for count in (9, 1, 2, 9, 5)]),
}


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str, tmp_path: Path) -> None:
    make, runs = CASES[name]
    proto, path = make(), tmp_path / "m.onnx"
    onnx.save(proto, path)
    dims = {"T": SizeRange(1, 9)} if name == "tagger" else {}
    compiler.compile_model(
        path, CompileOptions(output=tmp_path / "text", target="cpu", emit="source", dims=dims)
    )
    assert "tk_guard guards[]" in (tmp_path / "text" / "host.cpp").read_text()
    compiler.compile_model(path, CompileOptions(output=tmp_path / "m.so", target="cpu", dims=dims))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with compiler.load(tmp_path / "m.so") as loaded, loaded.context(1) as context:
        for given in runs:
            got = context.run(given)
            for one, expected in zip(session.get_outputs(), session.run(None, dict(given)), strict=True):
                np.testing.assert_allclose(got[one.name], expected, rtol=1e-4, atol=1e-5, err_msg=one.name)
