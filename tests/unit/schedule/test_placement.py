"""compute_at and reverse_compute_at: what moves where, what is refused, and that the numbers stay."""

from __future__ import annotations

import pytest

from compiler.loops.build import Builder
from compiler.loops.ir import Func, Select, all_of, const, maximum
from compiler.loops.printer import print_func
from compiler.loops.text import parse_func
from compiler.loops.verify import problems_of
from compiler.schedule.errors import ScheduleError
from compiler.schedule.schedule import Schedule
from tests.support.schedules import checked, conv_direct, padded_conv_pool


def extents(s: Schedule, loops: tuple[str, ...]) -> list[int]:
    return [int(item.value) for item in (s.loop(name).extent for name in loops)]  # type: ignore[attr-defined]


def convolution_schedule(func: Func, lanes: int, vectors: int, rows: int, tail: str = "guard") -> Schedule:
    """The direct convolution in blocked layouts with a register tile of `rows` x `vectors` x `lanes`."""
    s = Schedule(func)
    blocked = f"n, c, h, w -> n, c // {lanes}, h, w, c % {lanes}"
    for buffer in ("X", "T", "Y"):
        s.transform_layout(buffer, blocked)
    s.transform_layout("W", f"k, c, r, s -> k // {lanes}, c, r, s, k % {lanes}")
    s.transform_layout("B", f"k -> k // {lanes}, k % {lanes}")
    n, ko, h, w, lane, c, r, q = s.transform_block_layout(
        "T", f"n, k, h, w, c, r, s -> n, k // {lanes}, h, w, k % {lanes}, c, r, s"
    )
    s.transform_block_layout("epilogue", f"n, k, h, w -> n, k // {lanes}, h, w, k % {lanes}")
    k_outer, k_inner = s.split(ko, (None, vectors))
    w_outer, w_inner = s.split(w, (None, rows), tail=tail)
    s.reorder(n, k_outer, h, w_outer, c, r, q, w_inner, k_inner, lane)
    s.set_scope("T", "register")
    s.reverse_compute_at("epilogue", w_outer)
    s.decompose_reduction("T", c)
    s.vectorize(lane)
    s.unroll(k_inner)
    s.unroll(w_inner)
    s.parallel(s.fuse(s.fuse(n, k_outer), h))
    return s


def test_convolution_epilogue_gets_loops_of_the_tile() -> None:
    before = conv_direct(c=4, k=64, h=1, w=28, r=1)
    s = convolution_schedule(before, lanes=16, vectors=2, rows=14)
    loops = s.loops("epilogue")
    assert extents(s, loops[-3:]) == [2, 14, 16]
    assert len(loops) == 2 + 3
    assert s.block("epilogue").predicate is None
    text = print_func(s.func)
    assert "vepilogue_i3: spatial 28 = T_i3_0 * 14 + epilogue_i3" in text
    assert "vepilogue_i1_1: spatial 16 = epilogue_i1_1" in text
    checked(before, s)


def test_iterations_in_which_the_producer_is_left_out_are_left_out() -> None:
    """Tiles larger than a loop of one iteration: the box of what is made does not tell which of them ran."""
    b = Builder("f")
    x = b.input("x", (1, 5))
    p = b.local("p", (1, 5))
    b.write("p", p, (1, 5), lambda _, j: ((0, j), x[0, j] * 2.0))
    before = b.finish([b.compute("y", (1, 5), lambda i, j: p[i, j] + 1.0)])
    s = Schedule(before)
    *_, inner, row = s.tile(("p_i0", "p_i1"), (3, 3))
    s.reverse_compute_at("y", row)
    text = print_func(s.func)
    assert f"{inner} < 1" in text[text.index("block y") :]
    checked(before, s)


@pytest.mark.parametrize("tail", ["guard", "shift", "partition"])
@pytest.mark.parametrize(
    ("k", "w", "stride", "dilation"),
    [(8, 6, 1, 1), (7, 7, 2, 1), (11, 13, 1, 2), (5, 5, 3, 2), (12, 8, 2, 1)],
)
def test_convolution_with_tails(k: int, w: int, stride: int, dilation: int, tail: str) -> None:
    before = conv_direct(c=3, k=k, h=3, w=w, stride=stride, dilation=dilation)
    if tail == "partition" and w % 4:
        return
    s = convolution_schedule(before, lanes=4, vectors=2, rows=4, tail=tail)
    checked(before, s)


def test_channels_that_do_not_fill_the_lanes_run_over_padding() -> None:
    s = convolution_schedule(conv_direct(k=7), lanes=4, vectors=2, rows=4)
    assert "where" not in next(line for line in print_func(s.func).splitlines() if "block T" in line)


# ---------------------------------------------------------------- compute_at


def test_compute_at_gives_the_box_that_a_window_reads() -> None:
    before = padded_conv_pool(h=8, w=8, size=2, step=2)
    s = Schedule(before)
    assert s.compute_at("R", "Z_i1") == ("R_i1", "R_i2")
    assert extents(s, ("R_i1", "R_i2")) == [2, 8]
    assert s.block("R").predicate is None
    s.compute_at("T", "R_i1")
    assert extents(s, s.loops("T")[-4:]) == [8, 2, 3, 3]
    s.compute_at("P", "T_i2")
    assert extents(s, s.loops("P")[-3:]) == [2, 3, 3]
    checked(before, s)


def test_compute_at_overlapping_windows_are_computed_again() -> None:
    before = padded_conv_pool(h=7, w=7, size=3, step=2)
    s = Schedule(before)
    outer, _ = s.split("Z_i1", (None, 2))
    s.compute_at("R", outer)
    assert extents(s, s.loops("R")[-2:]) == [5, 7]
    checked(before, s)


def test_compute_at_clips_by_a_predicate_where_tiles_stick_out() -> None:
    before = padded_conv_pool(h=7, w=7, size=3, step=1)  # Z is 5 x 5
    s = Schedule(before)
    outer, _ = s.split("Z_i1", (None, 4))
    s.compute_at("R", outer)
    assert s.block("R").predicate is not None
    checked(before, s)


def test_compute_at_before_the_text_and_after() -> None:
    b = Builder("f")
    x = b.input("x", (9,))
    p = b.compute("p", (9,), lambda i: x[i] * 2.0)
    before = b.finish([b.compute("y", (4,), lambda i: p[i * 2] + p[i * 2 + 1])])
    s = Schedule(before)
    s.compute_at("p", "y_i0")
    assert print_func(s.func).split("local", 1)[1] == (
        """ p: f32[9]
  for y_i0 in 0..4
    for p_i0 in 0..2
      block p(vp_i0: spatial 9 = y_i0 * 2 + p_i0)
        reads x[vp_i0]
        writes p[vp_i0]
        p[vp_i0] = x[vp_i0] * 2.0
    block y(vy_i0: spatial 4 = y_i0)
      reads p[vy_i0 * 2], p[vy_i0 * 2 + 1]
      writes y[vy_i0]
      y[vy_i0] = p[vy_i0 * 2] + p[vy_i0 * 2 + 1]
"""
    )
    checked(before, s)


def test_compute_at_a_padded_interior_under_the_next_convolution() -> None:
    """The epilogue writes XP[h + 1, w + 1]; it moves under the consumer, the border blocks stay."""
    b = Builder("two")
    x, w = b.input("X", (4, 4)), b.constant("W", (3, 3))
    xp = b.local("XP", (6, 6))
    b.write("interior", xp, (4, 4), lambda h, w: ((h + 1, w + 1), maximum(x[h, w], 0.0)))
    for row in (0, 5):
        b.write("row", xp, (6,), lambda w, row=row: ((row, w), 0.0))
        b.write("column", xp, (4,), lambda h, row=row: ((h + 1, row), 0.0))
    y = b.reduce("Y", (4, 4), (3, 3), lambda h, k, r, s: xp[h + r, k + s] * w[r, s])
    before = b.finish([y])
    s = Schedule(before)
    s.compute_at("interior", "Y_i0")
    assert extents(s, s.loops("interior")[-2:]) == [3, 4]
    checked(before, s)


def test_compute_at_under_fused_loops_with_a_tail() -> None:
    before = conv_direct(k=3, h=5, w=7)
    s = Schedule(before)
    outer, inner = s.split(s.fuse("epilogue_i2", "epilogue_i3"), (None, 4))
    s.compute_at("T", inner)
    assert s.loops("T")[-3:] == ("T_r0", "T_r1", "T_r2")
    checked(before, s)
    s = Schedule(before)
    outer, inner = s.split(s.fuse("epilogue_i2", "epilogue_i3"), (None, 4))
    s.compute_at("T", outer)
    checked(before, s)


# ---------------------------------------------------------------- reverse_compute_at


def test_reverse_compute_at_pool_with_whole_windows() -> None:
    before = padded_conv_pool(h=8, w=8, size=2, step=2)
    s = Schedule(before)
    outer, _ = s.split("R_i1", (None, 4))
    s.reverse_compute_at("Z", outer)
    assert extents(s, s.loops("Z")[-4:]) == [2, 4, 2, 2]
    checked(before, s)


def test_reverse_compute_at_refuses_shared_windows() -> None:
    s = Schedule(padded_conv_pool(h=8, w=8, size=3, step=2))
    outer, _ = s.split("R_i1", (None, 4))
    with pytest.raises(ScheduleError) as error:
        s.reverse_compute_at("Z", outer)
    assert "reads windows of R that two iterations of R_i1_0 share" in str(error.value)
    assert "compute_at on the producer" in error.value.hint


def test_reverse_compute_at_of_a_row_reduction_and_its_users() -> None:
    """Softmax: the sum of a row is complete in the row's iteration."""
    b = Builder("softmax")
    x = b.input("x", (5, 6))
    top = b.reduce("top", (5,), (6,), lambda i, j: x[i, j], "max")
    shifted = b.compute("shifted", (5, 6), lambda i, j: x[i, j] - top[i])
    total = b.reduce("total", (5,), (6,), lambda i, j: shifted[i, j])
    before = b.finish([b.compute("y", (5, 6), lambda i, j: shifted[i, j] + total[i])])
    s = Schedule(before)
    assert s.reverse_compute_at("shifted", "top_i0") == ("shifted_i1",)
    assert s.reverse_compute_at("total", "top_i0") == ("total_r0",)
    assert s.reverse_compute_at("y", "top_i0") == ("y_i1",)
    assert len([line for line in print_func(s.func).splitlines() if line.startswith("  for")]) == 1
    checked(before, s)


def test_moving_one_half_of_a_partitioned_loop_moves_only_that_half() -> None:
    before = conv_direct(k=2, h=4, w=7)
    s = Schedule(before)
    s.split("epilogue_i3", (None, 4), tail="partition")
    s.reverse_compute_at("epilogue", "T_i1")
    assert len(list(s.func.blocks())) == len(list(before.blocks())) + 1
    checked(before, s)


# ---------------------------------------------------------------- refusals

REFUSALS = [
    ("compute_at", "T", "T_i1", "T is already under T_i1", ""),
    ("compute_at", "epilogue", "T_i1", "Y is an output of the kernel", "reverse_compute_at"),
    ("compute_at", "T", "top_i1", "epilogue reads it outside of top_i1", "move epilogue under top_i1 first"),
    ("compute_at", "nothing", "T_i1", "no block 'nothing'", ""),
    ("compute_at", "T", "epilogue_i9", "no loop 'epilogue_i9'", "epilogue_i"),
    ("reverse_compute_at", "epilogue", "T_r0", "T is not complete under T_r0", "outside of the reduction"),
    (
        "reverse_compute_at",
        "epilogue",
        "top_i1",
        "nothing under top_i1 writes what it reads",
        "a loop of a producer",
    ),
    ("reverse_compute_at", "T", "epilogue_i1", "nothing under epilogue_i1 writes what it reads", ""),
]


@pytest.mark.parametrize(("step", "block", "loop", "what", "hint"), REFUSALS)
def test_refusals(step: str, block: str, loop: str, what: str, hint: str) -> None:
    s = Schedule(conv_direct())
    with pytest.raises(ScheduleError) as error:
        getattr(s, step)(block, loop)
    assert what in error.value.what
    assert hint in error.value.hint
    assert s.func == conv_direct()


def test_an_update_does_not_leave_its_start() -> None:
    s = Schedule(conv_direct())
    s.decompose_reduction("T", "T_r0")
    with pytest.raises(ScheduleError, match="T updates what another block started"):
        s.compute_at("T", "epilogue_i1")


def test_a_vectorised_loop_takes_no_nest() -> None:
    s = Schedule(conv_direct())
    s.vectorize("epilogue_i3")
    with pytest.raises(ScheduleError, match="loop epilogue_i3 is already vectorized"):
        s.compute_at("T", "epilogue_i3")


def test_a_writer_between_is_not_passed() -> None:
    b = Builder("f")
    x = b.input("x", (4,))
    p = b.compute("p", (4,), lambda i: x[i] * 2.0)
    b.write("again", p, (4,), lambda i: ((i,), x[i] * 3.0))
    before = b.finish([b.compute("y", (4,), lambda i: p[i])])
    with pytest.raises(ScheduleError, match="again writes p, too, and may overwrite it"):
        Schedule(before).compute_at("p", "y_i0")


def test_reads_that_a_select_guards_are_not_counted_on() -> None:
    b = Builder("f")
    x = b.input("x", (4,))
    c = b.compute("c", (4,), lambda i: x[i])
    zero = const(0.0, x.dtype)
    before = b.finish(
        [b.compute("y", (6,), lambda i: Select(all_of(i.ge(1), i.lt(5)) or i.ge(0), c[i - 1], zero))]
    )
    with pytest.raises(ScheduleError, match="c does not make all of c that it reads"):
        Schedule(before).reverse_compute_at("y", "c_i0")


SUMS_OF_DOUBLES = """func sums(x: f32[3, 4]) -> (y: f32[3, 4])
  local twice: f32[3, 4]
  for a in 0..3
    for b in 0..4
      block twice(va: spatial 3 = a, vb: spatial 4 = b)
        reads x[va, vb]
        writes twice[va, vb]
        twice[va, vb] = x[va, vb] * 2.0
  for i in 0..4
    block y(vi: spatial 4 = i)
      reads twice[0 +: 3, vi]
      writes y[0 +: 3, vi]
      alloc total: f32[1] @register
      total[0] = 0.0
      for k in 0..3
        total[0] += twice[2 - k, vi]
        y[2 - k, vi] = total[0]
"""


def test_what_a_block_with_a_loop_reads_is_declared_for_all_of_the_loop() -> None:
    schedule = Schedule(parse_func(SUMS_OF_DOUBLES))
    schedule.compute_inline("twice")
    assert problems_of(schedule.func) == ()
    text = print_func(schedule.func)
    assert "reads x[0 +: 3, vi]" in text
    assert "writes y[0 +: 3, vi]" in text


LOOKED_UP = """func rows(x: f32[8], w: i64[4]) -> (y: f32[6])
  local twice: f32[8]
  for a in 0..8
    block twice(va: spatial 8 = a)
      reads x[va]
      writes twice[va]
      twice[va] = x[va] * 2.0
  for i in 0..6
    block y(vi: spatial 6 = i)
      reads twice[0 +: 8], w[0 +: 4]
      writes y[vi]
      alloc at: i64[1] @register
      at[0] = select(vi >= 2, w[vi - 2], 0)
      y[vi] = twice[at[0]]
"""


def test_what_is_read_at_a_place_that_the_body_alone_knows_is_declared_whole() -> None:
    schedule = Schedule(parse_func(LOOKED_UP))
    schedule.compute_inline("twice")
    assert problems_of(schedule.func) == ()
    assert "x[0 +: 8]" in print_func(schedule.func)
