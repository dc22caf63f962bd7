"""In-place concatenation (buffer aliasing): the parts are written straight to their place in the result.

A part may lie inside the result when it is one contiguous run of the result's memory: the axis is the
outermost one with more than one step, and blocked channels meet at whole blocks or groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Node, Value
from compiler.loops.layout import Layout


@dataclass(frozen=True, slots=True)
class Alias:
    """A tensor that lies inside another one, `offset` bytes from its start."""

    parent: Value
    offset: int


def find_aliases(fused: FusedGraph, layouts: Mapping[Value, Layout]) -> dict[Value, Alias]:
    """Parts that need no copy; where all parts of a concatenation are found, its kernel has nothing to do."""
    free = _free(fused)
    aliases: dict[Value, Alias] = {}
    for group in fused.groups:
        parts = group.nodes[0].inputs
        if not _is_concatenation(group) or len(set(parts)) != len(parts):
            continue
        if not all(part in free and part not in aliases for part in parts):
            continue
        result = group.outputs[0]
        if all(lies_inside(group, part, layouts[part], layouts[result]) for part in parts):
            aliases.update({part: Alias(result, _offset(group, part, layouts[result])) for part in parts})
    return aliases


def may_be_in_place(fused: FusedGraph) -> dict[Group, bool]:
    """Every group in order, and whether it is a concatenation whose parts may lie inside its result.

    That is what is known before there are layouts.
    """
    free = _free(fused)
    found = {}
    for group in fused.groups:
        parts = set(group.nodes[0].inputs)
        found[group] = _is_concatenation(group) and len(parts) == len(group.nodes[0].inputs) and parts <= free
        if found[group]:
            free -= parts
    return found


def is_in_place(group: Group, aliases: Mapping[Value, Alias]) -> bool:
    """Whether a group is a concatenation whose parts are all in place already."""
    node = group.nodes[0]
    return _is_concatenation(group) and all(
        value in aliases and aliases[value].parent == node.output for value in node.inputs
    )


def lies_inside(group: Group, part: Value, layout: Layout, result: Layout) -> bool:
    """Whether a part in a layout is a contiguous run of the result of its concatenation in another layout."""
    node = group.nodes[0]
    axis = node.attrs.integer("axis")
    if any(extent != 1 for extent in node.output.type.shape[:axis]):
        return False
    if (layout.lanes, layout.group) != (result.lanes, result.group) or (result.lanes and axis != 1):
        return False
    before, size = _steps_before(node, part), part.type.shape[axis]
    if result.group:
        return before % result.group == size % result.group == 0
    return not result.lanes or before % result.lanes == 0


def _is_concatenation(group: Group) -> bool:
    return len(group.nodes) == 1 and group.nodes[0].op.concatenates


def _free(fused: FusedGraph) -> set[Value]:
    """Tensors whose memory is not decided elsewhere."""
    viewed = {source for source, _ in fused.views}
    made = {value for group in fused.groups for value in group.outputs} - viewed
    return {value for value in made if value not in fused.graph.output_set}


def _steps_before(node: Node, part: Value) -> int:
    """Where a part begins along the axis."""
    axis = node.attrs.integer("axis")
    return sum(value.type.shape[axis] for value in node.inputs[: node.inputs.index(part)])


def _offset(group: Group, part: Value, result: Layout) -> int:
    """Bytes of the result's memory before a part that lies inside it."""
    node = group.nodes[0]
    steps = node.output.type.shape[node.attrs.integer("axis")]
    unit = result.group or result.lanes or 1
    units = -(-steps // unit)  # groups, blocks or single steps, all of the same size
    return _steps_before(node, part) // unit * (result.size // units) * part.type.dtype.bits // 8
