"""Common subexpression elimination (CSE): nodes with the same operator, operands and attributes are one."""

from __future__ import annotations

from compiler.graph.attrs import Attrs
from compiler.graph.edit import Editor, GraphRewrite, Rule
from compiler.graph.ir import Graph, Node, Value


def _shares_common(_: Graph) -> Rule:
    """A rule that knows the nodes of a graph that it saw."""
    seen: dict[tuple[str, tuple[Value, ...], Attrs], Node] = {}

    def step(_editor: Editor, item: Node) -> tuple[Value, ...] | None:
        first = seen.setdefault((item.op.name, item.inputs, item.attrs), item)
        return None if first is item else first.outputs

    return step


share_common = GraphRewrite(_shares_common)
"""Merges equal nodes."""
