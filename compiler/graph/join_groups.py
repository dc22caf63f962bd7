"""Groups of a fused graph as one: what several fusions of whole groups share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Graph, Value

FIRST, LAST = 0, -1
"""Which of several anchors is that of the group that has them all."""


def join_groups(fused: FusedGraph, found: Sequence[Sequence[Group]], anchor: int = LAST) -> FusedGraph:
    """Make one group of each of `found`, which come in the order in which they run; views among them go."""
    joined = {parts[-1].outputs[0]: joined_group(parts, fused.graph, anchor) for parts in found if parts}
    inside = {value for group in joined.values() for node in group.nodes for value in node.outputs}
    apart = {group.outputs[0]: group for group in fused.groups if group.outputs[0] not in inside}
    made = {**apart, **joined}
    groups = tuple(made[group.outputs[0]] for group in fused.groups if group.outputs[0] in made)
    views = tuple(item for item in fused.views if item[1] not in inside)
    return replace(fused, groups=groups, views=views)


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """Groups by what they make, views among them, and the groups that read each value."""

    graph: Graph
    makers: Mapping[Value, Group]
    readers: Mapping[Value, Sequence[Group]]

    def alone(self, value: Value) -> Group | None:
        """The group that makes a value, where one group reads it and nothing else."""
        seen = value in self.graph.output_set or len(self.readers.get(value, ())) != 1
        return None if seen else self.makers.get(value)


def group_index(fused: FusedGraph) -> GroupIndex:
    """The groups of a graph by their values."""
    producers = fused.graph.producers
    views = [Group((producers[view],), (source,), (view,), None) for source, view in fused.views]
    readers: dict[Value, list[Group]] = {}
    for group in (*fused.groups, *views):
        for value in group.inputs:
            readers.setdefault(value, []).append(group)
    return GroupIndex(fused.graph, {group.outputs[0]: group for group in (*fused.groups, *views)}, readers)


def joined_group(parts: Sequence[Group], graph: Graph, anchor: int = LAST) -> Group:
    """One group that does what several do, one after the other."""
    chosen = {node for part in parts for node in part.nodes}
    nodes = tuple(node for node in graph.nodes if node in chosen)
    made = {value for node in nodes for value in node.outputs}
    inputs = dict.fromkeys(value for node in nodes for value in node.inputs if value not in made)
    anchors = [part.anchor for part in parts if part.anchor is not None]
    return Group(nodes, tuple(inputs), parts[-1].outputs, anchors[anchor])
