"""Calls that a run may leave out: where a condition does not hold, nothing looks at what they make.

A selection by a few truth values takes one operand or the other. What makes an operand and nothing else is
needed only where that is taken: rounds of a loop before its end, steps of a sequence within its length, one
branch of two. The selection itself stays and decides by the same condition, so that leaving calls out saves
time and changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.graph.convert import LaidOut
from compiler.graph.fuse import MOST_TRUTH_VALUES
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.op import Kind


@dataclass(frozen=True, slots=True)
class Guard:
    """What is guarded is needed where any element of a bool tensor is `expected`."""

    condition: Value
    expected: bool


Need = Guard | bool
"""When a value is needed: where a guard says so, always (True), or never (False)."""


def guards_of(laid_out: LaidOut, written: Sequence[Sequence[Value]]) -> list[Guard | None]:
    """For each call when it is needed, None where that is always; written: what each of them makes, in order.

    Conditions are in memory before the call.
    """
    graph = laid_out.fused.graph
    needs = _needs(graph)
    made = {value: number for number, values in enumerate(written) for value in values}

    def is_known(condition: Value, number: int) -> bool:
        memory = laid_out.roots[condition].parent if condition in laid_out.roots else condition
        return memory in graph.inputs or made.get(memory, number) < number

    found: list[Guard | None] = []
    for number, values in enumerate(written):
        need: Need = False
        for value in values:
            need = _either(need, needs.get(value, True))
        is_guard = isinstance(need, Guard) and is_known(need.condition, number)
        found.append(need if isinstance(need, Guard) and is_guard else None)
    return found


def _needs(graph: Graph) -> Mapping[Value, Need]:
    """When each value that nodes make is needed."""
    needs: dict[Value, Need] = dict.fromkeys(graph.outputs, True)
    for node in reversed(graph.nodes):
        need: Need = False
        for value in node.outputs:
            need = _either(need, needs.get(value, False))
        for at, value in enumerate(node.inputs):
            needs[value] = _either(needs.get(value, False), _of_operand(graph, node, at, need))
    return needs


def _of_operand(graph: Graph, node: Node, at: int, need: Need) -> Need:
    """When a node's operand is needed, by when its results are."""
    if not node.op.selects or at == 0 or need is False:
        return need
    condition = _same_memory(graph, node.inputs[0])
    taken = Guard(condition, expected=at == 1)
    if condition.type.size > MOST_TRUTH_VALUES or condition in graph.constants:
        return need
    if condition.type.size == 1 and need == Guard(condition, not taken.expected):
        return False  # it is the other operand that is looked at
    return taken


def _either(one: Need, other: Need) -> Need:
    """Where one or the other is needed."""
    if one is False or one == other:
        return other
    return one if other is False else True


def _same_memory(graph: Graph, value: Value) -> Value:
    """The first of values that are views of all of each other."""
    node = graph.producer(value)
    if node is None or node.op.kind is not Kind.VIEW or node.inputs[0].type.size != value.type.size:
        return value
    return _same_memory(graph, node.inputs[0])
