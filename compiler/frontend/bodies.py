"""Function bodies: what ONNX itself says that a composite operator is made of.

Many bodies depend on the node: which inputs and outputs it has, its attributes, its inputs' element types and
shapes. So one is made when the importer reaches the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import AttributeProto

from compiler.frontend.composites import WRITTEN
from compiler.frontend.composites.writer import BodyWriter
from compiler.frontend.proto import schema_of
from compiler.frontend.tensors import element_code
from compiler.graph.dtypes import Array
from compiler.graph.ir import TensorType
from compiler.graph.op import UnsupportedError


@dataclass(frozen=True, slots=True)
class Body:
    """The nodes that stand for one node; `inputs` and `outputs` are its own, as the nodes call them.

    `used`: what nodes read, or leaves the body. `declared`: types of values inside.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    opsets: Mapping[str, int]
    used: frozenset[str]
    declared: Mapping[str, TensorType] = field(default_factory=dict)


def has_body(name: str, domain: str, opset: int) -> bool:
    """Whether it is said of an operator what it is made of, for some nodes at least."""
    if (domain, name) in WRITTEN:
        return True
    schema: Any = schema_of(name, domain, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body_of(
    item: onnx.NodeProto,
    domain: str,
    opset: int,
    types: Sequence[TensorType | None],
    known: Sequence[Array | None],
    results: Sequence[TensorType | None],
) -> Body | None:
    """The body of a node whose inputs have these types (None: left out), and content where it is known.

    `results`: types that the model declares for its outputs.

    What is written in `composites` goes before ONNX's own; None where there is neither. Raises
    UnsupportedError and InvalidError for nodes that a body does not fit.
    """
    written = _written_body(item, domain, opset, types, known, results)
    return _function_body(item, domain, opset, types) if written is None else written


def _function_body(
    item: onnx.NodeProto, domain: str, opset: int, types: Sequence[TensorType | None]
) -> Body | None:
    schema = schema_of(item.op_type, domain, opset)
    function = _function(schema, item, opset, types) if schema is not None else None
    if schema is None or function is None:
        return None
    given = {attr.name: attr for attr in item.attribute}
    defaults = {name: attr.default_value for name, attr in schema.attributes.items()}
    if unknown := given.keys() - defaults.keys():
        raise UnsupportedError(f"attribute {', '.join(sorted(unknown))} is not supported")
    attrs = {name: attr for name, attr in {**defaults, **given}.items() if attr.name}
    has = [bool(name) for name in item.input]
    has += [False] * (len(function.input) - len(has))
    left_out = {name for name, here in zip(function.input, has, strict=False) if not here}
    nodes = tuple(_resolved(node, attrs, left_out) for node in function.node)
    outputs = tuple(function.output)[: len(item.output)]
    needed = {name for name, wanted in zip(outputs, item.output, strict=False) if wanted}
    return Body(
        tuple(function.input),
        outputs,
        nodes,
        {one.domain: one.version for one in function.opset_import},
        frozenset(needed.union(*(node.input for node in nodes))),
    )


def _written_body(
    item: onnx.NodeProto,
    domain: str,
    opset: int,
    types: Sequence[TensorType | None],
    known: Sequence[Array | None],
    results: Sequence[TensorType | None],
) -> Body | None:
    write = WRITTEN.get((domain, item.op_type))
    if write is None:
        return None
    writer = BodyWriter(item, opset, types, known, results)
    made = write(writer)
    if not made:
        return None
    writer.check_attributes()
    outputs = tuple(name for name, _ in zip(made, item.output, strict=False))
    if len(outputs) < len(item.output):
        raise UnsupportedError(f"its output {len(outputs)} is not supported")
    needed = {name for name, wanted in zip(outputs, item.output, strict=True) if wanted}
    if "" in needed:
        raise UnsupportedError(f"its output {outputs.index('')} is not supported")
    return Body(
        writer.inputs,
        outputs,
        tuple(writer.nodes),
        {"": onnx.defs.onnx_opset_version()},
        frozenset(needed.union(*(node.input for node in writer.nodes))),
        writer.declared,
    )


def _function(
    schema: Any,  # onnx's type stubs lack what its C++ class says of functions
    item: onnx.NodeProto,
    opset: int,
    types: Sequence[TensorType | None],
) -> onnx.FunctionProto | None:
    if schema.has_function:
        version = _nearest(schema.function_opset_versions, opset)
        data = schema.get_function_with_opset_version(version)
    elif schema.has_context_dependent_function:
        version = _nearest(schema.context_dependent_function_opset_versions, opset)
        try:
            data = schema.get_context_dependent_function_with_opset_version(
                version, item.SerializeToString(), [_type_proto(kind) for kind in types]
            )
        except (RuntimeError, ValueError):  # whatever ONNX's C++ side finds wrong with the node
            return None
    else:
        return None
    found = onnx.FunctionProto.FromString(data)
    return found if found.node else None


def _nearest(versions: Sequence[int], opset: int) -> int:
    """The newest version up to `opset`, or the oldest: a body brings its own versions of operators along."""
    return max((version for version in versions if version <= opset), default=min(versions))


def _type_proto(kind: TensorType | None) -> bytes:
    if kind is None:
        return b""
    data: bytes = onnx.helper.make_tensor_type_proto(element_code(kind.dtype), kind.shape).SerializeToString()
    return data


def _resolved(
    node: onnx.NodeProto, attrs: Mapping[str, AttributeProto], left_out: set[str]
) -> onnx.NodeProto:
    """A copy whose attributes have the values of those that they refer to, and without inputs left out."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    _resolve(copy, attrs, left_out)
    return copy


def _resolve(node: onnx.NodeProto, attrs: Mapping[str, AttributeProto], left_out: set[str]) -> None:
    for at, name in enumerate(node.input):
        if name in left_out:
            node.input[at] = ""
    found = [_attribute(attr, attrs) for attr in node.attribute]
    del node.attribute[:]
    node.attribute.extend(attr for attr in found if attr is not None)
    for attr in node.attribute:
        for graph in (attr.g, *attr.graphs):
            for inner in graph.node:
                _resolve(inner, attrs, left_out)


def _attribute(attr: AttributeProto, attrs: Mapping[str, AttributeProto]) -> AttributeProto | None:
    if not attr.ref_attr_name:
        return attr
    given = attrs.get(attr.ref_attr_name)
    if given is None:
        return None
    named = AttributeProto()
    named.CopyFrom(given)
    named.name = attr.name
    return named
