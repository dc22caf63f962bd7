"""A free batch: which models do the same with every sample, found on the loops of their operators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.frontend.onnx import import_model
from compiler.graph.ir import Graph
from compiler.graph.rewrites import canonical
from compiler.graph.rewrites.sizes import COUNTS, try_samples
from compiler.graph.samples import NotSeparateError, check_samples

Nodes = list[onnx.NodeProto]
node = helper.make_node
WEIGHTS = {
    "w": np.ones((12, 12), np.float32),
    "row": np.ones(12, np.float32),
    "kernel": np.ones((4, 3, 3, 3), np.float32),
    "one": np.array([1], np.int64),
    "zero": np.array([0], np.int64),
    "nothing": np.array(0, np.int64),
    "step": np.array(1, np.int64),
    "hundred": np.array([100], np.int64),
    "image": np.array([-1, 3, 2, 2], np.int64),
    "rows": np.array([-1, 3, 4], np.int64),
    "flat": np.array([-1, 4], np.int64),
    "small": np.ones((4, 4), np.float32),
}

SEPARATE: dict[str, Nodes] = {
    "elementwise": [
        node("Relu", ["x"], ["a"]),
        node("Add", ["a", "row"], ["b"]),
        node("Mul", ["b", "x"], ["y"]),
    ],
    "product": [node("MatMul", ["x", "w"], ["y"])],
    "dense layer": [node("Gemm", ["x", "w", "row"], ["y"], transB=1)],
    "softmax of rows": [node("Softmax", ["x"], ["y"], axis=1)],
    "sum of rows": [node("ReduceSum", ["x", "one"], ["y"], keepdims=1)],
    "normalised rows": [node("LayerNormalization", ["x", "row"], ["y"])],
    "convolution": [
        node("Reshape", ["x", "image"], ["i"]),
        node("Conv", ["i", "kernel"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2]),
    ],
    "parts side by side": [node("Neg", ["x"], ["a"]), node("Concat", ["a", "x"], ["y"], axis=1)],
    "transposed samples": [
        node("Reshape", ["x", "image"], ["i"]),
        node("Transpose", ["i"], ["y"], perm=[0, 3, 1, 2]),
    ],
    "product of two computed tensors": [
        node("Reshape", ["x", "image"], ["p"]),
        node("Transpose", ["p"], ["t"], perm=[0, 1, 3, 2]),
        node("MatMul", ["p", "t"], ["y"]),
    ],
    "shape of itself": [node("Shape", ["x"], ["s"]), node("Reshape", ["x", "s"], ["y"])],
}

MIXED: dict[str, tuple[Nodes, str]] = {
    "softmax over samples": ([node("Softmax", ["x"], ["y"], axis=0)], "Softmax) mixes the samples"),
    "sum over samples": ([node("ReduceSum", ["x", "zero"], ["y"], keepdims=1)], "one: ReduceSum"),
    "mean of all": ([node("ReduceMean", ["x"], ["y"], keepdims=1)], "depends on the batch"),
    "samples to the end": ([node("Transpose", ["x"], ["y"], perm=[1, 0])], "one: Transpose"),
    "every sample with every other": (
        [node("Transpose", ["x"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"])],
        "one: Transpose",
    ),
    "samples joined": ([node("Concat", ["x", "x"], ["y"], axis=0)], "mixes the samples"),
    "a hundred samples at most": (
        [node("Slice", ["x", "zero", "hundred", "zero"], ["y"])],
        "one: Slice",
    ),
    "the first sample for all": (
        [node("Slice", ["x", "zero", "one", "zero"], ["first"]), node("Add", ["x", "first"], ["y"])],
        "one: Slice",
    ),
    "numbers of samples": (
        [
            node("Shape", ["x"], ["n"], end=1),
            node("Squeeze", ["n"], ["count"]),
            node("Range", ["nothing", "count", "step"], ["samples"]),
            node("Cast", ["samples"], ["first"], to=TensorProto.FLOAT),
            node("Unsqueeze", ["first", "one"], ["column"]),
            node("Add", ["x", "column"], ["y"]),
        ],
        "one: Add",
    ),
    "how many": (
        [
            node("Shape", ["x"], ["s"], end=1),
            node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
            node("Div", ["x", "f"], ["y"]),
        ],
        "depends on the batch",
    ),
}


TOLD_APART: dict[str, Nodes] = {
    **{name: nodes for name, nodes in SEPARATE.items() if name != "shape of itself"},
    "samples side by side, as attention has them": [
        node("Reshape", ["x", "rows"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[1, 0, 2]),
        node("Shape", ["b"], ["s"]),
        node("Reshape", ["b", "flat"], ["c"]),
        node("MatMul", ["c", "small"], ["d"]),
        node("Reshape", ["d", "s"], ["e"]),
        node("Transpose", ["e"], ["f"], perm=[1, 2, 0]),
        node("Softmax", ["f"], ["y"], axis=-1),
    ],
    "one element of each": [
        node("Shape", ["x"], ["n"], end=1),
        node("Squeeze", ["n"], ["count"]),
        node("Range", ["nothing", "count", "step"], ["samples"]),
        node("Unsqueeze", ["samples", "one"], ["first"]),
        node("ArgMax", ["x"], ["second"], axis=1),
        node("Concat", ["first", "second"], ["both"], axis=1),
        node("GatherND", ["x", "both"], ["y"]),
    ],
    "a copy of the same for each": [
        node("Shape", ["x"], ["s"]),
        node("Expand", ["row", "s"], ["a"]),
        node("Mul", ["a", "x"], ["y"]),
    ],
}
"""Found by experiment, with what loops do not show."""


def graphs_of(nodes: Nodes, folder: Path, counts: Sequence[int]) -> list[Graph]:
    names = {name for item in nodes for name in item.input}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 12))],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items() if name in names],
    )
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [import_model(path, dims={"N": count}) for count in counts]


def prove(nodes: Nodes, folder: Path) -> None:
    counts = (1, 2, 1000)
    one, *others = (canonical(graph) for graph in graphs_of(nodes, folder, counts))
    for count, several in zip(counts[1:], others, strict=True):
        check_samples(one, several, count)


@pytest.mark.parametrize("name", SEPARATE)
def test_samples_that_are_apart(name: str, tmp_path: Path) -> None:
    prove(SEPARATE[name], tmp_path)


@pytest.mark.parametrize("name", MIXED)
def test_samples_that_meet(name: str, tmp_path: Path) -> None:
    nodes, why = MIXED[name]
    with pytest.raises(NotSeparateError, match=why.replace(")", r"\)")):
        prove(nodes, tmp_path)


@pytest.mark.parametrize("name", TOLD_APART)
def test_samples_that_experiments_tell_apart(name: str, tmp_path: Path) -> None:
    try_samples(graphs_of(TOLD_APART[name], tmp_path, COUNTS))


@pytest.mark.parametrize("name", MIXED)
def test_samples_that_meet_in_experiments(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotSeparateError):
        try_samples(graphs_of(MIXED[name][0], tmp_path, COUNTS))
