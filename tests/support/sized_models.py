"""Models with free dimensions beside the batch, for tests of what sizes they run at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
Array = np.ndarray[Any, np.dtype[Any]]
Inputs = Mapping[str, Sequence[int | str | None]]
INDICES = ("ids", "mask")
"""Inputs of integers."""


def some(*shape: int) -> Array:
    scale = 1 / np.sqrt(shape[0] if shape else 1)
    return (np.random.default_rng(shape).standard_normal(shape) * scale).astype(np.float32)


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Inputs, outputs: Sequence[str], **known: Any
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(
                name, TensorProto.INT64 if name in INDICES else TensorProto.FLOAT, shape
            )
            for name, shape in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def attention(batch: str | int = "B", width: int = 32, heads: int = 4) -> onnx.ModelProto:
    """Tokens by index and position, masked attention, a norm; mean, last and largest of the tokens."""
    depth = width // heads
    nodes = [
        node("Shape", ["ids"], ["shape"]),
        node("Slice", ["shape", "i1", "i2"], ["tokens"]),
        node("Slice", ["positions", "i0", "tokens", "i1"], ["places"]),
        node("Gather", ["words", "ids"], ["embedded"]),
        node("Add", ["embedded", "places"], ["x"]),
        node("Cast", ["mask"], ["seen"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["seen", "i12"], ["wide"]),
        node("Sub", ["wide", "one"], ["hidden"]),
        node("Mul", ["hidden", "big"], ["added"]),
    ]
    for part in "qkv":
        perm = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        nodes += [
            node("MatMul", ["x", f"w{part}"], [part]),
            node("Reshape", [part, "apart"], [f"{part}_apart"]),
            node("Transpose", [f"{part}_apart"], [f"{part}_heads"], perm=perm),
        ]
    nodes += [
        node("MatMul", ["q_heads", "k_heads"], ["scores"]),
        node("Add", ["scores", "added"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v_heads"], ["mixed"]),
        node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "together"], ["flat"]),
        node("MatMul", ["flat", "wo"], ["out"]),
        node("Add", ["out", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "gain"], ["y"], axis=-1),
        node("ReduceMean", ["y"], ["mean"], axes=[1], keepdims=0),
        node("ReduceMax", ["y"], ["most"], axes=[1], keepdims=0),
        node("Slice", ["y", "minus", "end", "i1"], ["last"]),
    ]
    inputs = {"ids": (batch, "S"), "mask": (batch, "S")}
    known = {f"w{part}": some(width, width) for part in "qkvo"}
    places = {"i0": [0], "i1": [1], "i2": [2], "i12": [1, 2], "minus": [-1], "end": [2**31]}
    return model(
        nodes,
        inputs,
        ("y", "mean", "most", "last"),
        **known,
        **{name: np.array(value, np.int64) for name, value in places.items()},
        words=some(50, width),
        positions=some(1, 512, width),
        gain=np.ones(width, np.float32),
        one=np.float32(1),
        big=np.float32(1e9),
        apart=np.array([0, 0, heads, depth]),
        together=np.array([0, 0, width]),
    )


SIZED: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "attention": attention,
    # On devices chunks of a sum, which a launch of their own adds up.
    "long sums": lambda: model(
        [node("MatMul", ["x", "w"], ["a"]), node("Sigmoid", ["a"], ["y"])],
        {"x": (1, "S", 2048)},
        ("y",),
        w=some(2048, 64),
    ),
    # Borders of windows read what is beyond, and a mean divides by a count; the batch is free, too.
    "windows": lambda: model(
        [
            node("Conv", ["x", "k"], ["a"], pads=[1, 1, 1, 1]),
            node("Relu", ["a"], ["b"]),
            node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["c", "l"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("GlobalAveragePool", ["y"], ["mean"]),
        ],
        {"x": ("N", 3, "H", "W")},
        ("y", "mean"),
        k=some(8, 3, 3, 3),
        l=some(4, 8, 3, 3),
    ),
    # Behind strides of 32 small images have one place, whatever their size.
    "strides": lambda: model(
        [
            *(
                node("Conv", [x, f"k{at}"], [y], pads=[1, 1, 1, 1], strides=[2, 2])
                for at, (x, y) in enumerate(pairwise("xabcdy"))
            ),
            node("GlobalAveragePool", ["y"], ["mean"]),
            node("GlobalMaxPool", ["c"], ["largest"]),
        ],
        {"x": (1, 2, "H", "W")},
        ("y", "mean", "largest"),
        **{f"k{at}": some(2, 2, 3, 3) for at in range(5)},
    ),
    # Windows at the end of an axis have fewer elements to divide by.
    "averages": lambda: model(
        [
            node("Conv", ["x", "k"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
            *(
                node(
                    "AveragePool",
                    ["a"],
                    [name],
                    strides=[step, step],
                    pads=pads,
                    kernel_shape=[size, size],
                    **more,
                )
                for name, size, step, pads, more in (
                    ("y", 2, 2, [0, 0, 1, 1], {}),
                    ("inside", 3, 1, [1, 1, 1, 1], {}),
                    ("all", 3, 2, [1, 1, 1, 1], {"count_include_pad": 1, "ceil_mode": 1}),
                )
            ),
        ],
        {"x": (1, 2, "H", "W")},
        ("y", "inside", "all"),
        k=some(2, 2, 3, 3),
    ),
    # What comes after the keys of former steps begins where these end.
    "cache": lambda: model(
        [
            node("Concat", ["past", "new"], ["present"], axis=2),
            node("Transpose", ["present"], ["turned"], perm=[0, 1, 3, 2]),
            node("MatMul", ["new", "turned"], ["scores"]),
            node("Softmax", ["scores"], ["weights"], axis=-1),
            node("MatMul", ["weights", "present"], ["y"]),
        ],
        {"past": (1, 2, "past", 8), "new": (1, 2, "steps", 8)},
        ("y", "present"),
    ),
    # Rows of a table, and a mask, by what was before: folded, no element of either grows with it.
    "positions": lambda: model(
        [
            node("Shape", ["past"], ["before"], start=1, end=2),
            node("Shape", ["new"], ["steps"], start=1, end=2),
            node("Add", ["before", "steps"], ["total"]),
            *(node("Squeeze", [one], [f"{one}_"]) for one in ("before", "total")),
            node("Range", ["before_", "total_", "one"], ["rows"]),
            node("Range", ["zero", "total_", "one"], ["columns"]),
            node("Gather", ["table", "rows"], ["places"]),
            node("Add", ["new", "places"], ["x"]),
            node("Concat", ["past", "x"], ["all"], axis=1),
            node("Transpose", ["all"], ["turned"], perm=[0, 2, 1]),
            node("MatMul", ["x", "turned"], ["scores"]),
            node("Unsqueeze", ["rows", "last"], ["column"]),
            node("Greater", ["columns", "column"], ["later"]),
            node("Where", ["later", "little", "scores"], ["masked"]),
            node("Softmax", ["masked"], ["y"], axis=-1),
        ],
        {"past": (1, "past", 8), "new": (1, "steps", 8)},
        ("y", "all"),
        table=some(100, 8),
        zero=np.array(0),
        one=np.array(1),
        last=np.array([1]),
        little=np.float32(-1e9),
    ),
    # What is halved twice and doubled twice has to meet what was not.
    "there and back": lambda: model(
        [
            node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["a", "k"], ["b"], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("ConvTranspose", ["b", "l"], ["c"], strides=[2, 2]),
            node("Concat", ["a", "c"], ["d"], axis=1),
            node("Resize", ["d", "", "twice"], ["e"], mode="linear"),
            node("Concat", ["x", "e"], ["y"], axis=1),
        ],
        {"x": (1, 3, "H", 8)},
        ("y",),
        k=some(4, 3, 3, 3),
        l=some(4, 2, 2, 2),
        twice=np.array([1, 1, 2, 2], np.float32),
    ),
    # How much is padded, and where, depends on what does not come out even.
    "rounded up": lambda: model(
        [
            node("Conv", ["x", "k"], ["a"], strides=[2, 2], auto_pad="SAME_UPPER"),
            node("MaxPool", ["a"], ["b"], kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
            node("MaxPool", ["b"], ["y"], kernel_shape=[2, 1], strides=[2, 1], ceil_mode=1),
        ],
        {"x": (1, 2, "H", "W")},
        ("y",),
        k=some(3, 2, 3, 3),
    ),
    # To the extents of another tensor, whatever these are.
    "resized": lambda: model(
        [
            node("Conv", ["x", "k"], ["a"], strides=[3, 1]),
            node("Shape", ["x"], ["s"], start=2),
            node("Concat", ["one_three", "s"], ["sizes"], axis=0),
            *(
                node(
                    "Resize",
                    ["a", "", "", "sizes"],
                    [f"y{at}"],
                    mode=mode,
                    coordinate_transformation_mode=where,
                    nearest_mode="floor",
                )
                for at, (mode, where) in enumerate(
                    [
                        ("linear", "half_pixel"),
                        ("linear", "align_corners"),
                        ("nearest", "asymmetric"),
                        ("cubic", "pytorch_half_pixel"),
                    ]
                )
            ),
        ],
        {"x": (1, 2, "T", 6)},
        ("y0", "y1", "y2", "y3"),
        k=some(3, 2, 3, 1),
        one_three=np.array([1, 3]),
    ),
    # Steps of a recurrent layer are windows, of which there are a quotient.
    "frames": lambda: model(
        [
            node("Conv", ["x", "k"], ["c"], strides=[4]),
            node("Slice", ["c", "nothing", "three", "channels"], ["a"]),
            node("Transpose", ["a"], ["b"], perm=[2, 0, 1]),
            node("GRU", ["b", "w", "r"], ["y", "h"], hidden_size=4),
        ],
        {"x": (1, 1, "T")},
        ("y", "h"),
        k=some(5, 1, 8),
        nothing=np.array([0]),
        three=np.array([3]),
        channels=np.array([1]),
        w=some(1, 12, 3),
        r=some(1, 12, 4),
    ),
    "running sum, and the largest": lambda: model(
        [node("CumSum", ["x", "one"], ["y"]), node("TopK", ["x", "three"], ["v", "i"], axis=-1)],
        {"x": ("B", "S")},
        ("y", "v", "i"),
        one=np.array(1),
        three=np.array([3]),
    ),
    "backwards": lambda: model(
        [node("Slice", ["x", "minus", "low", "one", "minus"], ["y"])],
        {"x": ("B", "S", 2)},
        ("y",),
        minus=np.array([-1]),
        low=np.array([-(2**31)]),
        one=np.array([1]),
    ),
    # The last states are those after the last step of a run, and the way back begins there.
    "recurrent": lambda: model(
        [
            node("LSTM", ["x", "w", "r"], ["y", "h", "c"], hidden_size=4, direction="bidirectional"),
            node("GRU", ["x", "v", "u"], ["", "z"], hidden_size=4),
        ],
        {"x": ("T", 1, 3)},
        ("y", "h", "c", "z"),
        w=some(2, 16, 3),
        r=some(2, 16, 4),
        v=some(1, 12, 3),
        u=some(1, 12, 4),
    ),
    "products over what is free": lambda: model(
        [node("Transpose", ["x"], ["t"], perm=[1, 0]), node("MatMul", ["t", "x"], ["y"])],
        {"x": ("rows", 5)},
        ("y",),
    ),
}


def feeds(proto: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Inputs with these values of the symbols."""
    found: dict[str, Array] = {}
    for item in proto.graph.input:
        dims = item.type.tensor_type.shape.dim
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in dims]
        rng = np.random.default_rng(shape)
        found[item.name] = (
            np.maximum(rng.integers(0, 2, shape), np.arange(shape[-1]) == 0)
            if item.name in INDICES
            else rng.standard_normal(shape, np.float32)
        )
    return found
