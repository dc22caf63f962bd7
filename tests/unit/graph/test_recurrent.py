"""RNN, GRU and LSTM beyond the cases of all operators: activations, types, how little a step is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.core.diagnostics import BadInputError
from compiler.core.types import F32
from compiler.frontend.onnx import import_proto
from compiler.frontend.refusals import UnsupportedModelError
from compiler.graph.edit import Editor
from compiler.graph.fuse import FusedGraph, fuse
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, TensorType, verify
from compiler.graph.ops.movement import emit_rows
from compiler.graph.rewrites import rewrite_graph
from tests.support.onnx_models import assert_close, run_onnxruntime, single
from tests.support.op_case import Case, floats
from tests.support.op_cases_recurrent import GATES, HIDDEN, STEPS, layer, onnx_reference


def imported(case: Case) -> Graph:
    proto, _ = single(case.op, case.inputs, case.attrs, case.opset, case.known, case.outputs)
    graph = import_proto(proto, Path(), {}, {})
    verify(graph)
    return graph


def agrees(case: Case, tolerance: float = 1e-5) -> None:
    proto, feeds = single(case.op, case.inputs, case.attrs, case.opset, case.known, case.outputs)
    want, graph = case.oracle(proto, feeds), imported(case)
    canonical = rewrite_graph(graph)
    verify(canonical)
    for which in (graph, canonical):
        got = evaluate(which, feeds)
        for name, array in want.items():
            assert_close(got[name], array, tolerance)


@pytest.mark.parametrize(
    "names",
    [["Relu"], ["Affine"], ["LeakyRelu"], ["ThresholdedRelu"], ["ScaledTanh"], ["HardSigmoid"], ["Elu"],
     ["Softsign"], ["Softplus"]],
    ids=str,
)  # fmt: skip
def test_activations(names: list[str]) -> None:
    agrees(layer("RNN", {"activations": names, "activation_alpha": [0.7], "activation_beta": [0.3]}))


def test_numbers_belong_to_the_activations_that_take_them() -> None:
    functions = ["HardSigmoid", "Softsign", "LeakyRelu", "Sigmoid", "ScaledTanh", "Elu"]
    numbers = {"activation_alpha": [0.3, 0.05, 0.9, 0.8], "activation_beta": [0.4, 0.7]}
    attrs = {"activations": functions, "direction": "bidirectional", **numbers}
    agrees(layer("LSTM", attrs, [7], directions=2))


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lengths_that_are_known_and_a_state_of_each_direction(op: str, direction: str) -> None:
    directions = 2 if direction == "bidirectional" else 1
    agrees(layer(op, {"direction": direction}, directions=directions, known=[1, 2, 3, 4]))


@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_batches_first(op: str) -> None:
    """onnxruntime has no layout 1; ONNX's own evaluator has that of one direction."""
    agrees(layer(op, {"layout": 1}, [4], oracle=onnx_reference), 1e-5)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
@pytest.mark.parametrize("op", GATES)
def test_other_floats(op: str, kind: type) -> None:
    case = layer(op, {}, [4])
    proto, feeds = single(case.op, case.inputs, case.attrs, case.opset, case.known, case.outputs)
    want = run_onnxruntime(proto, feeds)
    cast = [array if array is None else array.astype(kind) for array in case.inputs]
    proto, feeds = single(case.op, cast, case.attrs, case.opset, case.known, case.outputs)
    got = evaluate(rewrite_graph(import_proto(proto, Path(), {}, {})), feeds)
    for name, array in want.items():
        assert_close(got[name], array.astype(kind), 1e-5 if kind is np.float64 else 1e-2)


@pytest.mark.parametrize(
    ("op", "attrs", "products"),
    [("RNN", {}, 1), ("GRU", {}, 2), ("GRU", {"linear_before_reset": 1}, 1), ("LSTM", {}, 1)],
)
def test_backward_no_product_is_needed_before_a_sequence_ends(
    op: str, attrs: dict[str, int], products: int
) -> None:
    """The state is still zero in the first step that counts, as in those behind the end."""
    chosen = {}
    for direction in ("forward", "reverse"):
        case = layer(op, {"direction": direction, **attrs}, [5, 6], known=[1, 2, 3, 6])
        agrees(case)
        graph = rewrite_graph(imported(case))
        taken = [graph.producers[node.inputs[1]] for node in graph.nodes if node.op.name == "Where"]
        chosen[direction] = [node.op.name for node in taken].count("MatMul")
    assert chosen == {"forward": 0, "reverse": products * (STEPS - 1)}


def test_no_steps() -> None:
    given = [np.zeros((0, 2, 4), np.float32), *layer("LSTM", {}).inputs[1:4], None, floats(1, 2, HIDDEN)]
    proto, feeds = single("LSTM", given, {"hidden_size": HIDDEN}, 14, [1, 2, 3], 3)
    got = evaluate(rewrite_graph(import_proto(proto, Path(), {}, {})), feeds)
    assert got["out0"].shape == (0, 1, 2, HIDDEN)
    assert_close(got["out1"], given[5])
    assert_close(got["out2"], np.zeros((1, 2, HIDDEN), np.float32))


# ---------------------------------------------------------------- how it is computed


def fused(op: str, attrs: dict[str, int]) -> FusedGraph:
    return fuse(rewrite_graph(imported(layer(op, attrs, [4, 7]))))


@pytest.mark.parametrize(
    ("op", "attrs", "most"),
    [("RNN", {}, 1), ("GRU", {}, 4), ("GRU", {"linear_before_reset": 1}, 2), ("LSTM", {}, 3)],
)
def test_a_step_is_few_kernels(op: str, attrs: dict[str, int], most: int) -> None:
    """Besides them: the inputs' product, all results side by side, and copies of the last states."""
    assert len(fused(op, attrs).groups) <= most * STEPS + 4


def test_steps_read_runs_of_memory() -> None:
    """So that their kernels are the same."""
    graph = fused("LSTM", {}).graph
    parts = [item for item in graph.nodes if item.op.name == "Rows" and item.attrs.integer("count") == 2]
    assert [item.op.begin(item.info) for item in parts][:STEPS] == [0, 40, 80]
    assert len([item for item in graph.nodes if item.op.name == "Slice"]) == 4 * STEPS


def test_rows_that_leave_a_model_are_copied() -> None:
    editor = Editor()
    source = editor.value(TensorType(F32, (4, 3)), "x")
    twice = editor.emit("Add", source, source)
    outputs = (emit_rows(editor, twice, 1, 2), twice)
    graph = Graph((source,), outputs, tuple(editor.nodes), editor.constants, ("x",), ("part", "all"))
    x = floats(4, 3)
    separate = rewrite_graph(graph)
    got = evaluate(separate, {"x": x})
    assert_close(got["part"], 2 * x[1:3])
    assert [item.op.name for item in separate.nodes] == ["Add", "Rows", "Copy"]


# ---------------------------------------------------------------- refused


def test_what_is_no_layer() -> None:
    case = layer("LSTM", {}, [4])
    given = [*case.inputs]
    given[3] = floats(1, 7)
    for inputs, attrs, why in (
        (given, {}, "its input 3 is f32[1,7], expected [1, 40]"),
        (case.inputs, {"direction": "sideways"}, "'sideways' is no direction"),
        (case.inputs, {"activations": ["Tanh"]}, "1 activations"),
        (case.inputs, {"hidden_size": 7}, "recurrent weights"),
    ):
        with pytest.raises(BadInputError) as caught:
            imported(Case("LSTM", inputs, {"hidden_size": HIDDEN, **attrs}, 14, case.known, 3))
        assert why in caught.value.why
    long = [np.zeros((6000, 1, 4), np.float32), *layer("RNN", {}, [4, 5], directions=2).inputs[1:]]
    attrs = {"hidden_size": HIDDEN, "direction": "bidirectional"}
    with pytest.raises(UnsupportedModelError, match="12,000 steps are not supported, at most 10,000"):
        imported(Case("RNN", long, attrs, 14, [1, 2, 3], 2))
    with pytest.raises(UnsupportedModelError, match="'mish' is not supported"):
        imported(layer("RNN", {"activations": ["Mish"]}))
