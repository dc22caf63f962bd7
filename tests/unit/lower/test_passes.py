"""What each pass does, on programs small enough to read; test_meaning.py shows that the meaning stays."""

from __future__ import annotations

import re

import pytest

from compiler.core.types import F32
from compiler.loops.annotations import PARTITION
from compiler.loops.build import Builder
from compiler.loops.ir import (
    REGISTER,
    SCRATCH,
    Alloc,
    Binary,
    Block,
    Broadcast,
    Buffer,
    For,
    ForKind,
    Func,
    If,
    Load,
    Ramp,
    Select,
    Store,
    Var,
    all_of,
    const,
    seq,
)
from compiler.lower.assign_registers import assign_registers
from compiler.lower.compact_buffers import compact_buffers
from compiler.lower.flatten_buffers import flatten_buffers
from compiler.lower.insert_prefetch import insert_prefetch
from compiler.lower.limit_unrolling import limit_unrolling
from compiler.lower.loop_kinds import settle_loop_kinds
from compiler.lower.lower_blocks import lower_blocks
from compiler.lower.order_unrolled import order_unrolled
from compiler.lower.partition_loops import partition_loops
from compiler.lower.place_allocations import place_allocations
from compiler.lower.split_fused import split_fused
from compiler.lower.vector_buffers import retype_vector_buffers
from compiler.schedule.schedule import Schedule
from tests.support.flat_loops import V4, body_of, count, func, stripped
from tests.support.gpu import SM_70
from tests.support.programs import matmul, softmax

# ---------------------------------------------------------------- place_allocations


def test_buffer_between_parallel_loops_is_workspace() -> None:
    schedule = Schedule(softmax())
    for block in schedule.blocks():
        schedule.parallel(schedule.loops(block)[0])
    placed = place_allocations(schedule.func)
    assert [item.name for item in placed.workspace] == ["M", "E", "S"]
    assert [item.name for item in placed.params] == ["X", "M", "E", "S", "Y"]
    assert placed.outputs == 1
    assert not placed.allocs


def test_buffer_inside_a_parallel_loop_is_private_and_outside_its_reduction() -> None:
    schedule = Schedule(matmul())
    schedule.reverse_compute_at("Y", schedule.loops("C")[1])
    schedule.parallel(schedule.loops("C")[0])
    placed = place_allocations(schedule.func)
    (alloc,) = (item for item in placed.body.walk() if isinstance(item, Alloc))
    assert alloc.buffer.scope == SCRATCH
    inside = [item.var.name for item in alloc.body.walk() if isinstance(item, For)]
    assert inside[0] == "C_r0"
    assert not placed.workspace


def test_a_buffer_that_is_loaded_anew_in_every_iteration_of_a_reduction_is_placed_inside() -> None:
    schedule = Schedule(matmul(4, 4, 16))
    m, n, r = schedule.loops("C")
    outer, inner = schedule.split(r, (None, 4))
    schedule.reorder(outer, m, n, inner)
    schedule.decompose_reduction("C", outer)
    schedule.cache_inplace("C", "C", "register", m)
    placed = place_allocations(schedule.func)
    allocs = [item for item in placed.body.walk() if isinstance(item, Alloc)]
    (found,) = [one for one in allocs if one.buffer.scope == REGISTER]
    around = [item.var.name for item in placed.body.walk() if isinstance(item, For) and found in item.walk()]
    assert around == [outer, m]


# ---------------------------------------------------------------- insert_prefetch

STREAM = """for c in 0..4 {prefetch = "x"}
  for m in 0..6
    for r in 0..8
      y[m] = y[m] + x[c * 128 + r * 16]
"""


def test_the_next_stretch_of_a_buffer_is_asked_for_in_equal_parts() -> None:
    done = insert_prefetch(func(STREAM, "x: f32[512]", "y: f32[6]"), V4)
    assert body_of(done) == stripped("""for c in 0..4 {prefetch = "x"}
  for m in 0..6
    for r in 0..8
      prefetch:i64(&x[c * 128], m * 24 + r * 3 + 128)
      y[m] += x[c * 128 + r * 16]""")


def test_a_request_for_less_than_a_line_moves_to_the_loop_outside() -> None:
    program = STREAM.replace("0..6", "0..64")
    done = insert_prefetch(func(program, "x: f32[512]", "y: f32[64]"), V4)
    assert "  for m in 0..64\n    prefetch:i64(&x[c * 128], m * 8 + 128)\n    for r in 0..8" in body_of(done)


def test_a_request_for_more_than_a_line_is_several() -> None:
    program = STREAM.replace("0..6", "0..2").replace("c * 128 + r * 16", "c * 512 + r * 64")
    done = insert_prefetch(func(program, "x: f32[2048]", "y: f32[2]"), V4)
    assert "prefetch:i64(&x[c * 512], m * 232 + r * 29 + 512)" in body_of(done)
    assert "prefetch:i64(&x[c * 512], m * 232 + r * 29 + 528)" in body_of(done)


def test_iterations_that_read_the_same_stretch_share_the_requests() -> None:
    program = STREAM.replace("0..4 {", "0..12 {").replace("c * 128", "c // 3 * 128")
    done = insert_prefetch(func(program, "x: f32[512]", "y: f32[6]"), V4)
    assert "prefetch:i64(&x[c // 3 * 128], c % 3 * 48 + m * 8 + 128)" in body_of(done)


def test_each_branch_asks_for_the_whole_stretch() -> None:
    loop = """for m in 0..6
  for r in 0..8
    y[m] = y[m] + x[part * 128 + r * 16]"""
    branch = "\n".join(f"    {line}" for line in loop.splitlines())
    program = f"""for c in 0..12 {{prefetch = "x"}}
  let part: i64 = c // 3
  if part < 2
{branch}
  else
{branch.replace(" m ", " n ").replace("[m]", "[n]")}"""
    done = body_of(insert_prefetch(func(program, "x: f32[512]", "y: f32[6]"), V4))
    for loop in "mn":
        assert f"prefetch:i64(&x[part * 128], c % 3 * 48 + {loop} * 8 + 128)" in done


@pytest.mark.parametrize("place", ["r * 16", "k[c] * 128 + r * 16"])
def test_nothing_is_asked_for_where_the_loop_does_not_walk_through_the_buffer(place: str) -> None:
    program = STREAM.replace("c * 128 + r * 16", place)
    before = func(program, "k: i64[4], x: f32[512]", "y: f32[6]")
    assert insert_prefetch(before, V4) == before


# ---------------------------------------------------------------- lower_blocks


def test_start_value_moves_in_front_of_the_reduction() -> None:
    lowered = flatten_buffers(lower_blocks(place_allocations(matmul(2, 3, 4))))
    assert count(lowered, Block) == 0
    assert count(lowered, If) == 0
    text = body_of(lowered)
    assert text.index("C[C_i0 * 3 + C_i1] = 0.0") < text.index("for C_r0 in 0..4")


def test_start_value_stays_when_the_buffer_is_used_inside() -> None:
    schedule = Schedule(matmul(2, 3, 4))
    loops = schedule.loops("C")
    schedule.reorder(loops[2], loops[0], loops[1])
    lowered = lower_blocks(place_allocations(schedule.func))
    text = body_of(lowered)
    assert text.index("C[C_i0_init, C_i1_init] = 0.0") < text.index("for C_r0 in 0..4")
    assert "for C_i1_init in 0..3" in text  # the spatial loops inside are repeated


def test_the_rest_of_a_reduction_has_no_start_value() -> None:
    program = func(
        """
for i in 0..8
  for r in 0..4
    block y(vi: spatial 8 = i, vq: reduce 2 = 1, vr: reduce 4 = r)
      reads x[vi * 8 + vq * 4 + vr]
      writes y[vi]
      init
        y[vi] = 0.0
      y[vi] += x[vi * 8 + vq * 4 + vr]
""",
        result="y: f32[8]",
    )
    assert "y[i] = 0.0" not in body_of(lower_blocks(program))


# ---------------------------------------------------------------- compact_buffers


def test_buffer_shrinks_to_the_window_of_a_tile() -> None:
    before = func(
        """
for i in 0..4
  alloc t: f32[64] @scratch
  for j in 0..18
    t[i * 14 + j] = x[i * 14 + j]
  for k in 0..14
    y[i * 14 + k] = t[i * 14 + k] + t[i * 14 + k + 4]
"""
    )
    assert body_of(compact_buffers(before)) == stripped(
        """
for i in 0..4
  alloc t: f32[18] @scratch
  for j in 0..18
    t[j] = x[i * 14 + j]
  for k in 0..14
    y[i * 14 + k] = t[k] + t[k + 4]
"""
    )


# ---------------------------------------------------------------- split_fused, settle_loop_kinds


def test_fused_loop_is_taken_apart() -> None:
    before = func("for f in 0..64\n  y[f % 4 * 16 + f // 4] = x[f]")
    after = body_of(split_fused(before, V4))
    assert "//" not in after
    assert "%" not in after
    assert after.count("for ") == 2


def test_a_pipeline_on_a_gpu_stays_whole() -> None:
    ahead = func("for f in 0..60\n  y[f % 6] = x[(f + 5) % 6]")
    assert split_fused(ahead, SM_70) is ahead
    assert split_fused(ahead, V4) is not ahead
    by_masks = func("for f in 0..60\n  y[f % 6] = x[(f + 3) % 4]")
    assert split_fused(by_masks, SM_70) is not by_masks


def test_parallel_loop_keeps_enough_iterations() -> None:
    few = func("for f in 0..64 parallel\n  y[f % 4 * 16 + f // 4] = x[f]")
    assert split_fused(few, V4) is few
    many = func("for f in 0..1024 parallel\n  y[f % 4 * 256 + f // 4] = x[f]", "x: f32[1024]", "y: f32[1024]")
    assert "for f_o in 0..256 parallel" in body_of(split_fused(many, V4))


def test_one_level_of_parallel_loops() -> None:
    before = func(
        "for i in 0..8 parallel\n  for j in 0..8 parallel\n    for k in 0..1\n      y[i * 8 + j + k] = 1.0"
    )
    after = settle_loop_kinds(before)
    kinds = [item.kind for item in after.body.walk() if isinstance(item, For)]
    assert kinds == [ForKind.PARALLEL, ForKind.SERIAL]


# ---------------------------------------------------------------- partition_loops


def test_padding_has_no_condition_inside() -> None:
    b = Builder("pad")
    x = b.input("x", (30,))
    inside = lambda i: all_of(i.ge(2), i.lt(32))  # noqa: E731
    program = b.finish([b.compute("y", (40,), lambda i: Select(inside(i), x[i - 2], const(0, F32)))])
    after = partition_loops(flatten_buffers(lower_blocks(program)), V4)
    assert count(after, Select) == 0
    assert count(after, For) == 3


def test_guard_of_a_split_leaves_only_the_tail_shorter() -> None:
    before = func(
        "for i in 0..5\n  for j in 0..14\n    if i * 14 + j < 60\n      y[i * 14 + j] = x[i * 14 + j]"
    )
    after = body_of(partition_loops(before, V4))
    assert "if" not in after
    assert "for i in 0..4" in after
    assert "0..4" in after.split("for i in 0..4")[1]  # 60 - 4 * 14 iterations are left


def test_parallel_loop_is_not_cut_but_chooses() -> None:
    before = func(
        "for i in 0..8 parallel\n  for j in 0..8\n    if i * 8 + j < 60\n      y[i * 8 + j] = x[i * 8 + j]"
    )
    after = partition_loops(before, V4)
    assert isinstance(after.body, For)
    assert after.body.kind is ForKind.PARALLEL
    assert isinstance(after.body.body, If)
    assert count(after, If) == 1


def test_a_fused_parallel_loop_chooses_by_the_part_that_a_condition_is_about() -> None:
    before = func(
        "for i in 0..12 parallel\n  for j in 0..8\n    if i % 3 * 8 + j < 20\n"
        "      y[i // 3 * 20 + i % 3 * 8 + j] = x[i % 3 * 8 + j]",
        "x: f32[20]",
        "y: f32[80]",
    )
    after = body_of(partition_loops(before, V4))
    assert after.count("if ") == 1, "asked once for each iteration, not for each element"
    assert re.search(r"for i in 0..12 parallel\n\s+let i_part: i64 = i % 3\n\s+if i_part < 2\n", after), after
    assert "for j_1 in 0..4" in after, "20 - 2 * 8 elements are left"


def test_unrolled_loops_are_left_alone() -> None:
    before = func("for i in 0..8 unrolled\n  if i < 5\n    y[i] = x[i]")
    assert partition_loops(before, V4) == before


def test_what_would_be_thousands_of_lines_stays_a_loop() -> None:
    nest = "for i in 0..64{}\n  for j in 0..64 unrolled\n    y[j] = x[i]"
    short, before = func("for i in 0..8 unrolled\n  y[i] = x[i]"), func(nest.format(" unrolled"))
    assert limit_unrolling(short) is short
    assert limit_unrolling(before) == func(nest.format(""))


def test_what_a_loop_does_not_change_is_asked_outside() -> None:
    before = func(
        "for i in 0..9 unrolled\n  for j in 0..4 unrolled\n    for k in 0..4 vectorized\n"
        "      if i < 7 and i + j < 9\n        y[i * 4 + k] = x[i]"
    )
    after = body_of(partition_loops(before, V4))
    assert re.search(r"if i < 7\n\s+for j in 0..4 unrolled\n\s+if i \+ j < 9\n\s+for k", after), after


def test_a_large_loop_is_cut_where_asked() -> None:
    lines = "\n".join(f"    y[i + {n}] = x[i + {n}] * x[i] + x[{n}] * x[i + 1]" for n in range(600))
    before = func(f"for i in 0..9\n  if i < 7\n{lines}")
    assert count(partition_loops(before, V4), If) == 1
    loop = before.body
    assert isinstance(loop, For)
    asked = before.replace(body=loop.replace(annotations=((PARTITION, 1),)))
    assert count(partition_loops(asked, V4), If) == 0


# ---------------------------------------------------------------- registers


TILE = """
alloc t: f32[448] @register
for w in 0..14 unrolled
  for o in 0..2 unrolled
    t[ramp(o * 224 + w * 16, 1, 16)] = x[ramp(w * 16, 1, 16)]
for w2 in 0..14 unrolled
  for o2 in 0..2 unrolled
    y[ramp(o2 * 224 + w2 * 16, 1, 16)] = t[ramp(o2 * 224 + w2 * 16, 1, 16)]
"""


def test_tile_becomes_vectors_in_registers() -> None:
    before = func(TILE, "x: f32[448]", "y: f32[448]")
    after = assign_registers(retype_vector_buffers(before), V4)
    (alloc,) = (item for item in after.body.walk() if isinstance(item, Alloc))
    assert str(alloc.buffer.dtype) == "f32x16"
    assert alloc.buffer.shape == (const(28),)
    assert alloc.buffer.scope == REGISTER
    assert "t[o * 14 + w] = x" in body_of(after)


def test_tile_in_a_serial_loop_cannot_be_registers() -> None:
    before = func(TILE.replace("0..14 unrolled", "0..14"), "x: f32[448]", "y: f32[448]")
    after = assign_registers(retype_vector_buffers(before), V4)
    (alloc,) = (item for item in after.body.walk() if isinstance(item, Alloc))
    assert alloc.buffer.scope == SCRATCH


@pytest.mark.parametrize(("step", "kept"), [(8, False), (5, True)])
def test_the_only_store_to_a_private_buffer_fills_whole_vectors_where_they_do_not_overlap(
    step: int, *, kept: bool
) -> None:
    lanes = Ramp(Var("w") * 8, const(1), 8)
    mask = Binary("lt", lanes, Broadcast(const(13), 8))
    x, y = (Buffer(name, F32, (const(size),)) for name, size in (("x", 16), ("y", 8)))
    t = Buffer("t", F32, (const(16),), SCRATCH)
    store = Store(
        t, (Ramp(Var("w") * step, const(1), 8),), Load(x, (lanes,), mask, Broadcast(const(0, F32), 8)), mask
    )
    read = Store(y, (Ramp(const(0), const(1), 8),), Load(t, (Ramp(const(step), const(1), 8),)))
    loop = For(Var("w"), const(2), store, ForKind.UNROLLED)
    before = Func("f", (x, y), Alloc(t, seq(loop, read)))
    (after,) = (
        s for s in retype_vector_buffers(before).body.walk() if isinstance(s, Store) and s.buffer.name == "t"
    )
    assert (after.mask is not None) == kept
    assert isinstance(after.value, Load)
    assert after.value.mask == mask, "memory of others is not touched"


@pytest.mark.parametrize(("row", "kept"), [(24, False), (16, True)])
def test_a_vector_that_ends_in_the_next_row_keeps_its_mask(row: int, *, kept: bool) -> None:
    """Three vectors for rows of 13: the last one holds nothing, or the beginning of the row after."""
    before = func(
        f"""
alloc t: f32[48] @scratch
for r in 0..2 unrolled
  for w in 0..3 unrolled
    t[ramp(r * {row} + w * 8, 1, 8) where ramp(w * 8, 1, 8) < broadcast(13, 8)] = x[ramp(r * 8, 1, 8)]
y[ramp(0, 1, 8)] = t[ramp({row}, 1, 8)]
""",
        "x: f32[16]",
        "y: f32[8]",
    )
    (after,) = (
        s for s in retype_vector_buffers(before).body.walk() if isinstance(s, Store) and s.buffer.name == "t"
    )
    assert (after.mask is not None) == kept


def test_the_longer_unrolled_loop_goes_outside() -> None:
    before = func(
        """
for o in 0..2 unrolled
  for w in 0..14 unrolled
    y[o * 14 + w] += x[w] * x[o + 20]
"""
    )
    order = [item.var.name for item in order_unrolled(before).body.walk() if isinstance(item, For)]
    assert order == ["w", "o"]
    assert order_unrolled(order_unrolled(before)) == order_unrolled(before)


def test_flat_index_of_strides_and_offset() -> None:
    before = func(
        "for i in 0..3\n  for j in 0..5\n    y[i, j] = x[i, j]", "x: f32[3, 5] strides [8, 1]", "y: f32[3, 5]"
    )
    after = flatten_buffers(before)
    assert "y[i * 5 + j] = x[i * 8 + j]" in body_of(after)
    assert after.params[0].shape == (const(21),)
    assert isinstance(after.body, For)
    assert not any(isinstance(item, Ramp) for item in after.body.walk())
