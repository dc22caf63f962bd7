"""What layouts cost on a target: the order that kernels were measured in, and what follows for graphs."""

from __future__ import annotations

import itertools
import math

import pytest

from compiler.core.target import TargetFacts
from compiler.graph.choose_layouts import choose_layouts
from compiler.graph.fuse import FusedGraph
from compiler.graph.ir import Value
from compiler.loops.layout import Layout, blocked, row_major
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.rules import schedule_func
from compiler.stages.layout_costs import TargetLayoutCosts
from tests.support.group_functions import group_func
from tests.support.sketch import Sketch

LANES = 16
COSTS = TargetLayoutCosts(TargetFacts("test", "c++", "wide", vector_bits=32 * LANES, vector_registers=32))


def layout(value: Value, kind: str) -> Layout:
    """`row`, `blocks`, or the size of a channel group."""
    if kind == "row":
        return row_major(value.type.shape)
    return blocked(value.type.shape, LANES, 0 if kind == "blocks" else int(kind))


def seconds(fused: FusedGraph, source: str, result: str) -> float:
    """The last kernel with its operands in one layout and its result in another one."""
    group = fused.groups[-1]
    target = layout(group.outputs[0], result)
    reads = [value for value in group.inputs if value not in fused.graph.constants]
    time = COSTS.write(group, group.outputs[0], target)
    return time + sum(COSTS.read(group, value, layout(value, source), target) for value in reads)


def one(op: str, channels: int = 64, outer: int = 64, *, groups: int = 1, size: int = 3) -> FusedGraph:
    """A graph of one kernel on an image of 28 x 28."""
    s = Sketch()
    x = s.input(1, channels, 28, 28)
    match op:
        case "conv":
            return s.fused(s.conv(x, outer, size, groups=groups))
        case "pool":
            return s.fused(s.pool(x, size, 1, "MaxPool"))
        case _:
            return s.fused(s.emit(op, x))


@pytest.mark.parametrize(
    "fused",
    [one("conv"), one("conv", size=1), one("conv", groups=64), one("pool"), one("Relu")],
    ids=["winograd", "pointwise", "depthwise", "pool", "elementwise"],
)
def test_blocks_on_both_sides_cost_no_more_than_any_mixture(fused: FusedGraph) -> None:
    kinds = ("row", "blocks")
    times = {pair: seconds(fused, *pair) for pair in itertools.product(kinds, kinds)}
    assert times["blocks", "blocks"] == min(times.values())
    assert times["row", "blocks"] > times["blocks", "blocks"]
    assert times["blocks", "row"] > times["blocks", "blocks"]


def test_what_works_channel_by_channel_wants_blocks_most() -> None:
    """Depthwise convolutions and pools are scalar on rows; a pointwise convolution hardly minds."""
    ratios = [
        seconds(fused, "row", "blocks") / seconds(fused, "blocks", "blocks")
        for fused in (one("conv", size=1), one("conv", groups=64))
    ]
    assert ratios[0] < 1.2
    assert ratios[1] > 5


@pytest.mark.parametrize(
    ("source", "result", "slow"),
    [
        ("blocks", "34", False),
        ("34", "34", False),
        ("row", "row", False),
        ("34", "blocks", True),  # a block of results belongs to two groups
        ("68", "34", True),  # the channels of a group are parts of another one
    ],
)
def test_groups_of_channels_have_to_fit(source: str, result: str, *, slow: bool) -> None:
    fused = one("conv", 136, 136, groups=4, size=1)
    ratio = seconds(fused, source, result) / seconds(fused, "34", "34")
    assert (ratio > 5) is slow


def test_small_groups_inside_of_blocks_are_slow() -> None:
    """Eight channels a group: two groups share a block, and a lane would have to look which one is its."""
    fused = one("conv", 32, 32, groups=4)
    assert seconds(fused, "blocks", "8") > 5 * seconds(fused, "8", "8")
    assert seconds(one("conv", 32, 32), "blocks", "8") > 5 * seconds(one("conv", 32, 32), "blocks", "row")


def test_a_pool_cannot_change_the_groups() -> None:
    assert math.isinf(seconds(one("pool", 136), "blocks", "34"))
    assert math.isfinite(seconds(one("pool", 136), "34", "34"))


@pytest.mark.parametrize("beside", [False, True])
def test_channels_that_lie_side_by_side_before_a_transpose_want_blocks(*, beside: bool) -> None:
    """A vector of them is stored as it was loaded, to one place or to sixteen."""
    s = Sketch()
    x = s.emit("Transpose", s.input(1, 28, 28, 64), perm=(0, 3, 1, 2))
    fused = s.fused(s.emit("Add", x, s.input(1, 64, 1, 1)) if beside else x)
    assert seconds(fused, "row", "blocks") < seconds(fused, "row", "row")


def test_few_channels_between_elementwise_operators_stay_in_rows() -> None:
    """Eight of sixteen lanes: an elementwise kernel has no whole vectors there."""
    s = Sketch()
    x = s.emit("Softmax", s.input(1, 8, 28, 28), axis=1, flatten=0)
    y = s.pool(s.emit("Relu", s.emit("Exp", x)), 28, 28)
    layouts = choose_layouts(s.fused(y), COSTS)
    assert not any(item.maps for item in layouts.values())


def test_a_padded_copy_for_a_join_is_written_in_blocks() -> None:
    """What comes in rows is written to its place between the blocks, not joined by a copy."""
    s = Sketch()
    x = s.conv(s.input(1, 3, 20, 20), 32, 3)
    other = s.pad(s.input(1, 32, 16, 16))
    layouts = choose_layouts(s.fused(s.conv(s.emit("Concat", x, other, axis=1), 16, 3)), COSTS)
    assert layouts[x].lanes == layouts[other].lanes == LANES


@pytest.mark.parametrize(("channels", "groups"), [(112, 4), (32, 4), (16, 4)])
def test_a_grouped_convolution_writes_rows_from_registers(channels: int, groups: int) -> None:
    """The prices say so; where the schedule rules refuse, they sum in memory, twenty times as slowly."""
    fused = one("conv", channels, channels, groups=groups)
    made = group_func(fused.groups[0], fused.graph.constants)
    schedule = schedule_func(made.func, {}, COSTS.facts, AnalyticChooser())
    assert "register" in {item.scope for item in schedule.func.allocs}
