"""Models without functions, and none that are larger than can be compiled.

A model of a kilobyte may stand for more nodes than any machine holds: a function that calls another twice,
which calls another twice. So everything is counted before anything is inlined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

import onnx
from onnx import inliner

from compiler.core.diagnostics import BadInputError
from compiler.frontend.proto import broken, first_line, schema_of
from compiler.graph.ops import find_op

MOST_NODES = 200_000
"""Functions inlined; the largest networks that people export have some ten thousand."""
MOST_VALUES = 1_000_000
"""That nodes make, used or not."""
MOST_ENDS = 10_000
"""Inputs and outputs of a model, each."""
MOST_FUNCTIONS = 10_000
DEEPEST_CALL = 100
"""As ONNX's inliner has it."""
MOST_BYTES = 2 << 30
"""Of nodes with their attributes, which protobuf cannot hold, either."""

_LONG = 10**15  # a number that nobody reads to its end

_Name = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Size:
    """What a list of nodes stands for when all calls in it are inlined."""

    nodes: int = 0
    values: int = 0
    bytes: int = 0
    depth: int = 0

    def __add__(self, other: _Size) -> _Size:
        return _Size(
            self.nodes + other.nodes,
            self.values + other.values,
            self.bytes + other.bytes,
            max(self.depth, other.depth),
        )


def check_size(model: onnx.ModelProto, where: str) -> None:
    """Raise BadInputError for a model that is too large to compile, or has a function that calls itself."""
    _within(len(model.functions), MOST_FUNCTIONS, "functions", where)
    _within(len(model.graph.input), MOST_ENDS, "inputs", where)
    _within(len(model.graph.output), MOST_ENDS, "outputs", where)
    _within(len(model.graph.node), MOST_NODES, "nodes", where)
    functions = {(item.domain, item.name, item.overload): item for item in model.functions}
    size = _counted(model.graph.node, _function_sizes(functions, where))
    _within(size.depth, DEEPEST_CALL, "levels of functions that call functions", where)
    _within(size.nodes, MOST_NODES, "nodes", where)
    _within(size.values, MOST_VALUES, "outputs of nodes", where)
    _within(size.bytes, MOST_BYTES, "bytes of nodes", where)


def _within(found: int, most: int, what: str, where: str) -> None:
    if found > most:
        raise BadInputError(
            "the model is too large",
            where=where,
            why=f"with its functions inlined it has {_count(found)} {what}; at most {most:,} can be compiled",
            hint="export a part of the network, or without functions and unrolled loops",
        )


def _count(found: int) -> str:
    return f"{found:,}" if found < _LONG else f"about 10^{len(str(found)) - 1}"


def _function_sizes(functions: Mapping[_Name, onnx.FunctionProto], where: str) -> dict[_Name, _Size]:
    """What a call of each function stands for; callees before callers."""
    callees = {
        name: {_called(node) for node in _all_nodes(item.node)} & functions.keys()
        for name, item in functions.items()
    }
    sizes: dict[_Name, _Size] = {}
    try:
        for name in TopologicalSorter(callees).static_order():
            size = _counted(functions[name].node, sizes)
            sizes[name] = replace(size, depth=size.depth + 1)
    except CycleError as error:
        raise broken(where, f"function {error.args[1][0][1]!r} calls itself") from error
    return sizes


def _counted(nodes: Sequence[onnx.NodeProto], sizes: Mapping[_Name, _Size]) -> _Size:
    """What nodes and those in their subgraphs stand for; `sizes` are of functions that they may call."""
    total = _Size()
    for node in _all_nodes(nodes):
        total += sizes.get(_called(node)) or _Size(1, len(node.output), 0)
    return total + _Size(bytes=sum(node.ByteSize() for node in nodes))


def _called(node: onnx.NodeProto) -> _Name:
    return node.domain, node.op_type, node.overload


def _all_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of their subgraphs, which protobuf nests a hundred deep at most."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _all_nodes(graph.node)


def inlined(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """The model without functions: its own, and ONNX's where we have no record of the operator."""
    if model.functions:
        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:  # the inliner raises whatever its C++ side does
            raise broken(where, f"its functions cannot be inlined: {first_line(error)}") from error
    derived = [item for item in model.graph.node if _is_derived(item)]
    for item in derived:
        _write_defaults(item)
    if derived:
        # What the inliner cannot do stays, and is then reported as an operator without a record.
        with suppress(RuntimeError, ValueError):
            names = sorted({("", item.op_type) for item in derived})
            model = inliner.inline_selected_functions(model, names, inline_schema_functions=True)
    return model


def _is_derived(item: onnx.NodeProto) -> bool:
    """Whether ONNX itself says what an operator without a record is made of."""
    if item.domain not in ("", "ai.onnx") or find_op("", item.op_type) is not None:
        return False
    schema = schema_of(item.op_type, "", onnx.defs.onnx_opset_version())
    return schema is not None and bool(schema.has_function)  # type: ignore[attr-defined]  # C++ class


def _write_defaults(item: onnx.NodeProto) -> None:
    """Add the attributes that were left out: the inliner does not."""
    schema = schema_of(item.op_type, "", onnx.defs.onnx_opset_version())
    given = {attr.name for attr in item.attribute}
    for name, attr in schema.attributes.items() if schema is not None else ():
        if name not in given and attr.default_value.name:
            item.attribute.append(attr.default_value)
