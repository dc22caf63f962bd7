"""Sequences and optional values that end as tensors; onnxruntime says what they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.core.diagnostics import BadInputError
from compiler.frontend.onnx import import_proto
from compiler.frontend.refusals import UnsupportedModelError
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, verify
from tests.support.onnx_models import assert_close, model, run_onnxruntime

A = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
FEEDS = {"a": A, "b": 2 * A, "d": A - 1}
node = helper.make_node
THREE = node("SequenceConstruct", ["a", "b", "d"], ["s"])
JOINED = node("ConcatFromSequence", ["r"], ["y"], axis=0)


def agrees(
    *nodes: onnx.NodeProto, constants: dict[str, np.ndarray] | None = None, **feeds: np.ndarray
) -> Graph:
    given = {**FEEDS, **feeds}
    proto = model(nodes, given, ["y"], constants)
    graph = import_proto(proto, Path(), {}, {})
    verify(graph)
    got = evaluate(graph, {name: given[name] for name in graph.input_names})
    assert_close(got["y"], run_onnxruntime(proto, given)["y"])
    return graph


def position(number: int) -> dict[str, np.ndarray]:
    return {"p": np.asarray(number)}


@pytest.mark.parametrize("place", range(-3, 3))
@pytest.mark.parametrize("is_known", [True, False])
def test_at_and_erase(place: int, is_known: bool) -> None:
    constants, feeds = (position(place), {}) if is_known else ({}, position(place))
    graph = agrees(THREE, node("SequenceAt", ["s", "p"], ["y"]), constants=constants, **feeds)
    assert bool(graph.nodes) != is_known
    graph = agrees(THREE, node("SequenceErase", ["s", "p"], ["r"]), JOINED, constants=constants, **feeds)
    assert [item.op.name for item in graph.nodes if is_known] == ["Concat"] * is_known


@pytest.mark.parametrize("place", range(-3, 4))
@pytest.mark.parametrize("is_known", [True, False])
def test_insert(place: int, is_known: bool) -> None:
    constants, feeds = (position(place), {}) if is_known else ({}, position(place))
    more = {"e": 3 * A}
    insert = node("SequenceInsert", ["s", "e", "p"], ["r"])
    agrees(THREE, insert, JOINED, constants=constants, **more, **feeds)


def test_the_end_is_where_no_position_is_given() -> None:
    agrees(node("SequenceEmpty", [], ["s"]), node("SequenceInsert", ["s", "a"], ["t"]),
           node("SequenceInsert", ["t", "b"], ["u"]), node("SequenceInsert", ["u", "d"], ["v"]),
           node("SequenceErase", ["v"], ["r"]), JOINED)  # fmt: skip


def test_a_position_that_depends_on_data_is_among_equal_types() -> None:
    nodes = [
        node("SequenceConstruct", ["a", "c"], ["s"]),
        node("SequenceAt", ["s", "p"], ["y"], name="which"),
    ]
    given = {"a": A, "c": A.T, "p": np.asarray(0)}
    with pytest.raises(UnsupportedModelError, match="known only when the model runs"):
        import_proto(model(nodes, given, ["y"]), Path(), {}, {})


@pytest.mark.parametrize(("new_axis", "axis"), [(0, 0), (0, -1), (1, 0), (1, 2), (1, -1), (1, -3)])
def test_concatenate(new_axis: int, axis: int) -> None:
    agrees(THREE, node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=new_axis))


@pytest.mark.parametrize("split", [None, np.asarray(2), np.asarray([1, 2]), np.asarray(5)])
def test_split(split: np.ndarray | None) -> None:
    names, constants = (["a", "n"], {"n": split}) if split is not None else (["a"], {})
    parts = node("SplitToSequence", names, ["r"], axis=1)
    agrees(parts, node("ConcatFromSequence", ["r"], ["y"], axis=1), constants=constants)
    agrees(parts, node("SequenceLength", ["r"], ["y"]), constants=constants)


def test_split_without_the_axis() -> None:
    parts = node("SplitToSequence", ["a"], ["r"], axis=-1, keepdims=0)
    agrees(parts, node("ConcatFromSequence", ["r"], ["y"], axis=0, new_axis=1))


def test_map() -> None:
    """onnxruntime has it as ONNX's function."""
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "pqz"]
    inner = [node("Sub", ["p", "q"], ["t"]), node("Mul", ["t", "b"], ["z"])]
    body = helper.make_graph(inner, "each", info[:2], info[2:])
    agrees(THREE, node("SequenceMap", ["s", "a"], ["r"], body=body), JOINED)


def test_identity_of_a_sequence() -> None:
    agrees(THREE, node("Identity", ["s"], ["r"]), JOINED)


@pytest.mark.parametrize("inputs", [["a"], []])
def test_optional_values(inputs: list[str]) -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3])
    branch = {
        name: helper.make_graph([inner], name, [], [onnx.ValueInfoProto(name="z")])
        for name, inner in (
            ("then_branch", node("OptionalGetElement", ["o"], ["z"])),
            ("else_branch", node("Identity", ["b"], ["z"])),
        )
    }
    nodes = [
        node("Optional", inputs, ["o"], **({} if inputs else {"type": kind})),
        node("OptionalHasElement", ["o"], ["there"]),
        node("If", ["there"], ["y"], **branch),
    ]
    proto = model(nodes, FEEDS, ["y"])
    graph = import_proto(proto, Path(), {}, {})
    got = evaluate(graph, {name: FEEDS[name] for name in graph.input_names})
    assert_close(got["y"], FEEDS["a" if inputs else "b"])


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([THREE, node("Relu", ["s"], ["y"])], "is a sequence of 3 tensors, not a tensor"),
        ([node("SequenceLength", ["a"], ["y"])], "not a sequence"),
        ([node("SequenceEmpty", [], ["s"]), node("SequenceErase", ["s"], ["r"]), JOINED], "no position"),
        ([node("SequenceEmpty", [], ["r"]), JOINED], "empty sequence"),
        ([THREE, node("SequenceAt", ["s", "three"], ["y"])], "has no position 3"),
        ([node("SplitToSequence", ["a", "three"], ["r"], axis=5), JOINED], "axis 5"),
        ([node("Optional", [], ["o"]), node("OptionalGetElement", ["o"], ["y"])], "empty"),
        ([node("Identity", ["b"], ["r"]), JOINED], "not a sequence"),
        ([node("SequenceConstruct", ["a", "three"], ["r"]), JOINED], "f32 and i64"),
    ],
)
def test_what_is_no_valid_model(nodes: list[onnx.NodeProto], reason: str) -> None:
    with pytest.raises(BadInputError, match="not valid") as caught:
        import_proto(model(nodes, FEEDS, ["y"], {"three": np.asarray(3)}), Path(), {}, {})
    assert reason in caught.value.why


def test_only_tensors_leave_a_model() -> None:
    with pytest.raises(BadInputError) as caught:
        import_proto(model([THREE], FEEDS, ["s"]), Path(), {}, {})
    assert "sequence of 3 tensors; only tensors can be outputs" in caught.value.why
