"""Strength reduction of a kind: a concatenation of very many tensors becomes one of concatenations.

A kernel has a piece of text for each operand; with thousands of them it would be one function that no
compiler finishes. In parts, equal parts share a kernel, and parts that lie in their result need no copy.
"""

from __future__ import annotations

from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value

MOST_OPERANDS = 64


@rewriting()
def part_concats(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Join the operands of each Concat in a tree whose nodes have no more than MOST_OPERANDS."""
    if item.op.name != "Concat" or len(item.inputs) <= MOST_OPERANDS:
        return None
    level = item.inputs
    while len(level) > 1:
        runs = [level[at : at + MOST_OPERANDS] for at in range(0, len(level), MOST_OPERANDS)]
        level = tuple(
            run[0] if len(run) == 1 else editor.emit_all(item.op, run, item.attrs)[0] for run in runs
        )
    return level
