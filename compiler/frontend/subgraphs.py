"""Graphs inside of nodes: what they read from outside, and the order in which nodes are computed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

import onnx

from compiler.frontend.proto import broken


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of their subgraphs, which protobuf nests a hundred deep at most."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def count_nodes(graph: onnx.GraphProto) -> int:
    """Nodes of a graph, those of the graphs in it counted once; at least one."""
    return max(sum(1 for _ in all_nodes(graph.node)), 1)


def reads(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, those from outside of its subgraphs among them."""
    names = {name for name in node.input if name}
    for graph in subgraphs(node):
        names |= _free_names(graph)
    return names


def _free_names(graph: onnx.GraphProto) -> set[str]:
    made = {one.name for one in (*graph.input, *graph.initializer)}
    made |= {name for node in graph.node for name in node.output}
    return wanted_names(graph) - made


def wanted_names(graph: onnx.GraphProto) -> set[str]:
    """Names that a graph's nodes read, and those of its outputs."""
    return {name for node in graph.node for name in reads(node)} | {one.name for one in graph.output}


def in_order(graph: onnx.GraphProto, defined: Container[str], where: str) -> list[onnx.NodeProto]:
    """The nodes, each after those it reads from; raises BadInputError for a cycle."""
    nodes = list(graph.node)
    if _is_ordered(nodes, defined):
        return nodes
    maker = {output: at for at, item in enumerate(nodes) for output in item.output if output}
    sorter = TopologicalSorter(dict.fromkeys(range(len(nodes)), ()))  # those that are ready in their order
    for at, item in enumerate(nodes):
        sorter.add(at, *sorted({maker[name] for name in reads(item) if name in maker}))
    try:
        return [nodes[at] for at in sorter.static_order()]
    except CycleError as error:
        stuck = min(error.args[1])
        raise broken(where, f"node {nodes[stuck].name or stuck!r} depends on its own result") from error


def _is_ordered(nodes: Sequence[onnx.NodeProto], defined: Container[str]) -> bool:
    seen: set[str] = set()
    for item in nodes:
        if any(name not in seen and name not in defined for name in reads(item)):
            return False
        seen.update(item.output)
    return True


def model_texts(model: onnx.ModelProto) -> Iterator[object]:
    """All names in a model, and domains; protobuf hands out bytes where a text is not UTF-8."""
    yield from (item.domain for item in model.opset_import)
    for function in model.functions:
        yield from (function.name, function.domain, function.overload)
        yield from (*function.input, *function.output, *function.attribute)
        yield from (item.domain for item in function.opset_import)
        yield from _node_texts(function.node)
    yield from texts(model.graph)


def _node_texts(nodes: Iterable[onnx.NodeProto]) -> Iterator[object]:
    for item in nodes:
        yield from (item.name, item.op_type, item.domain, item.overload, *item.input, *item.output)
        for attr in item.attribute:
            yield from (attr.name, attr.ref_attr_name)
        for graph_inside in subgraphs(item):
            yield from texts(graph_inside)


def texts(graph: onnx.GraphProto) -> Iterator[object]:
    """All names in a graph."""
    yield from _node_texts(graph.node)
    for tensor in graph.initializer:
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for info in (*graph.input, *graph.output):
        yield info.name
        yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
