"""What a model says of the types of its tensors, beside its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from compiler.frontend.tensors import element_type, why_too_large
from compiler.graph.ir import TensorType
from compiler.graph.op import Checked, InvalidError

Declared = Mapping[str, TensorType | None]
"""Types by name; None, or no entry, where the model does not say one."""


def declared_types(graph: onnx.GraphProto) -> Declared:
    """The tensors whose type and every extent are declared."""
    found = {}
    for info in (*graph.value_info, *graph.output):
        kind = _type(info.type.tensor_type)
        if kind is not None:
            found[info.name] = kind
    return found


def _type(tensor: onnx.TypeProto.Tensor) -> TensorType | None:
    if not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    if any(dim.WhichOneof("value") != "dim_value" or dim.dim_value < 0 for dim in dims):
        return None
    try:
        kind = TensorType(element_type(tensor.elem_type), tuple(dim.dim_value for dim in dims))
    except ValueError:  # no type, or none that we have
        return None
    return None if why_too_large(kind) else kind


def check_declared(computed: Checked, declared: Sequence[TensorType | None], name: str, op: str) -> str:
    """What a user is told where the operands of a node ask for other shapes when it runs.

    Raises InvalidError where its results are not what the model declares whatever they ask for.
    """
    for value, kind in zip(computed.results, declared, strict=False):
        if kind is not None and kind != value.type:
            raise InvalidError(f"the model declares {kind} for a result that is {value.type}")
    shapes = ", ".join(f"{list(value.type.shape)}" for value in computed.results)
    return f"node {name!r} ({op}): its inputs do not ask for the declared shape {shapes}"
