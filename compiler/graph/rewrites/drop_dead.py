"""Dead code elimination (DCE): nodes and constants that no output depends on are dropped."""

from __future__ import annotations

from dataclasses import replace

from compiler.graph.ir import Graph, Node, Value


def drop_dead(graph: Graph) -> Graph:
    """Keep what the outputs depend on; inputs stay, used or not."""
    needed: set[Value] = set(graph.outputs)
    kept: list[Node] = []
    for item in reversed(graph.nodes):
        if any(value in needed for value in item.outputs):
            kept.append(item)
            needed.update(item.inputs)
    constants = {value: array for value, array in graph.constants.items() if value in needed}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return replace(graph.replace(nodes=kept[::-1], constants=constants), folded={})
