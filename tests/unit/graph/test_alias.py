"""Joins without copies: which parts may lie inside the result, and where."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from compiler.graph.alias import Alias, find_aliases, is_in_place
from compiler.graph.fuse import FusedGraph
from compiler.graph.ir import Value
from compiler.loops.index_map import IndexMap
from compiler.loops.layout import Layout, blocked, row_major
from compiler.schedule.repack import repack
from tests.support.sketch import Sketch, layouts_of

LANES = 8


@pytest.fixture
def s() -> Sketch:
    return Sketch()


def aliases_of(s: Sketch, *outputs: Value) -> tuple[FusedGraph, dict[Value, Alias]]:
    fused = s.fused(*outputs)
    return fused, find_aliases(fused, layouts_of(fused, LANES))


def joins(fused: FusedGraph, aliases: dict[Value, Alias]) -> list[bool]:
    """For every concatenation whether nothing is left to do."""
    return [is_in_place(group, aliases) for group in fused.groups if group.nodes[-1].op.name == "Concat"]


def assert_in_place(
    fused: FusedGraph, aliases: dict[Value, Alias], layouts: Mapping[Value, Layout] | None = None
) -> None:
    """Writing each part at its offset gives the memory of the joined tensor."""
    layouts = layouts or layouts_of(fused, LANES)
    source = np.random.default_rng(0)
    for group in fused.groups:
        if not is_in_place(group, aliases):
            continue
        node = group.nodes[0]
        parts = [source.standard_normal(value.type.shape) for value in node.inputs]
        joined = np.concatenate(parts, node.attrs.integer("axis"))
        wanted = physical(joined, layouts[node.output].maps)
        memory = np.full(wanted.size, np.nan)
        for value, part in zip(node.inputs, parts, strict=True):
            content = physical(part, layouts[value].maps).reshape(-1)
            memory[aliases[value].offset // 4 :][: content.size] = content
        np.testing.assert_array_equal(memory.reshape(wanted.shape), wanted)


def physical(array: np.ndarray, maps: tuple[IndexMap, ...]) -> np.ndarray:
    for index_map in maps:
        array = repack(index_map, array, 0)
    return array


def test_blocked_parts_that_meet_at_whole_blocks_need_no_copy(s: Sketch) -> None:
    x = s.input(1, 3, 5, 5)
    a, b, c = s.conv(x, 16), s.conv(x, 8), s.conv(x, 24)
    fused, found = aliases_of(s, s.conv(s.emit("Concat", a, b, c, axis=1), 8))
    joined = fused.groups[3].outputs[0]
    assert found == {a: Alias(joined, 0), b: Alias(joined, 16 * 25 * 4), c: Alias(joined, 24 * 25 * 4)}
    assert joins(fused, found) == [True]
    assert_in_place(fused, found)


@pytest.mark.parametrize(("sizes", "fits"), [((8, 5), True), ((5, 8), False), ((12, 8), False)])
def test_only_the_last_part_may_end_inside_a_block(s: Sketch, sizes: tuple[int, int], *, fits: bool) -> None:
    x = s.input(1, 3, 5, 5)
    parts = [s.conv(x, size) for size in sizes]
    fused, found = aliases_of(s, s.conv(s.emit("Concat", *parts, axis=1), 8))
    assert joins(fused, found) == [fits]
    assert bool(found) is fits
    assert_in_place(fused, found)


@pytest.mark.parametrize(("sizes", "fits"), [((24, 12), True), ((12, 36), True), ((18, 18), False)])
def test_parts_padded_in_groups_meet_at_whole_groups(
    s: Sketch, sizes: tuple[int, int], *, fits: bool
) -> None:
    parts = [s.conv(s.input(1, 3, 5, 5), size) for size in sizes]
    fused = s.fused(s.conv(s.emit("Concat", *parts, axis=1), 8))
    group = next(group for group in fused.groups if group.nodes[0].op.name == "Concat")
    values = (*parts, group.outputs[0])
    layouts = {value: row_major(value.type.shape) for item in fused.groups for value in item.outputs}
    layouts |= {v: blocked(v.type.shape, LANES, 12) for v in values if v.type.shape[1] % 12 == 0}
    found = find_aliases(fused, layouts)
    assert bool(found) is fits
    assert_in_place(fused, found, layouts)


def test_row_major_parts_of_the_outermost_axis_need_no_copy(s: Sketch) -> None:
    a, b = s.emit("MatMul", s.input(3, 4), s.weights(4, 7)), s.emit("Exp", s.input(5, 7))
    softmax = s.emit("Softmax", b, axis=1)
    fused, found = aliases_of(s, s.emit("Concat", a, softmax, axis=0))
    joined = fused.graph.outputs[0]
    assert found == {a: Alias(joined, 0), softmax: Alias(joined, 21 * 4)}
    assert_in_place(fused, found)


def test_an_inner_axis_is_copied(s: Sketch) -> None:
    a, b = s.emit("Softmax", s.input(3, 4), axis=1), s.emit("Softmax", s.input(3, 5), axis=1)
    fused, found = aliases_of(s, s.emit("Concat", a, b, axis=1))
    assert found == {}
    assert joins(fused, found) == [False]


def test_an_inner_axis_below_axes_of_one_step_is_in_place(s: Sketch) -> None:
    a, b = s.emit("Softmax", s.input(1, 3, 4), axis=2), s.emit("Softmax", s.input(1, 2, 4), axis=2)
    fused, found = aliases_of(s, s.emit("Concat", a, b, axis=1))
    assert [item.offset for item in found.values()] == [0, 12 * 4]
    assert_in_place(fused, found)


def test_a_batch_of_two_is_copied(s: Sketch) -> None:
    x = s.input(2, 3, 5, 5)
    fused, found = aliases_of(s, s.conv(s.emit("Concat", s.conv(x, 8), s.conv(x, 8), axis=1), 8))
    assert found == {}
    assert joins(fused, found) == [False]


def test_a_part_that_is_used_twice_is_copied(s: Sketch) -> None:
    y = s.conv(s.input(1, 3, 5, 5), 8)
    _, found = aliases_of(s, s.conv(s.emit("Concat", y, y, axis=1), 8))
    assert found == {}


def test_a_part_of_two_joins_lies_in_the_first(s: Sketch) -> None:
    x = s.input(1, 3, 5, 5)
    shared, other = s.conv(x, 8), s.conv(x, 8)
    first = s.emit("Concat", shared, other, axis=1)
    second = s.emit("Concat", shared, s.conv(x, 16), axis=1)
    fused, found = aliases_of(s, s.conv(first, 8), s.conv(second, 8))
    assert joins(fused, found) == [True, False]
    assert found[shared] == Alias(first, 0)
    assert_in_place(fused, found)


def test_joins_of_joins(s: Sketch) -> None:
    x = s.input(1, 3, 5, 5)
    inner = s.emit("Concat", s.conv(x, 8), s.conv(x, 16), axis=1)
    outer = s.emit("Concat", s.conv(x, 8), inner, axis=1)
    fused, found = aliases_of(s, s.conv(outer, 8), s.conv(inner, 8))
    assert joins(fused, found) == [True, True]
    assert found[inner] == Alias(outer, 8 * 25 * 4)
    assert_in_place(fused, found)


@pytest.mark.parametrize("kind", ["input", "constant", "output", "view"])
def test_parts_whose_memory_is_decided_elsewhere_are_copied(s: Sketch, kind: str) -> None:
    own = s.emit("Softmax", s.input(2, 3), axis=1)
    made = s.emit("Softmax", s.input(4, 3), axis=1)
    part = {
        "input": s.input(4, 3),
        "constant": s.weights(4, 3),
        "output": made,
        "view": s.emit("Reshape", s.emit("Softmax", s.input(12), axis=0), shape=(4, 3)),
    }[kind]
    outputs = [s.emit("Concat", own, part, axis=0), *([made] if kind == "output" else [])]
    fused, found = aliases_of(s, *outputs)
    assert part not in found
    assert joins(fused, found) == [False]


def test_a_part_that_is_viewed_is_copied(s: Sketch) -> None:
    a, b = s.emit("Softmax", s.input(2, 3), axis=1), s.emit("Softmax", s.input(4, 3), axis=1)
    joined = s.emit("Concat", a, b, axis=0)
    view = s.emit("Reshape", a, shape=(6,))
    _, found = aliases_of(s, joined, s.emit("Softmax", view, axis=0))
    assert a not in found
