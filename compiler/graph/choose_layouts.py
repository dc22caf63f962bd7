"""Layout selection and propagation: how each intermediate tensor lies in memory.

Image-like tensors (batch, channels, space) may be kept in channel blocks of one vector register,
`n, c, h, w -> n, c // 16, h, w, c % 16`: kernels read and write whole registers then, whatever the image
size. Where channels come in groups that do not fill blocks, each group may be padded to blocks of its own.
Devices whose matrix units read channels side by side may have all channels innermost (channels-last) instead.
All inputs and outputs of the model, and tensors that are viewed in another shape, are row-major.

A kernel reads and writes through the maps of its operands, so every layout fits every kernel; they differ
in how long it takes. What is passed in prices what a kernel does with each operand in each layout,
conversions included, and the layouts with the least sum over the whole graph are taken. The sum consists of
tables of two tensors each (an input of a group and its result). A concatenation has a switch beside them,
in place or copied: in place it costs nothing, and is impossible unless all of its parts lie inside the
result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from compiler.graph.alias import lies_inside, may_be_in_place
from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.minimise import Table, minimise
from compiler.graph.op import Kind
from compiler.loops.index_map import AXES
from compiler.loops.layout import Layout, blocked, channels_last, row_major


class LayoutCosts(Protocol):
    """What layouts cost on a target, in seconds."""

    @property
    def lanes(self) -> int:
        """Channels per block."""
        ...

    @property
    def channels_last(self) -> bool:
        """Whether tensors may have their channels innermost, rather than in blocks."""
        ...

    def write(self, group: Group, value: Value, result: Layout) -> float:
        """What `group` takes to write `value`, one of its results, in a layout."""
        ...

    def read(self, group: Group, value: Value, source: Layout, result: Layout) -> float:
        """What `group` takes for its input `value` in a layout, and for what it computes with it.

        `result` is the layout of its first result; inf says that it cannot be done.
        """
        ...


Choices = Mapping[Value, Sequence[Layout]]


def choose_layouts(
    fused: FusedGraph, costs: LayoutCosts, copies: Iterable[tuple[Value, Value]] = ()
) -> Mapping[Value, Layout]:
    """The cheapest layout for every tensor that a kernel reads or writes, constants excepted.

    A group that only copies one of a pair in `copies` to the other costs nothing where both lie alike.
    """
    conversions = {frozenset(pair) for pair in copies}
    choices = layout_choices(fused, costs)
    open_values = [value for value, found in choices.items() if len(found) > 1]
    numbers = {value: number for number, value in enumerate(open_values)}
    sizes = [len(choices[value]) for value in open_values]
    tables: list[Table] = []
    for group, in_place in may_be_in_place(fused).items():
        if frozenset((*group.inputs, *group.outputs)) in conversions:
            tables.append(_copy_table(group, choices, numbers, costs))
        elif in_place:
            sizes.append(2)
            tables += _concat_tables(group, choices, numbers, len(sizes) - 1, costs)
        else:
            tables += _group_tables(group, choices, numbers, costs)
    options = minimise(sizes, tables)
    return {
        value: found[options[numbers[value]] if value in numbers else 0] for value, found in choices.items()
    }


# ---------------------------------------------------------------- what there is to choose from


def layout_choices(fused: FusedGraph, costs: LayoutCosts) -> dict[Value, list[Layout]]:
    """The layouts that each tensor may have, row-major first."""
    choices = {value: [row_major(value.type.shape)] for value in fused.fixed}
    for group in fused.groups:
        for value in group.outputs:
            if value in choices:
                continue
            choices[value] = [row_major(value.type.shape)]
            if not _keeps_blocks(group):
                continue
            if costs.channels_last:
                choices[value] += _with_channels_last(value.type)
            elif _can_block(value.type, costs.lanes):
                padded = _group_sizes(fused, group, value, choices, costs.lanes)
                choices[value] += [blocked(value.type.shape, costs.lanes, size) for size in (0, *padded)]
    return choices


def _with_channels_last(tensor: TensorType) -> list[Layout]:
    """Channels-last, where that is another order than row-major."""
    fits = 3 <= tensor.rank <= len(AXES) and tensor.shape[1] > 1 and math.prod(tensor.shape[2:]) > 1
    return [channels_last(tensor.shape)] if fits else []


def _can_block(tensor: TensorType, lanes: int) -> bool:
    return 3 <= tensor.rank <= len(AXES) and tensor.dtype.bits == 32 and 2 * tensor.shape[1] >= lanes


def _keeps_blocks(group: Group) -> bool:
    """Whether channels of a group's result are channels of what it reads."""
    # What comes before the first operator on channels only says where to read.
    first = next((n for n, node in enumerate(group.nodes) if node.op.channels), 0)
    return all(_keeps_channels(node) for node in group.nodes[first:])


def _keeps_channels(node: Node) -> bool:
    """Whether an operator maps channels, or what lies side by side, to channels: blocks suit it."""
    if node.op.channels:
        return True
    op, info = node.op, node.info
    moves = op.elementwise or op.keeps_channels(info) or op.fills_channels(info)
    same = node.inputs[0].type.rank == node.output.type.rank >= 3
    return same and node.op.kind is Kind.INJECTIVE and moves


def _group_sizes(fused: FusedGraph, group: Group, value: Value, choices: Choices, lanes: int) -> list[int]:
    """Channels per group that padding the result for may be worth while: of itself, its input or a reader."""
    wanted = [_padded_group(node, node.output, lanes) for node in group.nodes if node.op.channels]
    readers = [user for user in fused.graph.users(value) if user.op.channels and user.inputs[0] == value]
    wanted += [_padded_group(user, value, lanes) for user in readers]
    wanted += [layout.group for source in group.inputs for layout in choices.get(source, ())]
    return sorted({size for size in wanted if size and value.type.shape[1] % size == 0})


def _padded_group(node: Node, value: Value, lanes: int) -> int:
    """Channels per group of a grouped convolution, on the side of `value`; 0 when they fill whole blocks."""
    count = node.attrs.integer("group", 1)
    per_group = value.type.shape[1] // count
    return per_group if count > 1 and per_group >= lanes // 2 and per_group % lanes else 0


# ---------------------------------------------------------------- what it costs


def _group_tables(
    group: Group, choices: Choices, numbers: Mapping[Value, int], costs: LayoutCosts
) -> Iterator[Table]:
    result = group.outputs[0]
    for value in group.outputs:
        yield _table((value,), choices, numbers, [costs.write(group, value, item) for item in choices[value]])
    for value in group.inputs:
        if value in choices:
            pairs = itertools.product(choices[value], choices[result])
            seconds = [costs.read(group, value, source, target) for source, target in pairs]
            yield _table((value, result), choices, numbers, seconds)


def _copy_table(group: Group, choices: Choices, numbers: Mapping[Value, int], costs: LayoutCosts) -> Table:
    (value,), (result,) = group.inputs, group.outputs
    seconds = [
        0.0
        if source == target
        else costs.read(group, value, source, target) + costs.write(group, result, target)
        for source, target in itertools.product(choices[value], choices[result])
    ]
    return _table((value, result), choices, numbers, seconds)


def _concat_tables(
    group: Group, choices: Choices, numbers: Mapping[Value, int], switch: int, costs: LayoutCosts
) -> Iterator[Table]:
    """A concatenation is in place (option 0 of its switch) if all of its parts are, else it is copied."""
    result = group.outputs[0]
    write = np.array([costs.write(group, result, item) for item in choices[result]])
    yield _with_switch(_table((result,), choices, numbers, write), np.zeros_like(write), switch)
    for value in group.inputs:
        pairs = list(itertools.product(choices[value], choices[result]))
        copied = np.array([costs.read(group, value, source, target) for source, target in pairs])
        placed = np.array([0.0 if lies_inside(group, value, *pair) else np.inf for pair in pairs])
        yield _with_switch(_table((value, result), choices, numbers, copied), placed, switch)


def _with_switch(copied: Table, placed: np.ndarray, switch: int) -> Table:
    both = np.stack([placed.reshape(copied.costs.shape), copied.costs], axis=-1)
    return Table((*copied.variables, switch), both)


def _table(
    values: Sequence[Value],
    choices: Choices,
    numbers: Mapping[Value, int],
    seconds: Sequence[float] | np.ndarray,
) -> Table:
    """Seconds for all combinations of the choices of some tensors, those without a choice left out."""
    variables = tuple(numbers[value] for value in values if value in numbers)
    sizes = [len(choices[value]) for value in values if value in numbers]
    return Table(variables, np.asarray(seconds, np.float64).reshape(sizes))
