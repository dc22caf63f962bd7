"""Common subexpression elimination (CSE): nodes with the same operator, operands and attributes are one."""

from __future__ import annotations

from compiler.graph.attrs import Attrs
from compiler.graph.edit import Editor, rewrite
from compiler.graph.ir import Graph, Node, Value


def share_common(graph: Graph) -> Graph:
    """Merge equal nodes."""
    seen: dict[tuple[str, tuple[Value, ...], Attrs], Node] = {}

    def step(_: Editor, item: Node) -> tuple[Value, ...] | None:
        first = seen.setdefault((item.op.name, item.inputs, item.attrs), item)
        return None if first is item else first.outputs

    return rewrite(graph, step)
