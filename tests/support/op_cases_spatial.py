"""Cases of operators on space: pooling, sampling, images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.support.onnx_models import run_reference
from tests.support.op_case import Case, f32, floats, ints

IMAGE = floats(1, 4, 7, 6)


def pooling() -> Iterator[Case]:
    square: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2]}
    for p in (1, 2, 3):
        yield Case("LpPool", [IMAGE], {"kernel_shape": [2, 3], "p": p}, 11)
        yield Case("GlobalLpPool", [IMAGE], {"p": p}, 11)
    yield Case("LpPool", [IMAGE], {**square, "pads": [1, 0, 1, 1], "p": 3, "dilations": [2, 1]}, 18)
    yield Case("LpPool", [IMAGE], {**square, "ceil_mode": 1}, 18)
    yield Case("LpPool", [floats(2, 3, 9)], {"kernel_shape": [4], "auto_pad": "SAME_LOWER"}, 11)
    for p in (1, 2):
        for axis in (0, -1):
            yield Case("LpNormalization", [floats(3, 5, 4)], {"p": p, "axis": axis})
    yield Case("MaxPool", [IMAGE], {**square, "pads": [1, 1, 1, 1]}, 8, outputs=2)
    yield Case("MaxPool", [IMAGE], {**square, "storage_order": 1, "dilations": [2, 1]}, 12, outputs=2)
    yield Case("MaxPool", [floats(2, 3, 9)], {"kernel_shape": [3], "pads": [1, 2]}, 12, outputs=2)
    volume = floats(1, 2, 4, 5, 6)
    for order in (0, 1):
        more = {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2], "storage_order": order}
        yield Case("MaxPool", [volume], more, 11, outputs=2)
    equal = ints(2, 3, 6, 7, low=0, high=2, dtype=np.int8)
    yield Case("MaxPool", [equal], {**square, "pads": [1, 1, 1, 1], "ceil_mode": 1}, 12, outputs=2)
    larger = {"strides": [3, 2], "output_shape": [23, 13]}
    yield Case("ConvTranspose", [IMAGE, floats(4, 3, 3, 2, seed=1), floats(3)], larger, known=[1, 2])


def newer() -> Iterator[Case]:
    """What onnxruntime does not have: onnx's own reference is the oracle."""
    for direction in ("LEFT", "RIGHT"):
        for kind in (np.int8, np.int64):
            pair = [ints(3, 17, low=-99, high=99, dtype=kind), ints(17, low=-3, high=70, seed=1, dtype=kind)]
            yield Case("BitShift", pair, {"direction": direction}, 28, label=np.dtype(kind).name)
    for numbers in (f32(5, -5, 5.5, -5.5, 0, -0.0, 1, -1, np.inf, np.nan), floats(10, dtype=np.float16)):
        divisors = np.array([[3], [-3], [np.inf], [-np.inf], [0.7]], numbers.dtype)
        yield Case("Mod", [numbers, divisors], opset=28, label=str(numbers.dtype), tolerance=1e-3)


def chance() -> Iterator[Case]:
    """With a seed: onnx's reference has the same numbers."""
    for op in ("RandomNormal", "RandomUniform"):
        yield Case(op, [], {"shape": [3, 5], "seed": 2.0})
        yield Case(f"{op}Like", [IMAGE], {"seed": 3.0, "dtype": TensorProto.FLOAT})


def spatial() -> Iterator[Case]:
    yield from pooling()
    for case in (*newer(), *chance()):
        yield replace(case, oracle=run_reference)
