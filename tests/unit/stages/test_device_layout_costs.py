"""Channels-last on devices: where matrix units take the product, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.core.target import TargetFacts
from compiler.graph.choose_layouts import choose_layouts
from compiler.graph.fuse import FusedGraph, fuse
from compiler.graph.rewrites.lower_precision import lower_precision
from compiler.loops.layout import channels_last
from compiler.loops.queries import extent_of
from compiler.schedule.layout_changes import all_layouts
from compiler.schedule.rules.threads.follow_layouts import follow_layouts
from compiler.schedule.schedule import Schedule
from compiler.stages.device_layout_costs import DeviceLayoutCosts
from compiler.targets import get_target
from tests.support.group_functions import group_func
from tests.support.sketch import Sketch

TF32 = get_target("cuda:sm_90", precision="tf32").facts
F16 = get_target("cuda:sm_90", precision="f16").facts
F32 = get_target("cuda:sm_90").facts


def inner(fused: FusedGraph, facts: TargetFacts) -> list[bool]:
    """Whether each tensor between kernels, in order, is channels-last."""
    layouts = choose_layouts(fused, DeviceLayoutCosts(facts))
    results = [value for group in fused.groups for value in group.outputs if value not in fused.fixed]
    return [layouts[value] == channels_last(value.type.shape) for value in results]


def chain(channels: int, size: int = 16) -> FusedGraph:
    """Three convolutions, the last one pointwise."""
    s = Sketch()
    y = s.conv(s.input(1, channels, size, size), channels, 3)
    return s.fused(s.conv(s.emit("Relu", s.conv(y, channels, 3)), channels))


def test_products_read_channels_side_by_side_where_units_take_them() -> None:
    assert inner(chain(64), TF32) == [True, True]


def test_row_major_without_a_unit_for_the_type() -> None:
    assert inner(chain(64), F32) == [False, False]


def test_units_for_f32_alone_ask_for_nothing() -> None:
    amd = get_target("rocm:gfx90a").facts
    only = replace(amd, matrix_rates=tuple(r for r in amd.matrix_rates if r[0].endswith("f32f32")))
    assert inner(chain(64), only) == [False, False]
    assert inner(chain(64), amd) == [False, False]


def test_row_major_where_tiles_are_uneven() -> None:
    assert inner(chain(48), TF32) == [False, False]


@pytest.mark.parametrize("facts", [TF32, F16], ids=["tf32", "f16"])
def test_a_convolution_of_an_image_writes_what_is_read(facts: TargetFacts) -> None:
    """Its terms are gathered, whatever the order of its result."""
    s = Sketch()
    y = s.emit("Relu", s.conv(s.input(1, 3, 32, 32), 64, 7))
    graph = s.graph(s.conv(s.conv(y, 64), 64))
    lowered = graph if facts.factors is None else lower_precision(facts.factors, images=True)(graph)
    assert inner(fuse(lowered), facts) == [True, True]


def test_few_pixels_are_no_reason() -> None:
    """An odd number of them, in 16 bits, could not be copied while products go on."""
    assert inner(chain(64, size=11), TF32) == [True, True]


def test_depthwise_convolutions_stay_row_major() -> None:
    s = Sketch()
    y = s.conv(s.input(1, 32, 20, 20), 192)
    y = s.conv(y, 192, 3, groups=192)
    assert inner(s.fused(s.conv(y, 32)), TF32) == [False, False]


def test_blocks_iterate_as_their_results_lie() -> None:
    s = Sketch()
    x = s.input(1, 32, 12, 10)
    group = s.fused(s.emit("Relu", s.conv(x, 64, 3))).groups[0]
    func = group_func(group, s.constants).func
    schedule = Schedule(func)
    schedule.transform_layout(func.params[-1].name, channels_last((1, 64, 10, 8)).maps[0])
    follow_layouts(schedule)
    sums = [site for site in schedule.program.sites.values() if site.reduce]
    assert [extent_of(item.extent) for item in sums[0].spatial] == [1, 10, 8, 64]
    assert sums[0].target in all_layouts(schedule.func)


def test_weights_of_single_channels_lie_as_the_channels() -> None:
    s = Sketch()
    group = s.fused(s.conv(s.input(1, 64, 12, 10), 64, 3, groups=64)).groups[0]
    func = group_func(group, s.constants).func
    schedule = Schedule(func)
    for param in (func.params[0], func.params[-1]):
        shape = tuple(extent_of(extent) for extent in param.shape)
        schedule.transform_layout(param.name, channels_last(shape).maps[0])
    follow_layouts(schedule)
    (weights,) = (item for item in schedule.func.params if item.scope == "constant")
    assert extent_of(weights.shape[-1]) == 64
