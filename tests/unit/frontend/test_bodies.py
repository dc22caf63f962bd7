"""Composite operators: imported as what ONNX says that they are made of."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from compiler.core.diagnostics import BadInputError
from compiler.frontend import functions
from compiler.frontend.onnx import import_proto
from compiler.frontend.refusals import UnsupportedModelError
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, verify
from tests.support.onnx_models import assert_close, model

node = helper.make_node
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
HEADS = np.sin(np.arange(2 * 4 * 6 * 8, dtype=np.float32)).reshape(2, 4, 6, 8)


def load(proto: onnx.ModelProto) -> Graph:
    graph = import_proto(proto, Path(), {}, {})
    verify(graph)
    return graph


def agrees(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Graph:
    graph = load(proto)
    got = evaluate(graph, {name: feeds[name] for name in graph.input_names})
    for item, want in zip(proto.graph.output, ReferenceEvaluator(proto).run(None, feeds), strict=True):
        assert_close(got[item.name], np.asarray(want), what=item.name)
    return graph


@pytest.mark.parametrize(
    ("op", "opset", "arrays", "outputs", "attrs"),
    [
        ("MeanVarianceNormalization", 9, [HEADS], 1, {}),
        ("MeanVarianceNormalization", 13, [X], 1, {"axes": [1]}),
        ("MeanVarianceNormalization", 18, [X], 1, {"axes": [0, -1]}),
        ("LayerNormalization", 17, [X, X[0, 0]], 3, {"axis": -1}),
        ("Attention", 23, [HEADS, HEADS, HEADS], 1, {"is_causal": 1}),
        ("Attention", 24, [HEADS, HEADS[:, :2], HEADS[:, 1:3]], 1, {"scale": 0.5, "softcap": 2.0}),
        ("Attention", 23, [HEADS] * 3 + [None] + [HEADS] * 2, 4, {"qk_matmul_output_mode": 1}),
        ("Attention", 23, [HEADS] * 3 + [HEADS[0, 0, :, :6] > 0.5], 1, {}),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_a_body_means_what_the_reference_says(
    op: str, opset: int, arrays: list[np.ndarray | None], outputs: int, attrs: dict[str, Any]
) -> None:
    names = ["" if array is None else f"in{at}" for at, array in enumerate(arrays)]
    feeds = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    made = [f"out{at}" for at in range(outputs)]
    proto = model([node(op, names, made, **attrs)], feeds, made, opset=opset, ir_version=10)
    agrees(proto, feeds)


def test_names_in_a_body_are_its_own() -> None:
    """Values of the model that are called as the body calls its own, and two nodes of an operator."""
    nodes = [
        node("Neg", ["X"], ["X_variance"]),
        node("MeanVarianceNormalization", ["X_variance"], ["EX_squared"], axes=[0]),
        node("MeanVarianceNormalization", ["EX_squared"], ["Y"], axes=[1]),
        node("Add", ["X_variance", "Y"], ["y"]),
    ]
    proto = model(nodes, {"X": X}, ["y", "EX_squared"], opset=18, ir_version=10)
    agrees(proto, {"X": X})


def test_a_body_counts_as_the_node_that_it_came_from() -> None:
    nodes = [node("Attention", ["x", "x", "x"], ["a"], name="self"), node("Relu", ["a"], ["y"])]
    graph = load(model(nodes, {"x": HEADS}, ["y"], opset=23, ir_version=10))
    *body, relu = graph.nodes
    assert {item.origin for item in body} == {("self",)}
    assert relu.op.name == "Relu"


def test_what_cannot_be_compiled_in_a_body_is_named() -> None:
    score = helper.make_graph(
        [node("Thing", ["s"], ["t"], domain="other")],
        "score",
        [helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, (2, 4, 6, 6))],
        [helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, (2, 4, 6, 6))],
    )
    preview = "ai.onnx.preview"
    nodes = [
        node("Attention", ["x", "x", "x"], ["a"]),
        node("FlexAttention", ["a", "a", "a"], ["b"], name="flex", domain=preview, score_mod=score),
        node("Relu", ["b"], ["y"]),
    ]
    imports = [helper.make_opsetid(preview, 1)]
    with pytest.raises(UnsupportedModelError) as caught:
        load(model(nodes, {"x": HEADS}, ["y"], opset=26, imports=imports))
    (refusal,) = caught.value.refusals
    assert (refusal.node, refusal.op) == ("flex", "ai.onnx.preview.FlexAttention")
    assert refusal.reason == "its other.Thing: operators of other are not supported yet"
    known = caught.value.known
    assert known.ops["Attention"] == 1
    assert known.flops["Attention"] > 4 * 2 * 4 * 6 * 6 * 8
    assert known.unknown_nodes >= 2


def test_an_attribute_that_the_operator_does_not_have() -> None:
    proto = model([node("MeanVarianceNormalization", ["x"], ["y"], magic=1)], {"x": X}, ["y"], opset=18)
    with pytest.raises(UnsupportedModelError, match="attribute magic"):
        load(proto)


def test_a_node_that_onnx_finds_wrong() -> None:
    flat = np.ones(4, np.float32)
    proto = model([node("Attention", ["x", "x", "x"], ["y"])], {"x": flat}, ["y"], opset=23, ir_version=10)
    with pytest.raises((BadInputError, UnsupportedModelError), match="Attention"):
        load(proto)


def test_nodes_of_bodies_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "MOST_NODES", 30)
    names = [f"x{at}" for at in range(4)]
    nodes = [node("MeanVarianceNormalization", [a], [b], axes=[0]) for a, b in pairwise(names)]
    with pytest.raises(BadInputError) as caught:
        load(model(nodes, {"x0": X}, names[-1:], opset=18))
    assert "39 nodes; at most 30" in str(caught.value.why)
