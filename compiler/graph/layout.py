"""Layout selection: how each intermediate tensor lies in memory.

Image-like tensors (batch, channels, space) between convolutions and pools are kept in channel blocks of one
vector register, `n, c, h, w -> n, c // 16, h, w, c % 16`: their kernels read and write whole registers
whatever the image size. Everything else, and all inputs and outputs of the model, stays row-major.
Conversions are never kernels of their own: a kernel reads and writes through the maps of its operands, so a
conversion happens in a kernel that has to touch the tensor anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import Kind
from compiler.loops.layout import NAMES, Layout, blocked, row_major


def choose_layouts(fused: FusedGraph, lanes: int) -> Mapping[Value, Layout]:
    """A layout for every tensor that a kernel reads or writes, constants excepted.

    Blocking starts at the operators that work on channels and spreads through the groups that keep channels
    and space apart; where a group cannot keep blocks, or somebody views its result in another shape, the
    result is row-major.
    """
    graph = fused.graph
    viewed = (value for pair in fused.views for value in pair)  # another shape over the same bytes
    fixed = (*graph.inputs, *graph.outputs, *viewed)
    chosen: dict[Value, Layout] = {value: row_major(value.type.shape) for value in fixed}
    for group in fused.groups:
        blocking = _blocking_of(fused, group, chosen, lanes)
        for value in group.outputs:
            if value in chosen:
                continue
            if blocking is not None:
                blocking = _wanted_by_readers(fused, value, lanes) or blocking
            if blocking is None or not _can_block(value.type, lanes):
                chosen[value] = row_major(value.type.shape)
            else:
                fits = blocking and value.type.shape[1] % blocking == 0
                chosen[value] = blocked(value.type.shape, lanes, blocking if fits else 0)
    return chosen


def _can_block(tensor: TensorType, lanes: int) -> bool:
    return 3 <= tensor.rank <= len(NAMES) and tensor.dtype.bits == 32 and 2 * tensor.shape[1] >= lanes


def _blocking_of(fused: FusedGraph, group: Group, chosen: Mapping[Value, Layout], lanes: int) -> int | None:
    """Channels per group (0: one group) that the outputs are blocked by; None for row-major."""
    # What comes before the first operator on channels only says where to read.
    first = next((n for n, node in enumerate(group.nodes) if node.op.channels), 0)
    if not all(_keeps_channels(node) for node in group.nodes[first:]):
        return None
    wanted = [_own_blocking(node, lanes) for node in group.nodes if node.op.channels]
    inherited = [chosen[value].group for value in group.inputs if value in chosen and chosen[value].lanes]
    if wanted and any(wanted):
        return max(wanted)
    if inherited:
        return max(inherited)
    readers = [user for value in group.outputs for user in fused.graph.users(value)]
    return 0 if wanted or any(user.op.channels for user in readers) else None


def _own_blocking(node: Node, lanes: int) -> int:
    """Channels per group of a grouped convolution's result; 0 when its groups fill whole blocks."""
    return _padded_group(node, node.output, lanes)


def _padded_group(node: Node, value: Value, lanes: int) -> int:
    count = node.attrs.integer("group", 1)
    per_group = value.type.shape[1] // count
    return per_group if count > 1 and per_group >= lanes // 2 and per_group % lanes else 0


def _wanted_by_readers(fused: FusedGraph, value: Value, lanes: int) -> int:
    """Channels per group of a grouped convolution that reads the value; else 0."""
    for user in fused.graph.users(value):
        if user.op.channels and user.inputs[0] == value and (group := _padded_group(user, value, lanes)):
            return group
    return 0


def _keeps_channels(node: Node) -> bool:
    """Whether an operator maps channels to channels (so that blocks stay blocks)."""
    if node.op.channels:
        return True
    moves = node.op.elementwise or node.op.keeps_channels_of(node.info)
    same = node.inputs[0].type.rank == node.output.type.rank >= 3
    return same and node.op.kind is Kind.INJECTIVE and moves
