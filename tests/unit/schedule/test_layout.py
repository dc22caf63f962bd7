"""Index maps, transform_layout and transform_block_layout."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.core.diagnostics import UsageError
from compiler.loops.build import Builder
from compiler.loops.index_map import IndexMap
from compiler.loops.interp import interpret
from compiler.loops.ir import Func, const
from compiler.loops.printer import print_func
from compiler.loops.simplify import simplify
from compiler.schedule.errors import ScheduleError
from compiler.schedule.layout_changes import all_layouts, layouts_of
from compiler.schedule.repack import _by_indices, repack, unpack
from compiler.schedule.schedule import Schedule
from tests.support.schedules import checked, conv_direct, padded_conv_pool, shape_of


def row() -> Func:
    b = Builder("row")
    x = b.input("x", (20,))
    return b.finish([b.compute("y", (20,), lambda i: x[i] * 2.0)])


# ---------------------------------------------------------------- index maps

MAPS = [
    ("n, c, h, w -> n, c // 16, h, w, c % 16", (1, 50, 3, 2), (1, 4, 3, 2, 16)),
    ("k, c, r, s -> k // 8, c // 4, r, s, c % 4, k % 8", (16, 6, 3, 3), (2, 2, 3, 3, 4, 8)),
    ("a, b -> a * 8 + b", (4, 8), (32,)),
    ("a, b -> b, a", (3, 5), (5, 3)),
    ("a -> a // 12, a // 4 % 3, a % 4", (30,), (3, 3, 4)),
    ("a, b -> (a // 4) * 8 + b, a % 4", (10, 8), (24, 4)),
    ("n, c -> n, c // 16, c % 16", (2, 8), (2, 1, 16)),
    ("a -> a % 4, a // 4", (3,), (4, 1)),
]


@pytest.mark.parametrize(("text", "shape", "physical"), MAPS)
def test_index_map_shape_text_inverse_and_arrays(
    text: str, shape: tuple[int, ...], physical: tuple[int, ...]
) -> None:
    index_map = IndexMap.parse(text)
    assert IndexMap.parse(index_map.text) == index_map
    assert index_map.shape(shape) == physical
    assert index_map.is_padded(shape) == (np.prod(physical) != np.prod(shape))
    array = np.arange(1, 1 + np.prod(shape), dtype=np.int64).reshape(shape)
    packed = repack(index_map, array, -1)
    assert packed.shape == physical
    assert sorted(packed[packed != -1]) == sorted(array.flat)
    inverse = index_map.inverse(shape)
    for place in np.ndindex(*physical):
        if packed[place] != -1:
            back = [simplify(item) for item in inverse.apply([const(number) for number in place])]
            assert array[tuple(int(item.value) for item in back)] == packed[place]
    np.testing.assert_array_equal(unpack(index_map, packed, shape), array)


def test_index_maps_are_made_by_splitting_fusing_and_reordering() -> None:
    plain = IndexMap.identity(3)
    assert plain.split(1, 8).text == "a, b, c -> a, b // 8, b % 8, c"
    assert plain.split(1, 8, to=3) == IndexMap.parse("a, b, c -> a, b // 8, c, b % 8")
    assert plain.fuse(1, (5, 7)) == IndexMap.parse("a, b, c -> a, b * 7 + c")
    assert plain.fuse(0, (4, 1, 7)) == IndexMap.parse("a, b, c -> a * 7 + c")
    assert plain.fuse(3, ()).text == "a, b, c -> a, b, c, 0"
    assert plain.reordered((2, 0, 1)).split(0, 4).text == "a, b, c -> c // 4, c % 4, a, b"


def test_both_ways_of_repacking_agree() -> None:
    array = np.arange(7 * 6 * 5.0).reshape(7, 6, 5)
    index_map = IndexMap.parse("a, b, c -> b // 4, a // 2, c, a % 2, b % 4")
    np.testing.assert_array_equal(repack(index_map, array, 0), _by_indices(index_map, array, 0))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a, b", "no '->'"),
        ("a, a -> a", "different names"),
        ("a -> b", "'b' is not an input"),
        ("a -> a ** 2", "none of name, number"),
        ("a -> a // 0", "positive number"),
        ("a -> __import__('os')", "none of name, number"),
        ("a -> a[", "not expressions"),
    ],
)
def test_texts_that_are_no_maps(text: str, why: str) -> None:
    with pytest.raises(UsageError) as error:
        IndexMap.parse(text)
    assert why in error.value.why


@pytest.mark.parametrize(
    ("text", "shape"),
    [("a, b -> a + b", (2, 2)), ("a -> a // 2", (4,)), ("a, b -> a", (2, 2)), ("a -> a % 2", (4,))],
)
def test_maps_that_lose_something(text: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="not invertible"):
        IndexMap.parse(text).inverse(shape)


# ---------------------------------------------------------------- transform_layout


def test_transform_layout_before_and_after() -> None:
    before = row()
    s = Schedule(before)
    s.transform_layout("x", "i -> i // 8, i % 8")
    text = print_func(s.func)
    assert "x: f32[3, 8]" in text
    assert "y[vy_i0] = x[vy_i0 // 8, vy_i0 % 8] * 2.0" in text
    assert "reads x[vy_i0 // 8, vy_i0 % 8]" in text
    checked(before, s)


def test_layouts_are_recorded_for_the_pipeline() -> None:
    s = Schedule(conv_direct(c=3, k=5))
    s.transform_layout("W", "k, c, r, s -> k // 4, c, r, s, k % 4")
    s.transform_layout("W", "a, b, c, d, e -> b, a, c, d, e")
    first, second = layouts_of(s.func, "W")
    assert (first.shape, first.pad, first.padded) == ((5, 3, 3, 3), 0.0, True)
    assert second.shape == (2, 3, 3, 3, 4)
    assert list(all_layouts(s.func)) == ["W"]
    weights = np.ones((5, 3, 3, 3), np.float32)
    for layout in layouts_of(s.func, "W"):
        weights = repack(layout.index_map, weights, layout.pad or 0)
    assert weights.shape == shape_of(s.func, "W")
    checked(conv_direct(c=3, k=5), s)


@pytest.mark.parametrize("pad", [None, 0.0])
@pytest.mark.parametrize("channels", [3, 4, 7])
def test_every_buffer_of_a_chain(channels: int, pad: float | None) -> None:
    before = padded_conv_pool(c=channels, k=channels)
    s = Schedule(before)
    for buffer in ("X", "P", "T", "R", "Z"):
        s.transform_layout(buffer, "c, h, w -> c // 4, h, w, c % 4", pad)
    s.transform_layout("W", "k, c, r, s -> c // 2, r, s, k, c % 2", pad)
    checked(before, s)


def test_a_pad_value_is_written() -> None:
    before = row()
    s = Schedule(before)
    (fill,) = s.transform_layout("y", "i -> i // 8, i % 8", 7.0)
    assert fill == "y_pad0"
    assert interpret(s.func, {"x": np.ones(20, np.float32)})["y"][2, 4:].tolist() == [7.0] * 4
    checked(before, s)


def test_fused_layouts() -> None:
    before = conv_direct(k=4, h=3, w=5)
    s = Schedule(before)
    s.transform_layout("T", "n, k, h, w -> n * 4 + k, h * 5 + w")
    checked(before, s)


@pytest.mark.parametrize(
    ("buffer", "text", "what"),
    [
        ("z", "i -> i", "no buffer 'z'"),
        ("x", "i, j -> i, j", "the index map has 2 inputs for 1 dimensions"),
        ("x", "i -> i // 2", "the index map is not invertible"),
        ("x", "i -> i - 3", "not invertible"),
        ("x", "i ->", "is not an index map"),
    ],
)
def test_transform_layout_refusals(buffer: str, text: str, what: str) -> None:
    s = Schedule(row())
    with pytest.raises(ScheduleError, match=what):
        s.transform_layout(buffer, text)
    assert s.func == row()


# ---------------------------------------------------------------- transform_block_layout


def test_transform_block_layout_before_and_after() -> None:
    before = row()
    s = Schedule(before)
    assert s.transform_block_layout("y", "i -> i // 5, i % 5") == ("y_i0_0", "y_i0_1")
    assert (
        print_func(s.func)
        .split("{\n", 1)[-1]
        .endswith(
            """  for y_i0_0 in 0..4
    for y_i0_1 in 0..5
      block y(vy_i0_0: spatial 4 = y_i0_0, vy_i0_1: spatial 5 = y_i0_1)
        reads x[vy_i0_0 * 5 + vy_i0_1]
        writes y[vy_i0_0 * 5 + vy_i0_1]
        y[vy_i0_0 * 5 + vy_i0_1] = x[vy_i0_0 * 5 + vy_i0_1] * 2.0
"""
        )
    )
    checked(before, s)


def test_a_loop_of_one_iteration_between_its_loops_goes() -> None:
    b = Builder("f")
    x = b.input("x", (7, 6))
    before = b.finish([b.reduce("y", (7, 1), (6,), lambda i, _, r: x[i, r])])
    s = Schedule(before)
    copy = s.cache_write("y", "y", "register")
    s.transform_block_layout(copy, "i, u -> i // 2, i % 2")
    assert [s.loop(name).extent for name in s.loops(copy)] == [const(4), const(2)]
    checked(before, s)


def test_tiles_that_stick_out_get_a_predicate() -> None:
    before = row()
    s = Schedule(before)
    s.transform_block_layout("y", "i -> i // 8, i % 8")
    assert s.block("y").predicate is not None
    checked(before, s)


def test_tiles_that_stick_out_into_padding_do_not() -> None:
    before = row()
    s = Schedule(before)
    for buffer in ("x", "y"):
        s.transform_layout(buffer, "i -> i // 8, i % 8")
    s.transform_block_layout("y", "i -> i // 8, i % 8")
    assert s.block("y").predicate is None
    checked(before, s)


def test_promised_padding_is_not_overwritten() -> None:
    before = row()
    s = Schedule(before)
    s.transform_layout("x", "i -> i // 8, i % 8")
    s.transform_layout("y", "i -> i // 8, i % 8", 0.0)
    s.transform_block_layout("y", "i -> i // 8, i % 8")
    assert s.block("y").predicate is not None
    checked(before, s)


def test_a_reduction_runs_over_zeros_only() -> None:
    def scheduled(pad: float | None) -> Schedule:
        s = Schedule(conv_direct(c=3))
        s.transform_layout("X", "n, c, h, w -> n, c // 4, h, w, c % 4", pad)
        s.transform_layout("W", "k, c, r, s -> k, c // 4, r, s, c % 4")
        s.transform_block_layout("T", "n, k, h, w, c, r, s -> n, k, h, w, c // 4, r, s, c % 4")
        return s

    open_padding, zeros = scheduled(None), scheduled(0.0)
    assert open_padding.block("T").predicate is not None
    assert zeros.block("T").predicate is None
    checked(conv_direct(c=3), open_padding)
    checked(conv_direct(c=3), zeros)


def test_transform_block_layout_refusals() -> None:
    s = Schedule(conv_direct())
    with pytest.raises(ScheduleError, match="mixes spatial and reduction variables"):
        s.transform_block_layout("T", "n, k, h, w, c, r, s -> n, k, h, w * 3 + s, c, r")
    s.split("T_i3", (None, 2))
    with pytest.raises(ScheduleError, match="its loops were split or fused") as error:
        s.transform_block_layout("T", "n, k, h, w, c, r, s -> n, k, h, w, s, c, r")
    assert "before splitting and fusing" in error.value.hint
    s = Schedule(conv_direct())
    s.compute_at("T", "epilogue_i1")
    with pytest.raises(ScheduleError, match="transform_block_layout epilogue"):
        s.transform_block_layout("epilogue", "n, k, h, w -> n, k // 2, h, w, k % 2")
    s = Schedule(conv_direct())
    s.parallel("epilogue_i1")
    with pytest.raises(ScheduleError, match="loop epilogue_i1 is already parallel"):
        s.transform_block_layout("epilogue", "n, k, h, w -> n, k // 2, h, w, k % 2")
