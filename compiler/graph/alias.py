"""Joins without copies: the parts of a concatenation are written straight to their place in the result.

A part may lie inside the result when it is one contiguous run of the result's memory: the joined axis is the
outermost one with more than one step, and blocked channels meet at whole blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Value
from compiler.loops.layout import Layout


@dataclass(frozen=True, slots=True)
class Alias:
    """A tensor that lies inside another one, `offset` elements from its start."""

    parent: Value
    offset: int


def find_aliases(fused: FusedGraph, layouts: Mapping[Value, Layout]) -> dict[Value, Alias]:
    """Parts of joins that need no copy; where all parts of a join are found, its kernel has nothing to do."""
    graph = fused.graph
    viewed = {source for source, _ in fused.views}
    made = {value for group in fused.groups for value in group.outputs} - viewed
    free = {value for value in made if value not in graph.output_set}
    aliases: dict[Value, Alias] = {}
    for group in fused.groups:
        offsets = _offsets(group, layouts)
        parts = group.nodes[0].inputs
        if offsets is None or len(set(parts)) != len(parts):
            continue
        if all(part in free and part not in aliases for part in parts):
            result = group.outputs[0]
            aliases.update({part: Alias(result, at) for part, at in zip(parts, offsets, strict=True)})
    return aliases


def is_join(group: Group, aliases: Mapping[Value, Alias]) -> bool:
    """Whether a group is a concatenation whose parts are all in place already."""
    first = group.nodes[0]
    return (
        len(group.nodes) == 1
        and first.op.name == "Concat"
        and all(value in aliases and aliases[value].parent == first.output for value in first.inputs)
    )


def _offsets(group: Group, layouts: Mapping[Value, Layout]) -> list[int] | None:
    """Element offsets of the parts of a join, or None when they are not contiguous runs of the result."""
    node = group.nodes[0]
    if len(group.nodes) != 1 or node.op.name != "Concat":
        return None
    result = layouts[node.output]
    axis = node.attrs.integer("axis")
    if any(extent != 1 for extent in node.output.type.shape[:axis]) or result.group:
        return None
    if result.lanes and axis != 1:
        return None
    step = result.size // (result.shape[axis] * max(result.lanes, 1))  # elements of one step along the axis
    offsets, total = [], 0
    for part in node.inputs:
        layout = layouts.get(part)
        if layout is None or layout.lanes != result.lanes or layout.group:
            return None
        if result.lanes and total % result.lanes:
            return None
        offsets.append(total * step)
        total += part.type.shape[axis]
    return offsets
