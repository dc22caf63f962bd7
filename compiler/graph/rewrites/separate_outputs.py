"""Copy insertion: give every output of the model memory of its own.

An output that is an input, a constant, another output, a view of one of these, or a part of a tensor, is
copied, unless it has no elements.
"""

from __future__ import annotations

from compiler.graph.attrs import Attrs
from compiler.graph.edit import Editor
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.op import Kind
from compiler.graph.ops import OPS


def separate_outputs(graph: Graph) -> Graph:
    """Insert a Copy before outputs that share memory with something that is not theirs."""
    taken: set[Value] = {*graph.inputs, *graph.constants}
    copied: dict[int, Value] = {}
    for number, value in enumerate(graph.outputs):
        root = _root(graph, value)
        if (root in taken or root.type.size > value.type.size) and value.type.size:
            copied[number] = value
        else:
            taken.add(root)
    if not copied:
        return graph
    editor = Editor(graph)
    for item in graph.nodes:
        editor.append(item)
    outputs = list(graph.outputs)
    for number, value in copied.items():
        outputs[number] = editor.value(value.type, value.name)
        editor.append(Node(OPS["Copy"], (value,), (outputs[number],), Attrs()))
    return graph.replace(nodes=editor.nodes, outputs=outputs)


def _root(graph: Graph, value: Value) -> Value:
    """The value whose memory a chain of views shows."""
    maker = graph.producer(value)
    while maker is not None and maker.op.kind is Kind.VIEW:
        value = maker.inputs[0]
        maker = graph.producer(value)
    return value
