"""What was folded by an operator to something that depends on the size, computed by that operator again.

A mask of a decoder compares positions, of which one grows with what is before; folded, no element of it
grows, but some change. Positions are embedded in rows of a table; which ones, depends on the size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.graph.dtypes import Array
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.rewrites.drop_dead import drop_dead
from compiler.graph.rewrites.fold_constants import fold_constants
from compiler.graph.rewrites.sizes.fits import Point, fit_constant

Row = tuple[Value, ...]
"""One tensor, as each graph has it."""


def unfolded(graphs: Sequence[Graph], points: Sequence[Point], steps: Point) -> list[Graph]:
    """The graphs, folded but for constants that do not follow from the sizes.

    Where graphs are not alike, they are only folded.
    """
    folded = [fold_constants(graph) for graph in graphs]
    plain = [drop_dead(graph) for graph in folded]
    made: list[dict[Value, Node]] = [{} for _ in graphs]
    pending = [*map(_operands, zip(*(graph.nodes for graph in plain), strict=False))]
    pending.append(list(zip(*(graph.outputs for graph in plain), strict=False)))
    while pending:
        for row in pending.pop():
            nodes = _makers(folded, row, lambda arrays: fit_constant(points, arrays, steps) is not None)
            if nodes is not None and row[0] not in made[0]:
                for known, value, node in zip(made, row, nodes, strict=True):
                    known[value] = node
                pending.append(_operands(nodes))
    if not made[0]:
        return plain
    return [_with_nodes(graph, known) for graph, known in zip(folded, made, strict=True)]


def _operands(nodes: Sequence[Node]) -> list[Row]:
    return list(zip(*(node.inputs for node in nodes), strict=False))


def _makers(
    folded: Sequence[Graph], row: Row, fits: Callable[[Sequence[Array]], bool]
) -> tuple[Node, ...] | None:
    """The nodes that made constants, where these do not follow from the sizes."""
    pairs = list(zip(folded, row, strict=True))
    if any(value not in graph.folded for graph, value in pairs):
        return None
    if fits([graph.constants[value] for graph, value in pairs]):
        return None
    nodes = tuple(graph.folded[value] for graph, value in pairs)
    alike = len({(node.op, len(node.inputs), len(node.outputs)) for node in nodes}) == 1
    return nodes if alike else None


def _with_nodes(graph: Graph, made: dict[Value, Node]) -> Graph:
    """What was folded, in the order in which it was, before all else."""
    first = [node for value, node in graph.folded.items() if made.get(value) is node]
    nodes = [*dict.fromkeys(first), *graph.nodes]
    outputs = {value for node in first for value in node.outputs}
    constants = {value: array for value, array in graph.constants.items() if value not in outputs}
    return drop_dead(graph.replace(nodes=nodes, constants=constants))
