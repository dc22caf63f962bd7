"""Apply a record's signature to an ONNX node: attributes with defaults, known inputs as attributes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array
from compiler.graph.ir import Value
from compiler.graph.op import Checked, Emitter, InvalidError, OnnxNode, Op, Signature, UnsupportedError


def apply_signature(op: Op, opset: int, node: OnnxNode) -> tuple[tuple[Value, ...], Attrs]:
    """The inputs and canonical attributes of the graph node; raises InvalidError or UnsupportedError."""
    signature = _signature(op, opset)
    attrs = _attributes(signature, node.attrs)
    _check_outputs(signature, node)
    inputs = _inputs(signature, node, attrs)
    if signature.adapt is not None:
        inputs, attrs = signature.adapt(node, inputs, attrs)
    least, most = op.inputs
    if len(inputs) < least or (most is not None and len(inputs) > most):
        raise InvalidError(f"{op.name} has {len(inputs)} inputs")
    return inputs, Attrs(attrs)


def computed_at_run(e: Emitter, op: Op, opset: int, node: OnnxNode) -> Checked | None:
    """What computes a node whose shapes depend on operands that are not known; None for any other."""
    signature = _signature(op, opset)
    unknown = [n for n in signature.known if node.has(n) and node.known_at(n) is None]
    if signature.at_run is None or not (unknown or signature.by_data):
        return None
    _check_outputs(signature, node)
    return signature.at_run(e, node, Attrs(_attributes(signature, node.attrs)))


def _signature(op: Op, opset: int) -> Signature:
    found = op.signature(opset)
    if found is None:
        raise InvalidError(f"{op.name} does not exist in opset {opset}")
    return found


def _attributes(signature: Signature, given: Mapping[str, AttrValue | Array]) -> dict[str, AttrValue]:
    found: dict[str, AttrValue] = {}
    for name, default in signature.attrs.items():
        value = given.get(name, _single(default))
        if isinstance(value, np.ndarray):
            raise UnsupportedError(f"attribute {name} is a tensor")
        if value is not None:
            found[name] = _like(name, value, default)
    unknown = [name for name in given if name not in signature.attrs and name not in signature.ignored]
    if unknown:
        raise UnsupportedError(f"attribute {', '.join(sorted(unknown))} is not supported")
    return found


def _single(default: AttrValue | None) -> AttrValue | None:
    """A default as a model would carry it: ONNX's attributes have 32 bits (`float f` in onnx.proto)."""
    return float(np.float32(default)) if isinstance(default, float) else default


def _like(name: str, value: AttrValue, default: AttrValue | None) -> AttrValue:
    """The value, when it has the type of the default (an integer is a number, too)."""
    if default is None or type(value) is type(default):
        return value
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    raise InvalidError(f"attribute {name} is {value!r}, expected {type(default).__name__}")


def _check_outputs(signature: Signature, node: OnnxNode) -> None:
    extra = [number for number, used in enumerate(node.used_outputs) if used and number >= signature.outputs]
    if extra:
        raise UnsupportedError(f"its output {extra[0]} is used; only the first {signature.outputs} can be")


def _inputs(signature: Signature, node: OnnxNode, attrs: dict[str, AttrValue]) -> tuple[Value, ...]:
    kept: list[Value] = []
    for number, value in enumerate(node.inputs):
        name = signature.known.get(number)
        if value is None:
            if number not in signature.optional:
                raise InvalidError(f"input {number} is missing")
        elif name is None:
            kept.append(value)
        else:
            attrs[name] = _known(name, node.known_at(number))
    for number, name in signature.known.items():
        if number not in signature.optional and not node.has(number):
            raise InvalidError(f"input {number} ({name}) is missing")
    return tuple(kept)


def _known(name: str, array: Array | None) -> AttrValue:
    if array is None:
        raise UnsupportedError(
            f"its input `{name}` must be known at compile time; if a model input carries it, give --bind"
        )
    if array.ndim > 1:
        raise InvalidError(f"its input `{name}` has rank {array.ndim}, expected 0 or 1")
    values = array.tolist()
    found: AttrValue = tuple(values) if isinstance(values, list) else values
    return found
