"""Attention as one kernel: softmax(q k^T ...) v, whatever lies between the product and the softmax.

Three groups become one where nothing else reads what passes between them: the product of two computed
tensors with what follows it (a scale), the softmax with what it reads element by element (a mask), and the
product of its rows with a third tensor. Transposes before and after come along: a kernel reads and writes its
tensors in any order. So every exporter's spelling gives the same group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.op import Kind

MOST_KEYS = 1 << 14
"""With more keys a few rows of scores no longer stay in a second-level cache."""


def fuse_attention(fused: FusedGraph) -> FusedGraph:
    """Join the groups of each attention into one."""
    groups = {group.outputs[0]: group for group in fused.groups}
    readers = _readers(fused)
    for group in fused.groups:
        parts = _parts(group, groups, readers, fused.graph)
        if parts:
            joined = _joined(parts, fused.graph)
            groups = _with(groups, parts, joined)
    return replace(fused, groups=tuple(groups.values()))


def _readers(fused: FusedGraph) -> Counter[Value]:
    """How many groups, views and outputs of the graph use each value."""
    found = Counter(value for group in fused.groups for value in group.inputs)
    found.update(source for source, _ in fused.views)
    found.update(fused.graph.outputs)
    return found


def _parts(
    weighting: Group, groups: dict[Value, Group], readers: Counter[Value], graph: Graph
) -> list[Group]:
    """The groups of an attention, of which `weighting` multiplies by the values, in order; else none."""
    if weighting.outputs[0] not in groups or not _is_product(weighting.anchor, graph):
        return []
    assert weighting.anchor is not None
    softmax = _alone(weighting.anchor.inputs[0], groups, readers)
    if softmax is None or not _is_softmax(softmax.anchor) or not _softmax_ends(softmax):
        return []
    assert softmax.anchor is not None
    scores = [
        made
        for value in softmax.inputs
        if (made := _alone(value, groups, readers)) is not None
        and _is_product(made.anchor, graph)
        and value.type.shape == softmax.outputs[0].type.shape
    ]
    if len(scores) != 1:
        return []
    before = [
        move
        for group in (scores[0], weighting)
        for value in group.inputs
        if (move := _alone(value, groups, readers)) is not None and _moves_only(move)
    ]
    after = [
        group
        for group in groups.values()
        if group.inputs == weighting.outputs and readers[weighting.outputs[0]] == 1 and _moves_rows(group)
    ]
    return [*before, scores[0], softmax, weighting, *after]


def _alone(value: Value, groups: dict[Value, Group], readers: Counter[Value]) -> Group | None:
    """The group that makes a value, where one group alone reads it."""
    return groups.get(value) if readers[value] == 1 else None


def _is_product(anchor: Node | None, graph: Graph) -> bool:
    """Whether a group's anchor is the product of two computed tensors."""
    return anchor is not None and anchor.op.multiplies and anchor.inputs[1] not in graph.constants


def _is_softmax(anchor: Node | None) -> bool:
    if anchor is None or not anchor.op.weighs or anchor.attrs.flag("flatten"):
        return False
    shape = anchor.output.type.shape
    return anchor.attrs.integer("axis") == len(shape) - 1 and shape[-1] <= MOST_KEYS


def _softmax_ends(group: Group) -> bool:
    return group.anchor is not None and group.outputs == (group.anchor.output,)


def _moves_only(group: Group) -> bool:
    """Whether a group computes nothing, so that reading its source in another order does as well."""
    return group.kind is Kind.INJECTIVE and all(node.op.flops(node.info) == 0 for node in group.nodes)


def _moves_rows(group: Group) -> bool:
    """Whether a group transposes all but the last axis."""
    if not _moves_only(group) or len(group.nodes) != 1:
        return False
    order = group.nodes[0].attrs.integers("perm", ())
    return bool(order) and order[-1] == len(order) - 1


def _joined(parts: list[Group], graph: Graph) -> Group:
    chosen = {node for part in parts for node in part.nodes}
    nodes = tuple(node for node in graph.nodes if node in chosen)
    made = {value for node in nodes for value in node.outputs}
    inputs = dict.fromkeys(value for node in nodes for value in node.inputs if value not in made)
    (weighting,) = (part for part in parts if part.anchor is not None and part is parts[_last_anchor(parts)])
    return Group(nodes, tuple(inputs), parts[-1].outputs, weighting.anchor)


def _last_anchor(parts: list[Group]) -> int:
    return max(number for number, part in enumerate(parts) if part.anchor is not None)


def _with(groups: dict[Value, Group], parts: Iterable[Group], joined: Group) -> dict[Value, Group]:
    """The groups with one in place of several, where the last of them stood."""
    gone = set(map(id, parts))
    last = joined.outputs[0]
    return {
        value: joined if value == last else group
        for value, group in groups.items()
        if value == last or id(group) not in gone
    }
