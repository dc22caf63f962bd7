"""What a model keeps from run to run: inputs that a run extends to outputs, in the same memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.graph.convert import LaidOut
from compiler.graph.ir import Graph, Node, Value


@dataclass(frozen=True, slots=True)
class StatePair:
    """An input `past` that an operator extends along `axis` to the output `present`."""

    past: Value
    present: Value
    axis: int


def states_of(laid_out: LaidOut) -> tuple[StatePair, ...]:
    """Inputs that nothing else reads, and outputs that lie in no other tensor's memory; both row-major."""
    graph = laid_out.fused.graph
    reads = Counter(value for node in graph.nodes for value in node.inputs)
    outputs = Counter(graph.outputs)
    return tuple(
        StatePair(node.inputs[0], node.output, node.attrs.integer("axis"))
        for node in _extending(graph)
        if reads[node.inputs[0]] == 1
        and outputs[node.output] == 1
        and node.inputs[0] not in outputs
        and not any(_moved(laid_out, value) for value in (node.inputs[0], node.output))
    )


def _extending(graph: Graph) -> Iterator[Node]:
    """Operators that extend an input along an axis of which a run has so many places, one symbol's."""
    for node in graph.nodes:
        if not node.op.extends or node.inputs[0] not in graph.operands:
            continue
        extents = graph.extents.get(node.inputs[0], ())
        extent = extents[node.attrs.integer("axis")] if extents else None
        plain = extent is not None and (extent.offset, extent.divisor) == (0, 1)
        if plain and extent is not None and sorted(extent.factors) == [0] * (len(extent.factors) - 1) + [1]:
            yield node


def _moved(laid_out: LaidOut, value: Value) -> bool:
    """Whether a tensor lies in another one's memory, or in blocks."""
    layout = laid_out.layouts.get(value)
    return value in laid_out.roots or (layout is not None and bool(layout.maps))
