"""How tensors lie in memory: channel blocks where kernels work on channels, row-major where others look."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.graph.ir import Value
from compiler.loops.index_map import IndexMap
from compiler.loops.layout import Layout, blocked, row_major
from compiler.schedule.repack import repack
from tests.support.sketch import Sketch, layouts_of

LANES = 8


@pytest.fixture
def s() -> Sketch:
    return Sketch()


def layouts(s: Sketch, *outputs: Value) -> dict[Value, Layout]:
    return dict(layouts_of(s.fused(*outputs), LANES))


def test_tensors_between_convolutions_are_blocked(s: Sketch) -> None:
    x = s.input(1, 3, 6, 6)
    a = s.conv(x, 16)
    b = s.conv(a, 32)
    found = layouts(s, s.conv(b, 16))
    assert found[a] == Layout((IndexMap.parse("a, b, c, d -> a, b // 8, c, d, b % 8"),), (1, 2, 6, 6, 8), 8)
    assert found[b].shape == (1, 4, 6, 6, 8)


def test_inputs_and_outputs_are_row_major(s: Sketch) -> None:
    x = s.input(1, 16, 6, 6)
    y = s.conv(x, 16)
    z = s.conv(y, 16)
    found = layouts(s, y, z)
    assert [found[value] for value in (x, y, z)] == [row_major((1, 16, 6, 6))] * 3


def test_every_tensor_that_is_no_constant_has_a_layout(s: Sketch) -> None:
    y = s.pool(s.emit("Relu", s.conv(s.input(1, 3, 8, 8), 16)), 2, 2)
    fused = s.fused(s.emit("Exp", s.emit("Reshape", y, shape=(1, 256))))
    found = layouts_of(fused, LANES)
    touched = {value for group in fused.groups for value in (*group.inputs, *group.outputs)}
    assert touched - fused.graph.constants.keys() <= found.keys()


@pytest.mark.parametrize("viewed", [True, False])
def test_a_tensor_that_is_viewed_in_another_shape_stays_row_major(s: Sketch, *, viewed: bool) -> None:
    y = s.conv(s.input(1, 3, 4, 4), 16)
    end = s.emit("Reshape", y, shape=(1, 256)) if viewed else s.conv(y, 16)
    found = layouts(s, s.emit("Exp", end))
    assert bool(found[y].maps) is not viewed


def test_blocks_spread_through_operators_that_keep_channels(s: Sketch) -> None:
    y = s.pad(s.conv(s.input(1, 3, 6, 6), 16))  # one group
    pooled = s.pool(y, 2, 2, "MaxPool")
    relu = s.emit("Relu", s.emit("Add", pooled, s.pool(y, 2, 2)))
    found = layouts(s, s.conv(relu, 16))
    assert found[y].shape == (1, 2, 8, 8, 8)
    assert found[pooled].lanes == found[relu].lanes == 8


def test_where_channels_move_the_result_is_row_major(s: Sketch) -> None:
    y = s.conv(s.input(1, 3, 6, 6), 16)
    moved = s.emit("Transpose", y, perm=(0, 2, 3, 1))
    rows = [s.emit("Softmax", moved, axis=axis) for axis in (1, 3)]
    found = layouts(s, *rows, s.conv(y, 16))
    assert found[y].lanes == 8
    assert not found[moved].maps


@pytest.mark.parametrize(("perm", "lanes"), [((0, 3, 1, 2), 8), ((0, 1, 3, 2), 8), ((0, 2, 1, 3), 0)])
def test_transposes_that_leave_or_fill_channels_write_blocks(
    s: Sketch, perm: tuple[int, ...], lanes: int
) -> None:
    x = s.pad(s.emit("Transpose", s.input(1, 16, 16, 16), perm=perm))
    assert layouts(s, s.conv(x, 16, 3, groups=16))[x].lanes == lanes


@pytest.mark.parametrize(("channels", "blocks"), [(3, 0), (4, 1), (7, 1), (9, 2), (16, 2)])
def test_few_channels_are_not_blocked_odd_ones_are_padded(s: Sketch, channels: int, blocks: int) -> None:
    y = s.conv(s.input(1, 3, 5, 5), channels)
    found = layouts(s, s.conv(y, 16))[y]
    assert found.shape == ((1, blocks, 5, 5, 8) if blocks else (1, channels, 5, 5))
    assert found.size >= channels * 25


def test_dense_tensors_stay_row_major(s: Sketch) -> None:
    y = s.emit("MatMul", s.input(4, 16), s.weights(16, 32))
    assert not any(layout.maps for layout in layouts(s, s.emit("Softmax", y, axis=1)).values())


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_images_of_one_two_and_three_dimensions(s: Sketch, rank: int) -> None:
    y = s.conv(s.input(1, 3, *[5] * (rank - 2)), 16)
    found = layouts(s, s.conv(y, 16))[y]
    assert found.shape == (1, 2, *[5] * (rank - 2), 8)


def test_odd_groups_are_padded_one_by_one(s: Sketch) -> None:
    """Eighteen channels a group fill three blocks of eight, so no block is written by two groups."""
    y = s.conv(s.input(1, 3, 5, 5), 24)
    z = s.conv(y, 36, groups=2)
    found = layouts(s, s.conv(z, 16))
    assert (found[z].group, found[z].shape) == (18, (1, 2, 3, 5, 5, 8))


@pytest.mark.parametrize(("channels", "groups"), [(32, 2), (16, 16), (24, 24), (4, 2)])
def test_groups_of_whole_blocks_or_of_few_channels_need_no_padding(
    s: Sketch, channels: int, groups: int
) -> None:
    y = s.conv(s.input(1, channels, 5, 5), channels)
    found = layouts(s, s.conv(s.conv(y, channels, groups=groups), 16))
    assert {layout.group for layout in found.values()} == {0}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.sampled_from((4, 8, 16)), st.integers(1, 4), st.booleans())
def test_the_shape_of_a_layout_is_that_of_its_maps(
    channels: int, lanes: int, groups: int, grouped: bool
) -> None:
    shape = (2, channels * groups, 3, 5)
    layout = blocked(shape, lanes, channels if grouped and groups > 1 else 0)
    array = np.arange(np.prod(shape)).reshape(shape)
    made = array
    for index_map in layout.maps:
        made = repack(index_map, made, -1)
    assert made.shape == layout.shape
    assert layout.size == made.size
    assert sorted(made[made >= 0]) == sorted(array.reshape(-1))
