"""Attributes of ONNX nodes -> ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import onnx
from onnx import AttributeProto

from compiler.frontend.external import ExternalData
from compiler.frontend.tensors import element_type, tensor_array
from compiler.graph.attrs import AttrValue
from compiler.graph.dtypes import Array
from compiler.graph.op import InvalidError, UnsupportedError

Given = Mapping[str, AttrValue | Array]

_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype", "output_dtype", "precision"})
_UNDEFINED_TYPES = frozenset({"output_dtype", "precision"})
"""Of these, those that may say that they are not given, by the number 0."""

_PLAIN: Mapping[int, Callable[[AttributeProto], AttrValue]] = {
    AttributeProto.FLOAT: lambda attr: attr.f,
    AttributeProto.STRING: lambda attr: attr.s.decode(),
    AttributeProto.INTS: lambda attr: tuple(attr.ints),
    AttributeProto.FLOATS: lambda attr: tuple(attr.floats),
    AttributeProto.STRINGS: lambda attr: tuple(text.decode() for text in attr.strings),
}


def plain_attributes(attributes: Iterable[AttributeProto], external: ExternalData) -> Given:
    """Attributes by name; raises InvalidError and UnsupportedError, the latter for graphs, too."""
    return {attr.name: _attribute(attr, external) for attr in attributes if not _is_undefined(attr)}


def _is_undefined(attr: AttributeProto) -> bool:
    return attr.name in _UNDEFINED_TYPES and attr.type == AttributeProto.INT and attr.i == 0


def graph_attribute(item: onnx.NodeProto, name: str) -> onnx.GraphProto:
    """A subgraph of a node; raises InvalidError where there is none."""
    for attr in item.attribute:
        if attr.name == name and attr.type == attr.GRAPH:
            found: onnx.GraphProto = attr.g
            return found
    raise InvalidError(f"attribute {name} is missing, or no graph")


def _attribute(attr: AttributeProto, external: ExternalData) -> AttrValue | Array:
    kind = attr.type
    if attr.ref_attr_name:
        raise InvalidError(f"attribute {attr.name} refers to {attr.ref_attr_name!r} outside of a function")
    if kind == AttributeProto.INT:
        return element_type(attr.i) if attr.name in _TYPE_ATTRIBUTES else attr.i
    if kind == AttributeProto.TENSOR:
        return tensor_array(attr.t, external)
    found = _PLAIN.get(kind)
    if found is None:
        kinds = AttributeProto.AttributeType
        text = kinds.Name(kind) if kind in kinds.values() else str(kind)
        raise UnsupportedError(f"attribute {attr.name} of kind {text} is not supported")
    return found(attr)


def constant_array(attrs: Given) -> Array:
    """The content of a Constant."""
    for name, value in attrs.items():
        if name == "value" and isinstance(value, np.ndarray):
            return value
        if name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
    raise UnsupportedError(f"Constant with {', '.join(attrs) or 'no value'} is not supported")
