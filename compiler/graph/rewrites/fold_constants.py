"""Constant folding: what depends on constants only is computed now."""

from __future__ import annotations

from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value


def folded_node(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """The results of a node as constants, where its inputs are known."""
    types = tuple(value.type for value in item.outputs)
    return editor.fold(item.op, item.inputs, item.attrs, types)


fold_constants = rewriting()(folded_node)
"""Replaces every node whose inputs are all known by its results."""
