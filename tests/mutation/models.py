"""Models whose kernels are mutated: small, of every kind of schedule, with borders that no tile divides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from tests.support.onnx_models import model

Arrays = dict[str, np.ndarray]
Model = tuple[onnx.ModelProto, Arrays]


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def _one(op: str, *arrays: np.ndarray, constants: int = 0, **attrs: object) -> Model:
    """A model of one node; the last arrays are constants."""
    names = [f"x{number}" for number in range(len(arrays))]
    given = dict(zip(names, arrays, strict=True))
    known = {name: given.pop(name) for name in names[len(names) - constants :]}
    node = helper.make_node(op, names, ["y"], **attrs)
    return model([node], given, ["y"], known), given


def _elementwise() -> Model:
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["p"]),
        helper.make_node("Sigmoid", ["p"], ["q"]),
        helper.make_node("Add", ["q", "a"], ["y"]),
    ]
    given = {"a": _random(3, 17, 45), "b": _random(17, 1)}
    return model(nodes, given, ["y"]), given


MODELS: dict[str, Callable[[], Model]] = {
    "convolution": lambda: _one(
        "Conv", _random(2, 12, 11, 13), _random(20, 12, 3, 3), _random(20), constants=2, pads=[1, 1, 1, 1]
    ),
    "strided convolution": lambda: _one(
        "Conv", _random(1, 9, 15, 14), _random(24, 9, 3, 3), constants=1, strides=[2, 2], pads=[0, 1, 1, 0]
    ),
    "depthwise convolution": lambda: _one(
        "Conv", _random(1, 21, 10, 12), _random(21, 1, 3, 3), constants=1, group=21, pads=[1, 1, 1, 1]
    ),
    "matrix product": lambda: _one("MatMul", _random(37, 83), _random(83, 70)),
    "matrix product with constants": lambda: _one(
        "Gemm", _random(33, 72), _random(72, 96), _random(96), constants=2
    ),
    "softmax": lambda: _one("Softmax", 60 * _random(13, 150), axis=-1),  # the maximum matters
    "sum over rows": lambda: _one("ReduceSum", _random(9, 333), np.asarray([1]), constants=1),
    "mean over columns": lambda: _one("ReduceMean", _random(150, 41), axes=[0]),
    "maximum of windows": lambda: _one(
        "MaxPool", _random(2, 7, 15, 17), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "average of images": lambda: _one("GlobalAveragePool", _random(3, 10, 9, 11)),
    "elementwise": _elementwise,
    "transposition": lambda: _one("Transpose", _random(5, 37, 29), perm=[2, 0, 1]),
}
