"""Constant folding: what depends on constants only is computed now."""

from __future__ import annotations

from compiler.graph.edit import Editor, rewrite
from compiler.graph.ir import Graph, Node, Value


def fold_constants(graph: Graph) -> Graph:
    """Replace every node whose inputs are all known by its results."""
    return rewrite(graph, _fold)


def _fold(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    types = tuple(value.type for value in item.outputs)
    return editor.fold(item.op, item.inputs, item.attrs, types)
