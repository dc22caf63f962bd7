"""software_pipeline and vthread."""

from __future__ import annotations

import pytest

from compiler.loops.build import Builder
from compiler.loops.ir import Const, For, ForKind, seq
from compiler.loops.printer import print_func
from compiler.loops.queries import extent_of
from compiler.loops.simplify import substitute
from compiler.schedule.errors import ScheduleError
from compiler.schedule.schedule import Schedule
from tests.support.schedules import checked, conv_direct, product, shape_of


def staged(k: int = 12, tile: int = 3) -> tuple[Schedule, str]:
    """Tiles of both operands are copied under the outer part of the reduction."""
    s = Schedule(product(4, 6, k))
    for operand in ("x", "w"):
        s.cache_read("y", operand, "shared")
    outer, inner = s.split("y_r0", (None, tile))
    s.reorder(outer, "y_i0", "y_i1", inner)
    s.decompose_reduction("y", outer)
    s.compute_at("x_read", outer)
    s.compute_at("w_read", outer)
    return s, outer


def test_pipeline_before_and_after() -> None:
    b = Builder("f")
    x = b.input("x", (6,))
    p = b.compute("p", (6,), lambda i: x[i] * 2.0)
    before = b.finish([b.compute("y", (6,), lambda i: p[i] + 1.0)])
    s = Schedule(before)
    s.compute_at("p", "y_i0")
    assert s.software_pipeline("y_i0", (0, 1)) == ("p_1", "y_1")
    text = print_func(s.func)
    assert (
        text[text.index("\n  local") :]
        == """
  local p: f32[2]
  block p_1(vp_i0_1: spatial 6 = 0)
    reads x[vp_i0_1]
    writes p[vp_i0_1 % 2]
    p[vp_i0_1 % 2] = x[vp_i0_1] * 2.0
  for y_i0 in 0..5
    block p(vp_i0: spatial 6 = y_i0 + 1)
      reads x[vp_i0]
      writes p[vp_i0 % 2]
      p[vp_i0 % 2] = x[vp_i0] * 2.0
    block y(vy_i0: spatial 6 = y_i0)
      reads p[vy_i0 % 2]
      writes y[vy_i0]
      y[vy_i0] = p[vy_i0 % 2] + 1.0
  block y_1(vy_i0_1: spatial 6 = 5)
    reads p[vy_i0_1 % 2]
    writes y[vy_i0_1]
    y[vy_i0_1] = p[vy_i0_1 % 2] + 1.0
"""
    )
    checked(before, s)


@pytest.mark.parametrize(("k", "tile"), [(12, 3), (12, 2), (10, 4)])
@pytest.mark.parametrize("stages", [(0, 0, 1), (0, 1, 1), (0, 0, 2), (0, 1, 2)])
def test_double_and_triple_buffered_product(k: int, tile: int, stages: tuple[int, ...]) -> None:
    s, outer = staged(k, tile)
    s.software_pipeline(outer, stages)
    rows = shape_of(s.func, "w_shared")[0]
    assert rows == (stages[2] - stages[1] + 1) * tile or stages[2] == stages[1] or rows == k
    checked(product(4, 6, k), s)


def test_a_buffer_that_every_iteration_fills_gets_versions() -> None:
    b = Builder("f")
    x = b.input("x", (5, 4))
    p = b.local("p", (4,))
    b.write("load", p, (5, 4), lambda i, j: ((j,), x[i, j] * 2.0))
    y = b.local("y", (5, 4))
    b.write("use", y, (5, 4), lambda i, j: ((i, j), p[j] + 1.0))
    func = b.finish([y])
    # The builder makes one nest for each block; here both belong into one loop over i.
    load, use = func.body.stmts  # type: ignore[attr-defined]
    assert isinstance(load, For)
    body = seq(load.body, substitute(use.body, {use.var.name: load.var}))
    before = func.replace(body=load.replace(body=body))
    s = Schedule(before)
    s.software_pipeline(load.var.name, (0, 1))
    assert shape_of(s.func, "p") == (2, 4)
    checked(before, s)


def test_overlapping_windows_share_a_ring() -> None:
    b = Builder("f")
    x = b.input("x", (12,))
    p = b.compute("p", (12,), lambda i: x[i] * 2.0)
    before = b.finish([b.compute("y", (5,), lambda i: p[i * 2] + p[i * 2 + 3])])
    s = Schedule(before)
    s.compute_at("p", "y_i0")
    s.software_pipeline("y_i0", (0, 1))
    assert shape_of(s.func, "p") == (6,)
    checked(before, s)


def in_registers() -> tuple[Schedule, str]:
    """The same, with registers between memory and tiles."""
    s = Schedule(product(4, 6, 12))
    stores = []
    for operand in ("x", "w"):
        s.cache_read("y", operand, "shared")
        stores.append(s.cache_write(f"{operand}_read", f"{operand}_shared", "register"))
    outer, inner = s.split("y_r0", (None, 3))
    s.reorder(outer, "y_i0", "y_i1", inner)
    s.decompose_reduction("y", outer)
    for name in (*stores, "x_read", "w_read"):
        s.compute_at(name, outer)
    return s, outer


@pytest.mark.parametrize("guarded", [False, True])
def test_statements_in_another_order(guarded: bool) -> None:
    """What is fetched stays in registers while the part before is used, and is stored after that."""
    s, outer = in_registers()
    steps = [item.name for item in s.program.blocks.values() if item.name != "y_init"]
    assert [name.endswith("write") for name in steps] == [False, True, False, True, False]
    made = s.software_pipeline(outer, (0, 0, 0, 0, 1), (0, 2, 4, 1, 3), guarded=guarded)
    assert len(made) == (4 if guarded else 5)
    assert extent_of(s.loop(outer).extent) == (4 if guarded else 3)
    copies = [item.name for item in s.func.allocs if "register" in item.name]
    assert len(copies) == 4, "what fills the pipeline has registers of its own"
    checked(product(4, 6, 12), s)


def test_statements_that_depend_on_each_other_keep_their_order() -> None:
    s, outer = in_registers()
    with pytest.raises(ScheduleError, match="cannot come before statement") as error:
        s.software_pipeline(outer, (0, 0, 0, 0, 1), (1, 0, 2, 3, 4))
    assert "both use" in error.value.why
    with pytest.raises(ScheduleError, match="is no order of its 5 statements"):
        s.software_pipeline(outer, (0, 0, 0, 0, 1), (0, 1, 2, 3, 3))


def test_software_pipeline_refusals() -> None:
    s, outer = staged()
    with pytest.raises(ScheduleError, match="do not fit its 3 statements"):
        s.software_pipeline(outer, (0, 1))
    with pytest.raises(ScheduleError, match="do not fit its 3 statements") as error:
        s.software_pipeline(outer, (0, 0, 0))
    assert "the largest at least 1" in error.value.why
    with pytest.raises(ScheduleError, match="it has 4 iterations for 5 stages"):
        s.software_pipeline(outer, (0, 0, 4))
    with pytest.raises(ScheduleError, match="w_shared is written in one stage"):
        s.software_pipeline(outer, (0, 1, 0))
    s = Schedule(conv_direct())
    s.parallel("epilogue_i1")
    with pytest.raises(ScheduleError, match="it is already parallel"):
        s.software_pipeline("epilogue_i1", (0, 1))


def circular_rows() -> Schedule:
    """`p` is a circular buffer of two elements under loop y_i0; `y` reads it there, `z` reads y."""
    b = Builder("f")
    x = b.input("x", (8,))
    p = b.compute("p", (8,), lambda i: x[i] * 2.0)
    y = b.compute("y", (8,), lambda i: p[i] + 1.0)
    s = Schedule(b.finish([b.compute("z", (8,), lambda i: y[i] * 3.0)]))
    s.cache_read("p", "x", "scratch")
    s.compute_at("p", "y_i0")
    s.software_pipeline("y_i0", (0, 1))
    assert shape_of(s.func, "p") == (2,)
    return s


def test_what_touches_a_circular_buffer_stays_in_its_loop() -> None:
    s = circular_rows()
    with pytest.raises(ScheduleError, match=r"p is a circular buffer: \w+ writes") as error:
        s.compute_at("y", "z_i0")  # reads the circular buffer
    assert "before software_pipeline" in error.value.hint
    with pytest.raises(ScheduleError, match="p is a circular buffer"):
        s.reverse_compute_at("p", "x_read_i0")  # writes the circular buffer


def test_loops_around_a_ring_keep_their_order() -> None:
    """Windows of three: an iteration makes one element and needs two that earlier ones made."""
    b = Builder("pooled")
    x = b.input("x", (4, 7))
    a = b.compute("a", (4, 7), lambda i, j: x[i, j] + 1.0)
    before = b.finish([b.reduce("y", (4, 5), (3,), lambda i, j, r: a[i, j + r])])
    s = Schedule(before)
    s.compute_at("a", "y_i1")
    s.software_pipeline("y_i1", (0, 1))
    outer, inner = s.split("y_i1", (None, 2))
    with pytest.raises(ScheduleError, match="depend on the order of the loops"):
        s.reorder(inner, outer)
    checked(before, s)


def test_a_buffer_used_elsewhere_is_no_ring() -> None:
    b = Builder("f")
    x = b.input("x", (6,))
    p = b.compute("p", (6,), lambda i: x[i] * 2.0)
    y = b.compute("y", (6,), lambda i: p[i] + 1.0)
    before = b.finish([p, y])
    s = Schedule(before)
    s.reverse_compute_at("y", "p_i0")
    with pytest.raises(ScheduleError, match="p is used outside of the loop, too"):
        s.software_pipeline("p_i0", (0, 1))


# ---------------------------------------------------------------- vthread


def test_vthread_before_and_after() -> None:
    b = Builder("f")
    x = b.input("x", (2, 3))
    p = b.compute("p", (2, 3), lambda i, j: x[i, j] * 2.0)
    before = b.finish([b.compute("y", (2, 3), lambda i, j: p[i, j] + 1.0)])
    s = Schedule(before)
    s.compute_at("p", "y_i0")
    assert s.vthread("y_i0") == ("y_i0", "y_i0_1")
    text = print_func(s.func)
    assert [line.strip() for line in text.splitlines() if "for " in line] == [
        "for p_i1 in 0..3",
        "for y_i0 in 0..2 unrolled",
        "for y_i1 in 0..3",
        "for y_i0_1 in 0..2 unrolled",
    ]
    checked(before, s)


def test_vthread_of_a_convolution_tile() -> None:
    before = conv_direct(k=4, h=3, w=8)
    s = Schedule(before)
    outer, inner = s.split("T_i3", (None, 4))
    s.reorder("T_i0", "T_i1", "T_i2", outer, inner, "T_r0", "T_r1", "T_r2")
    s.reverse_compute_at("epilogue", outer)
    made = s.vthread(outer)
    assert all(s.loop(name).kind is ForKind.UNROLLED for name in made)
    assert all(isinstance(s.loop(name).extent, Const) for name in made)
    checked(before, s)


def test_vthread_refusals() -> None:
    s = Schedule(product(4, 6, 12))
    with pytest.raises(ScheduleError, match="y reduces over it") as error:
        s.vthread("y_r0")
    assert "rfactor" in error.value.hint
    s.unroll("y_i1")
    with pytest.raises(ScheduleError, match="it is already unrolled"):
        s.vthread("y_i1")
    b = Builder("f")
    x = b.input("x", (9,))
    p = b.compute("p", (9,), lambda i: x[i] * 2.0)
    before = b.finish([b.compute("y", (4,), lambda i: p[i * 2] + p[i * 2 + 2])])
    s = Schedule(before)
    s.compute_at("p", "y_i0")
    with pytest.raises(ScheduleError, match="its iterations share elements of p"):
        s.vthread("y_i0")
