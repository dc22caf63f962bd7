"""Loops that become vectors: pieces, masks, sums by lanes; checked is what the pass promises."""

from __future__ import annotations

import pytest

from compiler.loops.ir import (
    If,
    Load,
    Shuffle,
    Store,
)
from compiler.loops.verify import problems_of
from compiler.lower.accumulate import accumulate_in_vectors
from compiler.lower.vector_buffers import retype_vector_buffers
from compiler.lower.vectorize import vectorize
from compiler.targets import get_target
from tests.support.flat_loops import BASE, V4, body_of, count, func


@pytest.mark.parametrize(("extent", "pieces"), [(16, ["16"]), (32, ["16"]), (64, ["16"]), (20, ["16", "4"])])
def test_pieces_fit_registers(extent: int, pieces: list[str]) -> None:
    before = func(f"for i in 0..{extent} vectorized\n  y[i] = x[i] * 2.0")
    after = vectorize(before, V4)
    lanes = [str(item.indices[0].dtype.lanes) for item in after.body.walk() if isinstance(item, Store)]
    assert lanes == pieces


def test_rest_is_masked_where_there_are_masks() -> None:
    before = func("for i in 0..21 vectorized\n  y[i] = x[i] * 2.0")
    masked = [item for item in vectorize(before, V4).body.walk() if isinstance(item, Store) and item.mask]
    assert len(masked) == 1
    parts = [
        item.indices[0].dtype.lanes for item in vectorize(before, BASE).body.walk() if isinstance(item, Store)
    ]
    assert parts == [4, 1]  # five vectors of 4 in a loop, then one element


def test_strides_and_reversals() -> None:
    text = body_of(vectorize(func("for i in 0..16 vectorized\n  y[i] = x[i * 3] + x[20 - i]"), V4))
    assert "x[ramp(0, 3, 16)]" in text
    assert "x[ramp(20, -1, 16)]" in text


def test_index_with_division_is_computed_lane_by_lane() -> None:
    after = vectorize(func("for i in 0..16 vectorized\n  y[i] = x[i // 3]"), V4)
    assert count(after, Shuffle) == 1


def test_lanes_that_agree_by_division_stay_a_scalar_in_a_cast() -> None:
    """The last two lanes of 10 read one element: the cast of it is no vector of one lane."""
    before = func("for i in 0..10 vectorized\n  y[i] = max(f16(x[i // 2]), f16(0.0))", result="y: f16[10]")
    after = vectorize(before, get_target("cpu:x86-64-v3").facts)
    assert problems_of(after, "lowered") == ()
    assert "f16(x[4])" in body_of(after)


def test_a_buffer_holds_the_vectors_that_are_stored_to_it() -> None:
    """Rows of 23 elements in steps of 24: the last vector of the last row is one element longer."""
    before = func(
        "alloc t: f32[95] @scratch\nfor i in 0..4\n  for j in 0..3\n"
        "    t[ramp(i * 24 + j * 8, 1, 8) where ramp(j * 8, 1, 8) < broadcast(23, 8)] = broadcast(1.0, 8)\n"
        "y[0] = t[94]"
    )
    after = retype_vector_buffers(before)
    assert problems_of(after, "lowered") == ()
    assert "alloc t: f32[96] @scratch" in body_of(after)
    assert " where " not in body_of(after)


def test_condition_becomes_a_mask() -> None:
    after = vectorize(func("for i in 0..16 vectorized\n  if i < 11\n    y[i] = x[i]"), V4)
    assert count(after, If) == 0
    (store,) = (item for item in after.body.walk() if isinstance(item, Store))
    assert store.mask is not None
    loads = [item for item in after.body.walk() if isinstance(item, Load)]
    assert all(item.mask is None for item in loads)  # x has 64 elements: reading all 16 is safe


def test_a_condition_on_whole_vectors_is_no_mask() -> None:
    """The rest behind 44 elements begins at a vector of four, in the middle of a group of eight."""
    text = (
        "for g in 0..8\n  for i in 0..8 vectorized\n    if g * 8 + i < 44\n      y[g * 8 + i] = x[g * 8 + i]"
    )
    after = vectorize(func(text), BASE)
    assert count(after, If) > 0
    assert all(item.mask is None for item in after.body.walk() if isinstance(item, Store))


def test_a_condition_on_data_is_no_mask_of_loads() -> None:
    body = "for i in 0..60 vectorized\n  y[i] = select(x[i] < 0.0, select(x[i] < 1.0, x[i], 2.0), x[i] * 2.0)"
    after = vectorize(func(body, "x: f32[60]", "y: f32[60]"), V4)
    masks = {item.mask for item in after.body.walk() if isinstance(item, Load)}
    assert len(masks) == 2, "none, and the lanes of the rest"


def test_reduction_keeps_one_accumulator_per_lane() -> None:
    before = func("y[0] = 0.0\nfor k in 0..3\n  for i in 0..16 vectorized\n    y[0] += x[k * 16 + i]")
    after = body_of(accumulate_in_vectors(vectorize(before, V4)))
    assert "y_lanes[0] += x[ramp(k * 16, 1, 16)]" in after
    assert after.index("for k in 0..3") < after.index("y[0] += ")  # lanes: combined behind the loop


def test_the_last_vector_of_a_row_joins_the_accumulator() -> None:
    """What is shorter than a vector is added to the lanes, which are combined once."""
    before = func(
        """
        for k in 0..3
          for l in 0..16 vectorized
            y[0] = max(y[0], x[k * 16 + l])
        for m in 0..13 vectorized
          y[0] = max(y[0], x[m + 48])
        """,
        result="y: f32[1]",
    )
    after = body_of(accumulate_in_vectors(vectorize(before, V4)))
    assert after.count("y[0] = ") == 1
    assert after.count("y_lanes[0] = ") == 3  # start, whole vectors, the shorter one


def test_several_vectors_behind_a_loop_join_the_accumulator() -> None:
    before = func(
        """
        for k in 0..2
          for l in 0..16 vectorized
            y[0] = max(y[0], x[k * 16 + l])
        for m in 0..16 vectorized
          y[0] = max(y[0], x[m + 32])
        for n in 0..13 vectorized
          y[0] = max(y[0], x[n + 48])
        """,
        result="y: f32[1]",
    )
    after = body_of(accumulate_in_vectors(vectorize(before, V4)))
    assert after.count("y[0] = ") == 1
    assert after.count("y_lanes[0] = ") == 4
