"""Twenty small models of different kinds, which other models are made from: broken, renamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.support.onnx_models import model, value_info

Array = np.ndarray[Any, Any]
_IMAGE = (1, 2, 5, 5)


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    given = [name.replace("-", "") for name in inputs.split()]
    return helper.make_node(op, given, outputs.split(), name=f"the_{op}", **attributes)


def _one(op: str, x: Array, *constants: Array, outputs: str = "y", **attributes: Any) -> onnx.ModelProto:
    """A model of one node, of an input and constants."""
    known = {f"c{number}": array for number, array in enumerate(constants)}
    node = _node(op, " ".join(["x", *known]), outputs, **attributes)
    return model([node], {"x": x}, outputs.split(), known)


def _perceptron() -> onnx.ModelProto:
    nodes = [_node("Gemm", "x w b", "h", transB=1), _node("Relu", "h", "r"), _node("MatMul", "r v")]
    return model(
        nodes, {"x": _random(2, 4)}, ["y"], {"w": _random(3, 4), "b": _random(3), "v": _random(3, 2)}
    )


def _network() -> onnx.ModelProto:
    nodes = [
        _node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        _node("BatchNormalization", "c s b m v", "n"),
        _node("MaxPool", "n", "p", kernel_shape=[2, 2]),
        _node("Flatten", "p", "f"),
        _node("Softmax", "f", "y", axis=1),
    ]
    constants = {"w": _random(2, 2, 3, 3), "s": _random(2), "b": _random(2), "m": _random(2)}
    return model(nodes, {"x": _random(*_IMAGE)}, ["y"], {**constants, "v": np.abs(_random(2)) + 1})


def _attention() -> onnx.ModelProto:
    nodes = [
        _node("Transpose", "k", "t", perm=[0, 2, 1]),
        _node("MatMul", "q t", "s"),
        _node("Softmax", "s", "a", axis=-1),
        _node("MatMul", "a v"),
    ]
    return model(nodes, {name: _random(1, 3, 4) for name in "qkv"}, ["y"])


def _shapes() -> onnx.ModelProto:
    nodes = [
        _node("Shape", "x", "s"),
        _node("Gather", "s zero", "g"),
        _node("Unsqueeze", "g zeros", "u"),
        _node("Concat", "u minus", "to", axis=0),
        _node("Reshape", "x to"),
    ]
    known = {"zero": np.array(0), "zeros": np.array([0]), "minus": np.array([-1])}
    return model(nodes, {"x": _random(2, 3, 4)}, ["y"], known)


def _branch() -> onnx.ModelProto:
    def branch(op: str, name: str) -> onnx.GraphProto:
        made = [value_info(name, _random(2, 3))]
        return helper.make_graph([_node(op, "x", name)], name, [], made)

    node = _node("If", "yes", "y", then_branch=branch("Neg", "a"), else_branch=branch("Abs", "b"))
    return model([node], {"x": _random(2, 3)}, ["y"], {"yes": np.array(1, bool)})


def _loop() -> onnx.ModelProto:
    x = _random(2, 3)
    body = helper.make_graph(
        [_node("Identity", "go", "on"), _node("Add", "a x", "b"), _node("Identity", "b", "each")],
        "body",
        [value_info("i", np.array(0)), value_info("go", np.array(1, bool)), value_info("a", x)],
        [value_info("on", np.array(1, bool)), value_info("b", x), value_info("each", x)],
    )
    node = _node("Loop", "times yes x", "y all", body=body)
    return model([node], {"x": x}, ["y", "all"], {"times": np.array(3), "yes": np.array(1, bool)})


def _function() -> onnx.ModelProto:
    body = [_node("Mul", "a a", "s"), _node("Add", "s a", "b")]
    made = model([helper.make_node("Own", ["x"], ["y"], domain="mine")], {"x": _random(2, 3)}, ["y"])
    made.functions.append(
        helper.make_function("mine", "Own", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    )
    made.opset_import.append(helper.make_opsetid("mine", 1))
    return made


def _quantised() -> onnx.ModelProto:
    nodes = [_node("QuantizeLinear", "x s z", "q"), _node("DequantizeLinear", "q s z")]
    known = {"s": np.array(0.1, np.float32), "z": np.array(3, np.uint8)}
    return model(nodes, {"x": _random(2, 3)}, ["y"], known)


def _typed_lists() -> onnx.ModelProto:
    """A constant whose numbers are a list of the message, not its bytes, and one of 16 bits."""
    made = model([_node("Mul", "x w", "m"), _node("Cast", "m", "y", to=10)], {"x": _random(2, 3)}, ["y"])
    made.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]))
    return made


def _lstm() -> onnx.ModelProto:
    return _one("LSTM", _random(2, 1, 2), _random(1, 8, 2), _random(1, 8, 2), outputs="y h", hidden_size=2)


SEEDS: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType({
    "perceptron": _perceptron,
    "network": _network,
    "attention": _attention,
    "shapes": _shapes,
    "branch": _branch,
    "loop": _loop,
    "function": _function,
    "quantised": _quantised,
    "typed lists": _typed_lists,
    "lstm": _lstm,
    "slice": lambda: _one("Slice", _random(4, 6), np.array([1, 4]), np.array([4, 0]), np.array([0, 1]),
                          np.array([1, -1])),
    "pad": lambda: _one("Pad", _random(2, 3), np.array([1, 0, 0, 2]), np.array(1, np.float32)),
    "resize": lambda: _one("Resize", _random(1, 1, 3, 3), np.array([], np.float32),
                           np.array([1, 1, 2, 2], np.float32), mode="linear"),
    "top": lambda: _one("TopK", _random(2, 6), np.array([3]), outputs="y i", axis=1),
    "einsum": lambda: model([_node("Einsum", "x v", equation="ij,jk->ik")],
                            {"x": _random(2, 3), "v": _random(3, 2)}, ["y"]),
    "scatter": lambda: _one("ScatterND", _random(4, 2), np.array([[1], [3]]), _random(2, 2)),
    "transposed": lambda: _one("ConvTranspose", _random(*_IMAGE), _random(2, 1, 3, 3), strides=[2, 2]),
    "norm": lambda: _one("LayerNormalization", _random(2, 4), _random(4), _random(4)),
    "reduce": lambda: _one("ReduceMean", _random(2, 3, 4), axes=[1], keepdims=0),
    "split": lambda: _one("Split", _random(2, 6), np.array([2, 4]), outputs="y z", axis=1),
})  # fmt: skip
