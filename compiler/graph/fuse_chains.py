"""Small layers, each of which reads the one before, as one kernel.

For clusters of blocks, which pass values to each other: squeeze-and-excitation (a global pool, a small dense
layer, another one), a pool with the dense layer behind it. Launches of next to no work become one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Graph, Value
from compiler.graph.join_groups import FIRST, GroupIndex, group_index, join_groups
from compiler.graph.op import Kind

Saves = Callable[[Sequence[Group]], float]
"""Seconds that one kernel for groups that follow each other saves; at most 0 where it does not pay."""

_MOST_RESULTS = 1 << 14
"""Elements of a layer's result; more are more than a cluster of blocks makes in good time."""

_Layers = list[tuple[Group, ...]]
"""Layers that follow each other, each behind the views in front of it."""


def has_chains(graph: Graph) -> bool:
    """Whether several operators sum up to few results each: else there is nothing to join."""
    kinds = (Kind.REDUCTION, Kind.ANCHOR)
    sums = (node.outputs[0].type.size for node in graph.nodes if node.op.kind in kinds)
    return len([*islice((size for size in sums if size <= _MOST_RESULTS), 2)]) > 1


def fuse_chains(fused: FusedGraph, saves: Saves) -> FusedGraph:
    """Join the groups of each chain, or of its parts, as it saves most."""
    found = (part for layers in _chains(fused) for part in _best_parts(layers, saves))
    return join_groups(fused, list(found), anchor=FIRST)


def _chains(fused: FusedGraph) -> list[_Layers]:
    """The longest chains of small layers."""
    index = group_index(fused)
    ending: dict[Value, _Layers] = {}
    for group in fused.groups:
        if not _is_small(group, fused.graph):
            continue
        views, source = _behind_views(_read(group, fused.graph)[0], index)
        before = [] if source is None else ending.pop(source.outputs[0], [])
        ending[group.outputs[0]] = [*before, (*views, group)] if before else [(group,)]
    return list(ending.values())


def _is_small(group: Group, graph: Graph) -> bool:
    """Whether a group has sums over one tensor that is not known, and few results."""
    plain = all(len(node.outputs) == 1 and not node.op.alone for node in group.nodes)
    small = plain and group.outputs[0].type.size <= _MOST_RESULTS
    return group.anchor is not None and small and len(_read(group, graph)) == 1


def _read(group: Group, graph: Graph) -> list[Value]:
    return [value for value in group.inputs if value not in graph.constants]


def _behind_views(value: Value, index: GroupIndex) -> tuple[list[Group], Group | None]:
    """The views that a value comes through, in order, and the group that makes what they view."""
    views: list[Group] = []
    maker = index.alone(value)
    while maker is not None and maker.anchor is None and maker.nodes[-1].op.kind is Kind.VIEW:
        views.insert(0, maker)
        maker = index.alone(maker.inputs[0])
    return views, maker


def _best_parts(layers: _Layers, saves: Saves) -> list[tuple[Group, ...]]:
    """Parts of a chain, each one kernel, that save most together."""
    best: list[tuple[float, list[tuple[Group, ...]]]] = [(0.0, [])]
    for end in range(1, len(layers) + 1):
        options = [best[end - 1]]
        for begin in range(end - 1):
            part = (layers[begin][-1], *chain.from_iterable(layers[begin + 1 : end]))
            seconds = saves(part)
            if seconds > 0:
                options.append((best[begin][0] + seconds, [*best[begin][1], part]))
        best.append(max(options, key=lambda option: option[0]))
    return best[-1][1]
