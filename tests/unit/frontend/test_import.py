"""Importing ONNX: what is accepted, and what it becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.core.diagnostics import BadInputError, UsageError
from compiler.core.types import F32
from compiler.frontend.onnx import import_model, import_proto
from compiler.frontend.refusals import UnsupportedModelError
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, verify
from tests.support.onnx_models import assert_close, model, run_onnxruntime

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
node = helper.make_node


def load(proto: onnx.ModelProto, directory: Path, **options: Any) -> Graph:
    graph = import_proto(proto, directory, options.get("shapes", {}), options.get("binds", {}))
    verify(graph)
    return graph


def agrees(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], directory: Path, **options: Any) -> Graph:
    graph = load(proto, directory, **options)
    want = run_onnxruntime(proto, feeds)
    got = evaluate(graph, {name: feeds[name] for name in graph.input_names})
    for name, array in want.items():
        assert_close(got[name], array)
    return graph


def typed(name: str, *shape: int | str | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def symbolic(*inputs: onnx.ValueInfoProto, nodes: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    body = nodes or [node("Relu", [inputs[0].name], ["y"])]
    graph = helper.make_graph(body, "g", list(inputs), [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# ---------------------------------------------------------------- versions and forms


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_every_opset_from_7_on(opset: int, tmp_path: Path) -> None:
    graph = load(model([node("Relu", ["x"], ["y"])], {"x": X}, ["y"], opset=opset, ir_version=10), tmp_path)
    assert [item.op.name for item in graph.nodes] == ["Relu"]


@pytest.mark.parametrize("ir_version", [3, 4, 8, 10])
def test_initializers_listed_as_inputs_are_constants(ir_version: int, tmp_path: Path) -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": X, "w": X}, ["y"], {"w": X}, ir_version=ir_version)
    graph = agrees(proto, {"x": X}, tmp_path)
    assert graph.input_names == ("x",)


def test_shape_arithmetic_is_folded(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["batch"], axis=0),
        node("Unsqueeze", ["batch", "axes"], ["batch1"]),
        node("Concat", ["batch1", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    known = {"zero": np.asarray(0), "axes": np.asarray([0]), "rest": np.asarray([-1])}
    graph = agrees(model(nodes, {"x": X}, ["y"], known), {"x": X}, tmp_path)
    assert [item.op.name for item in graph.nodes] == ["Reshape"]


def test_constants_in_all_spellings(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.asarray([1, 2, 3], np.float32))
    nodes = [
        node("Constant", [], ["a"], value=tensor),
        node("Constant", [], ["b"], value_float=2.0),
        node("Constant", [], ["c"], value_floats=[1.0, 2.0, 3.0]),
        node("Sum", ["x", "a", "b", "c"], ["y"]),
    ]
    agrees(model(nodes, {"x": X}, ["y"]), {"x": X}, tmp_path)


def test_functions_are_inlined(tmp_path: Path) -> None:
    body = [node("Mul", ["a", "a"], ["b"]), node("Inner", ["b"], ["c"], domain="mine")]
    square = helper.make_function(
        "mine", "Outer", ["a"], ["c"], body, [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    )
    inner = helper.make_function(
        "mine", "Inner", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    proto = model(
        [node("Outer", ["x"], ["y"], domain="mine")],
        {"x": X},
        ["y"],
        imports=[helper.make_opsetid("mine", 1)],
        functions=[square, inner],
    )
    graph = agrees(proto, {"x": X}, tmp_path)
    assert [item.op.name for item in graph.nodes] == ["Mul", "Relu"]


@pytest.mark.parametrize(
    ("op", "opset", "attrs"),
    [
        ("MeanVarianceNormalization", 13, {"axes": [1]}),
        ("Shrink", 18, {"bias": 0.2}),
    ],
)
def test_operators_that_onnx_defines_by_others_are_inlined(
    op: str, opset: int, attrs: dict[str, Any], tmp_path: Path
) -> None:
    proto = model([node(op, ["x"], ["y"], **attrs)], {"x": X}, ["y"], opset=opset, ir_version=10)
    agrees(proto, {"x": X}, tmp_path)


def test_nodes_in_any_order(tmp_path: Path) -> None:
    nodes = [node("Relu", ["a"], ["y"]), node("Exp", ["x"], ["a"])]
    graph = load(model(nodes, {"x": X}, ["y"]), tmp_path)
    assert [item.op.name for item in graph.nodes] == ["Exp", "Relu"]


def test_an_output_can_be_an_input_or_a_constant(tmp_path: Path) -> None:
    graph = load(model([node("Relu", ["x"], ["y"])], {"x": X}, ["x", "y", "w"], {"w": X}), tmp_path)
    got = evaluate(graph, {"x": X})
    assert_close(got["x"], X)
    assert_close(got["w"], X)


def test_names_decide_nothing(tmp_path: Path) -> None:
    """Renaming everything leaves the graph as it is, but for its comments."""
    plain = model([node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"], {"w": X})
    odd = {"x": 'a"*/\n', "w": "\\", "y": "#include <x>"}
    renamed = model([node("Add", [odd["x"], odd["w"]], [odd["y"]])], {odd["x"]: X}, [odd["y"]], {odd["w"]: X})
    texts = [str(load(proto, tmp_path)) for proto in (plain, renamed)]
    bare = [[line.split("  #")[0] for line in text.splitlines()] for text in texts]
    assert bare[0] == bare[1]


def test_unused_optional_outputs_do_not_matter(tmp_path: Path) -> None:
    proto = model([node("Dropout", ["x"], ["y", "mask"])], {"x": X}, ["y"])
    agrees(proto, {"x": X}, tmp_path)


# ---------------------------------------------------------------- shapes


def test_symbols_are_resolved_by_shape(tmp_path: Path) -> None:
    proto = symbolic(typed("x", "n", 3))
    assert load(proto, tmp_path, shapes={"x": (4, 3)}).inputs[0].type.shape == (4, 3)


def test_one_input_resolves_the_symbols_of_another(tmp_path: Path) -> None:
    proto = symbolic(typed("x", "n", 3), typed("z", "n", 1), nodes=[node("Add", ["x", "z"], ["y"])])
    assert load(proto, tmp_path, shapes={"x": (4, 3)}).inputs[1].type.shape == (4, 1)


def test_an_open_dimension_names_the_flag_and_the_dimension(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(symbolic(typed("x", "batch", 3, None)), tmp_path)
    assert "x [batch, 3, ?]" in str(caught.value)
    assert "--shape x=1,3,1" in caught.value.hint


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"q": (1, 3)}, "no such input"),
        ({"x": (1, 4)}, "fixed dimension"),
        ({"x": (3,)}, "number of dimensions"),
        ({"x": (0, 3)}, "positive"),
        ({"x": (2, 3), "z": (4, 1)}, "elsewhere"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], words: str, tmp_path: Path) -> None:
    proto = symbolic(typed("x", "n", 3), typed("z", "n", 1), nodes=[node("Add", ["x", "z"], ["y"])])
    with pytest.raises(UsageError, match=words):
        load(proto, tmp_path, shapes=shapes)


def test_an_input_of_unknown_rank_needs_a_shape(tmp_path: Path) -> None:
    proto = symbolic(helper.make_tensor_value_info("x", TensorProto.FLOAT, None))
    with pytest.raises(UsageError, match="x of a shape that the model does not say"):
        load(proto, tmp_path)
    assert load(proto, tmp_path, shapes={"x": (2, 2)}).outputs[0].type.shape == (2, 2)


def test_bind_makes_an_input_a_constant(tmp_path: Path) -> None:
    proto = symbolic(
        typed("x", 2, 3), typed("s", 1, kind=TensorProto.INT64), nodes=[node("Reshape", ["x", "s"], ["y"])]
    )
    graph = load(proto, tmp_path, binds={"s": -1})
    assert graph.input_names == ("x",)
    assert graph.outputs[0].type.shape == (6,)


@pytest.mark.parametrize("value", ["abc", 1.5, [1, 2]])
def test_bind_refuses_what_does_not_fit(value: object, tmp_path: Path) -> None:
    proto = symbolic(
        typed("x", 2, 3), typed("s", 1, kind=TensorProto.INT64), nodes=[node("Reshape", ["x", "s"], ["y"])]
    )
    with pytest.raises(UsageError):
        load(proto, tmp_path, binds={"s": value})


def test_a_shape_that_only_the_run_knows_is_refused_with_advice(tmp_path: Path) -> None:
    proto = symbolic(
        typed("x", 2, 3), typed("s", 1, kind=TensorProto.INT64), nodes=[node("Reshape", ["x", "s"], ["y"])]
    )
    with pytest.raises(UnsupportedModelError, match="--bind"):
        load(proto, tmp_path)


# ---------------------------------------------------------------- refusals


def test_all_unsupported_nodes_are_reported_at_once(tmp_path: Path) -> None:
    nodes = [
        node("Relux", ["x"], ["a"], name="first"),
        node("Relu", ["a"], ["b"]),
        node("If", ["c"], ["d"], name="branch", then_branch=branch("Relux"), else_branch=branch("Identity")),
        node("Fancy", ["x"], ["e"], name="third", domain="their.domain"),
        node("Sum", ["b", "d", "e"], ["y"]),
    ]
    proto = model(
        nodes, {"x": X, "c": np.asarray(True)}, ["y"], imports=[helper.make_opsetid("their.domain", 1)]
    )
    with pytest.raises(UnsupportedModelError) as caught:
        load(proto, tmp_path)
    assert [(item.node, item.op) for item in caught.value.refusals] == [
        ("first", "Relux"),
        ("inside", "Relux"),
        ("third", "their.domain.Fancy"),
    ]
    assert "did you mean 'Relu'?" in str(caught.value)


def branch(op: str) -> onnx.GraphProto:
    return helper.make_graph([node(op, ["x"], ["z"], name="inside")], "b", [], [typed("z", 2, 3)])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([node("Add", ["x", "w"], ["y"])], "do not broadcast"),
        ([node("MatMul", ["x", "x"], ["y"])], "do not multiply"),
        ([node("Concat", ["x", "w"], ["y"], axis=0)], "cannot be joined"),
        ([node("Transpose", ["x"], ["y"], perm=[0, 0])], "no permutation"),
        ([node("Softmax", ["x"], ["y"], axis=5)], "axis 5 does not exist"),
        ([node("Relu", ["q"], ["y"])], "computed nowhere"),
        (
            [node("Relu", ["x"], ["a"]), node("Exp", ["x"], ["a"]), node("Relu", ["a"], ["y"])],
            "computed twice",
        ),
        ([node("Add", ["x", "y"], ["a"]), node("Add", ["x", "a"], ["y"])], "its own result"),
        ([node("Conv", ["x", "w"], ["y"])], "do not make a convolution"),
        ([node("Concat", ["x", "x"], ["y"])], "axis"),
        ([node("Gemm", ["x"], ["y"])], "has 1 input"),
        ([node("Transpose", ["x"], ["y"], perm=1.5)], "not valid|cannot be compiled"),
        ([node("Relu", ["x"], ["z"])], "never computed"),
    ],
)
def test_invalid_models(body: list[onnx.NodeProto], words: str, tmp_path: Path) -> None:
    proto = model(body, {"x": X}, ["y"], {"w": np.zeros((2, 4), np.float32)})
    with pytest.raises(BadInputError, match=words) as caught:
        load(proto, tmp_path)
    assert caught.value.code == 3


def test_an_unknown_attribute_is_refused(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"], magic=3)], {"x": X}, ["y"])
    with pytest.raises(UnsupportedModelError, match="magic"):
        load(proto, tmp_path)


@pytest.mark.parametrize("opset", [0, 99])
def test_opsets_out_of_range(opset: int, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=f"opset {opset}"):
        load(model([node("Relu", ["x"], ["y"])], {"x": X}, ["y"], opset=opset), tmp_path)


def test_strings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="STRING"):
        load(symbolic(typed("x", 2, kind=TensorProto.STRING)), tmp_path)


def test_absurd_shapes_are_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    shape = np.asarray([1 << 40], np.int64)
    proto = model([node("ConstantOfShape", ["s"], ["y"])], {"x": X}, ["y"], {"s": shape})
    with pytest.raises(BadInputError, match="larger than"):
        load(proto, tmp_path)
    with pytest.raises(BadInputError, match="too large"):
        load(symbolic(typed("x", 1 << 40)), tmp_path)


def test_out_of_range_indices_are_refused(tmp_path: Path) -> None:
    proto = model([node("Gather", ["x", "i"], ["y"], axis=1)], {"x": X}, ["y"], {"i": np.asarray([3])})
    with pytest.raises(BadInputError, match="an index is 3 or 3, on an axis of extent"):
        load(proto, tmp_path)


# ---------------------------------------------------------------- files


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        import_model(tmp_path / "none.onnx")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x08\x08", bytes(range(256)) * 8])
def test_garbage(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(BadInputError, match=r"no valid ONNX model|the file is empty"):
        import_model(tmp_path / "m.onnx")


def test_every_truncation_is_one_clear_error_or_a_graph(tmp_path: Path) -> None:
    proto = model([node("Add", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])], {"x": X}, ["y"], {"w": X})
    data = proto.SerializeToString()
    path, outcomes = tmp_path / "m.onnx", set()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        outcomes.add(outcome(path))
    assert BadInputError in outcomes


def test_flipped_bytes_are_one_clear_error_or_a_graph(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Softmax", ["a"], ["y"], axis=1)]
    image, weights = np.zeros((1, 2, 4, 4), np.float32), np.zeros((2, 2, 3, 3), np.float32)
    data = model(nodes, {"x": image}, ["y"], {"w": weights}).SerializeToString()
    rng, path = np.random.default_rng(3), tmp_path / "m.onnx"
    for _ in range(400):
        broken = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            broken[at] = rng.integers(0, 256)
        path.write_bytes(bytes(broken))
        outcome(path)


def outcome(path: Path) -> type:
    """Graph, or the error; anything else fails the test."""
    try:
        return type(import_model(path))
    except (BadInputError, UsageError) as error:
        return BadInputError if error.code == 3 else UsageError


def test_dtypes_of_inputs_are_kept(tmp_path: Path) -> None:
    graph = load(model([node("Relu", ["x"], ["y"])], {"x": X}, ["y"]), tmp_path)
    assert graph.inputs[0].type.dtype == F32
