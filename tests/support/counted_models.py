"""Models whose results are as long as what a run finds in its inputs; nothing of that length is declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
Array = np.ndarray[Any, np.dtype[Any]]
KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.bool_): TensorProto.BOOL}
RATES = (0.3, 0.0, 1.0, 0.7)
"""How much of an input is picked, run after run."""


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    **known: object,
) -> onnx.ModelProto:
    """Inputs whose names begin with `m` are truth values; outputs are declared without shape."""
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(
                name, TensorProto.BOOL if name[0] == "m" else TensorProto.FLOAT, shape
            )
            for name, shape in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def feeds(proto: onnx.ModelProto, rate: float, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
    """Inputs of which as many elements are true, or not zero; boxes and scores are such."""
    rng = np.random.default_rng(int(rate * 100))
    found = {}
    for item in proto.graph.input:
        dims = item.type.tensor_type.shape.dim
        shape = [dim.dim_value or (sizes or {})[dim.dim_param] for dim in dims]
        picked = rng.random(shape) < rate
        if item.type.tensor_type.elem_type == TensorProto.BOOL:
            found[item.name] = picked
        elif item.name == "boxes":
            corner = rng.random((*shape[:-1], 2))
            found[item.name] = np.concatenate([corner, corner + 0.3], -1).astype(np.float32)
        else:
            found[item.name] = (rng.random(shape) * picked + 0.0).astype(np.float32)
    return found


def _masked(*names: str) -> list[onnx.NodeProto]:
    """`x[m]` for each of these, as torch writes it: each with a NonZero of its own."""
    return [
        item
        for name in names
        for item in (
            node("NonZero", ["m"], [f"{name}_at"]),
            node("Transpose", [f"{name}_at"], [f"{name}_rows"], perm=[1, 0]),
            node("GatherND", [name, f"{name}_rows"], [f"{name}_of"]),
        )
    ]


def non_zero() -> onnx.ModelProto:
    return model([node("NonZero", ["x"], ["y"])], {"x": (3, 7)}, ["y"])


def compress() -> onnx.ModelProto:
    nodes = [
        node("Compress", ["x", "m"], ["rows"], axis=0),
        node("Compress", ["x", "m"], ["flat"]),
        node("Mul", ["rows", "rows"], ["squares"]),
        node("ReduceMean", ["rows", "i0"], ["mean"], keepdims=0),
    ]
    return model(nodes, {"x": (9, 3), "m": (9,)}, ["rows", "flat", "squares"], i0=[0])


def unique() -> onnx.ModelProto:
    nodes = [
        node("Round", ["t"], ["r"]),
        node("Mul", ["x", "three"], ["t"]),
        node("Unique", ["r"], ["values", "first", "inverse", "counts"]),
        node("Unique", ["r"], ["rows"], axis=0, sorted=0),
        node("ArgMax", ["counts"], ["most"], axis=0),
        node("Gather", ["values", "most"], ["mode"]),
    ]
    outputs = ["values", "first", "inverse", "counts", "rows", "mode"]
    return model(nodes, {"x": (5, 4)}, outputs, three=np.float32(3))


def masks() -> onnx.ModelProto:
    nodes = [
        *_masked("x", "z"),
        node("Concat", ["x_of", "z_of"], ["both"], axis=1),
        node("MatMul", ["both", "w"], ["made"]),
        node("Softmax", ["made"], ["across"], axis=-1),
        node("Softmax", ["made"], ["along"], axis=0),
        node("ReduceSum", ["made", "i0"], ["total"], keepdims=0),
        node("Shape", ["made"], ["shape"]),
        node("Gather", ["shape", "zero"], ["count"]),
        node("Cast", ["count"], ["wide"], to=TensorProto.FLOAT),
        node("Range", ["zero", "count", "one"], ["numbers"]),
    ]
    outputs = ["both", "across", "along", "total", "wide", "numbers"]
    known = {"w": np.arange(20, dtype=np.float32).reshape(5, 4) / 20, "i0": [0], "zero": 0, "one": 1}
    return model(nodes, {"x": (8, 3), "z": (8, 2), "m": (8,)}, outputs, **known)


def detections() -> onnx.ModelProto:
    """Boxes that do not overlap of all classes, with scores and labels, as torchvision's detectors end."""
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["picked"], name="nms"),
        node("Gather", ["picked", "two"], ["at"], axis=1),
        node("Gather", ["picked", "one"], ["labels"], axis=1),
        node("Squeeze", ["boxes", "i0"], ["all_boxes"]),
        node("Squeeze", ["scores", "i0"], ["all_scores"]),
        node("Gather", ["all_boxes", "at"], ["found_boxes"], axis=0),
        node("Slice", ["picked", "i1", "i3", "i1"], ["pairs"]),
        node("GatherND", ["all_scores", "pairs"], ["found_scores"]),
        node("Unsqueeze", ["found_scores", "i1"], ["column"]),
        node("Concat", ["found_boxes", "column"], ["rows"], axis=1),
    ]
    known = {
        "most": np.array([4]), "overlap": np.array([0.4], np.float32), "least": np.array([0.2], np.float32),
        "two": 2, "one": 1, "i0": [0], "i1": [1], "i3": [3],
    }  # fmt: skip
    outputs = ["picked", "labels", "rows"]
    return model(nodes, {"boxes": (1, 12, 4), "scores": (1, 3, 12)}, outputs, **known)


def batched() -> onnx.ModelProto:
    """Of as many images as there are."""
    proto = detections()
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["picked"], name="nms"),
        node("Slice", ["picked", "i0", "i1", "i1"], ["images"]),
        node("Gather", ["picked", "columns"], ["places"], axis=1),
        node("GatherND", ["boxes", "places"], ["found"]),
        node("Slice", ["picked", "i0", "i3", "i1"], ["triples"]),
        node("GatherND", ["scores", "triples"], ["found_scores"]),
    ]
    known = {item.name: numpy_helper.to_array(item) for item in proto.graph.initializer}
    known["columns"] = np.array([0, 2])
    outputs = ["images", "found", "found_scores"]
    return model(nodes, {"boxes": ("B", 12, 4), "scores": ("B", 3, 12)}, outputs, **known)


def best() -> onnx.ModelProto:
    """The first of those above a threshold, and the largest of all; as many as there are at most."""
    nodes = [
        node("Greater", ["x", "least"], ["above"]),
        node("Compress", ["x", "above"], ["kept"], axis=0),
        node("Slice", ["kept", "i0", "i3", "i0"], ["first"]),
        node("Mul", ["first", "first"], ["squares"]),
        node("Shape", ["kept"], ["count"]),
        node("Min", ["count", "i3"], ["k"]),
        node("TopK", ["kept", "k"], ["largest", "at"], axis=0),
    ]
    known = {"least": np.float32(0.2), "i0": [0], "i3": [3]}
    return model(nodes, {"x": (10,)}, ["first", "squares", "largest", "at"], **known)


COUNTED: dict[str, Callable[[], onnx.ModelProto]] = {
    "NonZero": non_zero,
    "Compress": compress,
    "Unique": unique,
    "masks": masks,
    "detections": detections,
    "batched": batched,
    "best": best,
}
