"""How far a right result may be off: rounding errors of sums grow with the square root of their length.

A sum of n products in a type with unit roundoff u, with errors that are independent, is off by about
u * sqrt(n) of its scale (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 2.8). One
network is a chain of sums, whose errors add up the same way, so n is the length of all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from compiler.core.precision import EXACT

_SAFETY = 8.0
_SHORTEST = 64
_SMALL_BYTES = 4096

# dtype -> (unit roundoff of storage, the largest tolerance we ever allow)
_LIMITS = {
    "float64": (2.0**-53, 1e-10),
    "float32": (2.0**-24, 1e-4),
    "float16": (2.0**-11, 2e-2),
    "bfloat16": (2.0**-8, 1e-1),
}

# Operators that sum products of a second operand: which axis of it is not summed over.
_CONVOLUTIONS = {"Conv": 0, "ConvTranspose": 1}
# Operators that sum over the last axis.
_LAST_AXIS = {"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization"}
_POOLS = {"GlobalAveragePool", "AveragePool", "InstanceNormalization", "GroupNormalization"}

Shape = tuple[int, ...]


_ROUNDED = {
    "f32": _LIMITS["float32"],
    "tf32x3": (2.0**-21, 1e-3),
    "tf32": (2.0**-11, 1e-2),
    "f16": _LIMITS["float16"],
    "bf16": _LIMITS["bfloat16"],
}
"""Of f32 whose factors were rounded: the error of each product is that of the rounding."""


def tolerance_for(dtype: np.dtype[Any], reduction_length: int, *, precision: str = EXACT) -> float:
    """The tolerance, as a part of an output's scale, for a network whose sums have this length together.

    0 for whole numbers and truth values. precision: what factors of f32 may have been rounded to.
    """
    if dtype.name not in _LIMITS:
        return 0.0
    roundoff, ceiling = _ROUNDED[precision] if dtype.name == "float32" else _LIMITS[dtype.name]
    return min(ceiling, _SAFETY * roundoff * math.sqrt(max(reduction_length, _SHORTEST)))


def reduction_length(model: onnx.ModelProto, inputs: Mapping[str, Shape] | None = None) -> int:
    """The lengths of all sums of a model together, with these shapes of its inputs.

    Values whose shape cannot be inferred count nothing: the tolerance becomes stricter, never looser.
    """
    shapes = infer_shapes(model, inputs or {})
    return sum(_length(node, shapes) for node in model.graph.node)


def infer_shapes(model: onnx.ModelProto, inputs: Mapping[str, Shape]) -> dict[str, Shape]:
    """Shapes of all values that onnx can infer, on a copy that carries no large constants."""
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = "shapes"
    light.graph.node.extend(model.graph.node)
    light.graph.output.extend(model.graph.output)
    constants = {one.name: tuple(one.dims) for one in model.graph.initializer}
    for one in model.graph.input:
        if one.name not in constants:
            elem_type = one.type.tensor_type.elem_type
            shape = inputs.get(one.name)
            known = shape is not None
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(one.name, elem_type, shape) if known else one
            )
    for tensor in model.graph.initializer:
        info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        light.graph.input.append(info)
        if tensor.ByteSize() <= _SMALL_BYTES and tensor.data_location != onnx.TensorProto.EXTERNAL:
            light.graph.initializer.append(tensor)
    return constants | _inferred(light)


def _inferred(light: onnx.ModelProto) -> dict[str, Shape]:
    try:
        graph = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    except Exception:  # noqa: BLE001 - a model that onnx cannot infer is still worth comparing
        return {}
    found = {}
    for one in (*graph.input, *graph.value_info, *graph.output):
        dims = one.type.tensor_type.shape.dim
        if one.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            found[one.name] = tuple(int(dim.dim_value) for dim in dims)
    return found


def _length(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> int:
    """Length of one node's sums, 0 where it has none or a shape is not known."""
    first = shapes.get(node.input[0]) if node.input else None
    second = shapes.get(node.input[1]) if len(node.input) > 1 else None
    if node.op_type in _CONVOLUTIONS and second:
        return math.prod(second) // max(second[_CONVOLUTIONS[node.op_type]], 1)
    if node.op_type == "MatMul" and second:
        return second[-2] if len(second) > 1 else second[0]
    if node.op_type == "Gemm" and second:
        return second[1] if any(a.name == "transB" and a.i for a in node.attribute) else second[0]
    if not first:
        return 0
    if node.op_type in _LAST_AXIS:
        return first[-1]
    result = shapes.get(node.output[0])
    if node.op_type.startswith("Reduce") or node.op_type in _POOLS:
        return math.prod(first) // max(math.prod(result), 1) if result is not None else 0
    return 0
