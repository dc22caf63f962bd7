"""Nodes of opsets 1 to 6 as opset 7 writes them, the first that records describe.

Before opset 7 arithmetic broadcast only where the node says so, from an axis that it names, and what differs
in training had an attribute for it. Attributes of memory (`consumed_inputs`) mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import onnx

from compiler.frontend.proto import schema_of
from compiler.frontend.tensors import element_type
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array
from compiler.graph.edit import Editor
from compiler.graph.ir import Value
from compiler.graph.op import InvalidError, OnnxNode, UnsupportedError, normal_axis

FIRST_OF_RECORDS = 7

Given = dict[str, AttrValue | Array]
Inputs = tuple[Value | None, ...]
Renew = Callable[[Editor, Given, Inputs], Inputs]
"""Changes the attributes in place and returns the inputs."""


def renewed(editor: Editor, name: str, opset: int, node: OnnxNode) -> OnnxNode:
    """A node of opset 1 to 6 as opset 7 has it.

    Raises InvalidError where it breaks the rules of its opset, UnsupportedError where opset 7 has none such.
    """
    old, new = schema_of(name, "", opset), schema_of(name, "", FIRST_OF_RECORDS)
    if old is None:
        raise InvalidError(f"{name} does not exist in opset {opset}")
    if new is not None and old.since_version == new.since_version:
        return node
    renew = _RENEWALS.get(name)
    if renew is None:
        raise UnsupportedError(
            f"{name} of opset {old.since_version} is not supported; convert the model with "
            "onnx.version_converter.convert_version"
        )
    attrs = {key: value for key, value in node.attrs.items() if key != "consumed_inputs"}
    inputs = renew(editor, attrs, node.inputs)
    known = tuple(None if value is None else editor.known(value) for value in inputs)
    return replace(node, attrs=attrs, inputs=inputs, known=known)


def _as_it_is(_editor: Editor, _attrs: Given, inputs: Inputs) -> Inputs:
    return inputs


def _broadcast(editor: Editor, attrs: Given, inputs: Inputs) -> Inputs:
    """The second operand begins at `axis` of the first; without an axis the last ones meet."""
    given = Attrs({name: attrs.pop(name) for name in ("broadcast", "axis") if name in attrs})  # type: ignore[misc]  # no tensors
    left, right = inputs[0], inputs[1]
    if left is None or right is None:
        raise InvalidError("an operand is missing")
    if not given.flag("broadcast", default=False):
        if left.type.shape != right.type.shape:
            raise InvalidError(f"{left.type} and {right.type} differ, and the node does not broadcast")
        return inputs
    rank, count = left.type.rank, right.type.rank
    if count > rank:
        raise InvalidError(f"{right.type} does not broadcast to {left.type}")
    if "axis" not in given or not count:
        return inputs
    axis = normal_axis(given.integer("axis"), rank)
    if axis + count > rank:
        raise InvalidError(f"{right.type} does not fit into {left.type} from axis {axis} on")
    return left, _with_ones(editor, right, rank - axis - count), *inputs[2:]


def _with_ones(editor: Editor, value: Value, count: int) -> Value:
    if not count:
        return value
    return editor.emit("Reshape", value, shape=(*value.type.shape, *([1] * count)))


def _slopes(editor: Editor, _attrs: Given, inputs: Inputs) -> Inputs:
    """One slope, or one for each channel."""
    source, slope = inputs
    if source is None or slope is None:
        raise InvalidError("an operand is missing")
    if slope.type.size == 1 or slope.type.rank != 1:
        return inputs
    return source, _with_ones(editor, slope, max(source.type.rank - 2, 0))


def _in_test(_editor: Editor, attrs: Given, inputs: Inputs) -> Inputs:
    if not attrs.pop("is_test", 0):
        raise UnsupportedError("it is in training mode (is_test is 0), which is not supported")
    return inputs


def _without_broadcast(_editor: Editor, attrs: Given, inputs: Inputs) -> Inputs:
    attrs.pop("broadcast", None)
    return inputs


def _default_axis(_editor: Editor, attrs: Given, inputs: Inputs) -> Inputs:
    attrs.setdefault("axis", 1)
    return inputs


def _pads(_editor: Editor, attrs: Given, inputs: Inputs) -> Inputs:
    if "paddings" in attrs:
        attrs["pads"] = attrs.pop("paddings")
    return inputs


def _shape_as_input(editor: Editor, attrs: Given, inputs: Inputs) -> Inputs:
    if len(inputs) > 1 or "shape" not in attrs:
        return inputs
    return *inputs, editor.constant(np.asarray(attrs.pop("shape"), np.int64))


def _named_type(_editor: Editor, attrs: Given, inputs: Inputs) -> Inputs:
    name = attrs.get("to")
    if isinstance(name, str):
        codes = dict(onnx.TensorProto.DataType.items())
        if name not in codes:
            raise InvalidError(f"ONNX has no element type {name!r}")
        attrs["to"] = element_type(codes[name])
    return inputs


_PLAIN = (
    "Abs", "AveragePool", "Ceil", "Clip", "Elu", "Exp", "Floor", "HardSigmoid", "InstanceNormalization",
    "LeakyRelu", "Log", "Max", "Mean", "Min", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sqrt", "Sum",
    "Tanh",
)  # fmt: skip
_BINARY = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")

_RENEWALS: Mapping[str, Renew] = MappingProxyType(
    {
        **dict.fromkeys(_PLAIN, _as_it_is),
        **dict.fromkeys(_BINARY, _broadcast),
        "PRelu": _slopes,
        "Gemm": _without_broadcast,
        "Dropout": _in_test,
        "BatchNormalization": _in_test,
        "Concat": _default_axis,
        "Pad": _pads,
        "Reshape": _shape_as_input,
        "Cast": _named_type,
    }
)
