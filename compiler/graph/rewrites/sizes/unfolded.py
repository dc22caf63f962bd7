"""What was folded by an operator to something that depends on the size, computed by that operator again.

A mask of a decoder compares positions, of which one grows with what is before; folded, no element of it
grows, but some change. Positions are embedded in rows of a table; which ones, depends on the size. How much
there is of `x[:3]` does so, too, though it is 3 wherever the size is more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from compiler.graph.ir import Graph, Node, Value
from compiler.graph.ops.counted import COUNTED_PART
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
    nodes = list(zip(*(graph.nodes for graph in plain), strict=False))
    outputs = list(zip(*(graph.outputs for graph in plain), strict=False))
    pending = [*chain.from_iterable(map(_operands, nodes)), *outputs]
    follows = partial(_follows, points, steps)
    counts = [_operands(group)[1] for group in nodes if group[0].op is COUNTED_PART]
    while counts or pending:
        row, is_count = (counts.pop(), True) if counts else (pending.pop(), False)
        makers = _makers(folded, row)
        if makers is None or row[0] in made[0]:
            continue
        operands = _operands(makers)
        is_made = is_count and operands and all(follows(folded, one) for one in operands)
        if follows(folded, row) and not is_made:
            continue
        for known, value, node in zip(made, row, makers, strict=True):
            known[value] = node
        (counts if is_count else pending).extend(operands)
    if not made[0]:
        return plain
    return [_with_nodes(graph, known) for graph, known in zip(folded, made, strict=True)]


def _follows(points: Sequence[Point], steps: Point, graphs: Sequence[Graph], row: Row) -> bool:
    """Whether a constant follows from the sizes."""
    arrays = [graph.constants[value] for graph, value in zip(graphs, row, strict=True)]
    return fit_constant(points, arrays, steps) is not None


def _operands(nodes: Sequence[Node]) -> list[Row]:
    return list(zip(*(node.inputs for node in nodes), strict=False))


def _makers(folded: Sequence[Graph], row: Row) -> tuple[Node, ...] | None:
    """The nodes that made a constant; None where nothing did, or other nodes in each graph."""
    pairs = list(zip(folded, row, strict=True))
    if any(value not in graph.folded for graph, value in pairs):
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
