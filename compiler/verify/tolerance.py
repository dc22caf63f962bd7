"""How far a right result may be off: rounding errors of sums grow with the square root of their length.

A sum of n products in a type with unit roundoff u, with errors that are independent, is off by about u *
sqrt(n) of its scale (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 2.8). One network
is a chain of sums, whose errors add up the same way, so n is the length of all of them together.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

_SAFETY = 8.0
_SHORTEST = 64

# dtype -> (unit roundoff of storage, the largest tolerance we ever allow)
_LIMITS = {
    "float64": (2.0**-53, 1e-10),
    "float32": (2.0**-24, 1e-4),
    "float16": (2.0**-11, 2e-2),
    "bfloat16": (2.0**-8, 1e-1),
}

# Axes of a constant second operand that are not summed over; the product of the others is the sum's length.
_FREE_AXES = {"Conv": 0, "ConvTranspose": 1}


def tolerance_for(dtype: np.dtype[np.generic], reduction_length: int) -> float:
    """The tolerance, as a part of an output's scale, for a network whose sums have this length together.

    0 for whole numbers and truth values.
    """
    if dtype.name not in _LIMITS:
        return 0.0
    roundoff, ceiling = _LIMITS[dtype.name]
    return min(ceiling, _SAFETY * roundoff * math.sqrt(max(reduction_length, _SHORTEST)))


def reduction_length(model: onnx.ModelProto) -> int:
    """Sum of the lengths of all convolutions' and matrix products' sums with constant weights."""
    dims = {one.name: tuple(one.dims) for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                dims[node.output[0]] = tuple(attribute.t.dims)
    return sum(_length(node, dims) for node in model.graph.node)


def _length(node: onnx.NodeProto, dims: dict[str, tuple[int, ...]]) -> int:
    weight = dims.get(node.input[1], ()) if len(node.input) > 1 else ()
    if not weight:
        return 0
    if node.op_type == "Gemm":
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        return weight[1] if transposed else weight[0]
    if node.op_type == "MatMul":
        return weight[-2] if len(weight) > 1 else weight[0]
    if node.op_type in _FREE_AXES:
        free = weight[_FREE_AXES[node.op_type]]
        return math.prod(weight) // max(free, 1)
    return 0
