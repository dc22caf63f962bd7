"""Caches and scopes: cache_read, cache_write, cache_inplace, set_scope, storage_align."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler.loops.build import Builder
from compiler.loops.ir import Const, Func, Select, const
from compiler.loops.printer import print_func
from compiler.schedule.errors import ScheduleError
from compiler.schedule.schedule import Schedule
from tests.support.schedules import checked, conv_direct, padded_conv_pool, product


def body(func: Func) -> str:
    """The program from its local buffers on."""
    text = print_func(func)
    return text[text.index("\n  local") :]


def test_cache_write_before_and_after() -> None:
    b = Builder("f")
    x = b.input("x", (4,))
    before = b.finish([b.compute("y", (4,), lambda i: x[i] * 2.0)])
    s = Schedule(before)
    assert s.cache_write("y", "y", "scratch") == "y_write"
    assert (
        body(s.func)
        == """
  local y_scratch: f32[4] @scratch
  for y_i0 in 0..4
    block y(vy_i0: spatial 4 = y_i0)
      reads x[vy_i0]
      writes y_scratch[vy_i0]
      y_scratch[vy_i0] = x[vy_i0] * 2.0
  for y_write_i0 in 0..4
    block y_write(vy_write_i0: spatial 4 = y_write_i0)
      reads y_scratch[vy_write_i0]
      writes y[vy_write_i0]
      y[vy_write_i0] = y_scratch[vy_write_i0]
"""
    )
    checked(before, s)


def test_a_reduction_accumulates_in_its_cache() -> None:
    before = product()
    s = Schedule(before)
    copy = s.cache_write("y", "y", "register")
    assert {item.buffer.name for item in s.block("y").writes} == {"y_register"}
    outer, _ = s.split("y_i1", (None, 4))
    assert len(s.reverse_compute_at(copy, outer)) == 1
    checked(before, s)


def test_cache_write_of_one_writer_among_several() -> None:
    before = conv_direct(k=3, w=7)
    s = Schedule(before)
    copy = s.cache_write("epilogue", "Y", "scratch")
    outer, _ = s.split("epilogue_i3", (None, 4))
    s.reverse_compute_at(copy, outer)
    assert copy == "Y_write"
    checked(before, s)


def test_cache_read_holds_the_box_that_is_read() -> None:
    b = Builder("f")
    x = b.input("x", (10,))
    before = b.finish([b.compute("y", (3,), lambda i: x[i * 2 + 3])])
    s = Schedule(before)
    copy = s.cache_read("y", "x", "scratch")
    extent = s.loop(s.loops(copy)[0]).extent
    assert isinstance(extent, Const)
    assert extent.value == 5
    checked(before, s)


def test_cache_read_of_places_that_do_not_exist() -> None:
    """The last part of a padded loop reads beyond the buffer only, where its condition never holds."""
    b = Builder("f")
    x = b.input("x", (5,))
    before = b.finish([b.compute("y", (7,), lambda i: Select(i.lt(5), x[i], const(0.0, x.dtype)))])
    s = Schedule(before)
    s.split("y_i0", (None, 6), tail="partition")
    (rest,) = set(s.program.blocks) - {"y"}
    with pytest.raises(ScheduleError, match="it reads x outside of its 5 elements only") as error:
        s.cache_read(rest, "x", "scratch")
    assert "nothing to copy" in error.value.why
    s.cache_read("y", "x", "scratch")
    checked(before, s)


def test_cache_read_under_a_loop_of_its_reader() -> None:
    before = conv_direct(h=6, w=7)
    s = Schedule(before)
    copy = s.cache_read("T", "X", "scratch")
    outer, _ = s.split("T_i2", (None, 2))
    loops = s.compute_at(copy, outer)
    assert [int(s.loop(name).extent.value) for name in loops] == [3, 4, 9]  # type: ignore[attr-defined]
    checked(before, s)


def test_cache_read_leaves_other_readers_alone() -> None:
    b = Builder("f")
    x = b.input("x", (4,))
    y = b.compute("y", (4,), lambda i: x[i] * 2.0)
    before = b.finish([y, b.compute("z", (4,), lambda i: x[i] * 3.0)])
    s = Schedule(before)
    s.cache_read("z", "x", "scratch")
    assert {item.buffer.name for item in s.block("y").reads} == {"x"}
    assert {item.buffer.name for item in s.block("z").reads} == {"x_scratch"}
    checked(before, s)


@pytest.mark.parametrize(("m", "n", "tile"), [(6, 8, 4), (5, 7, 4), (3, 4, 4)])
def test_cache_inplace_splits_a_reduction_around_spatial_loops(m: int, n: int, tile: int) -> None:
    before = product(m, n, 6)
    s = Schedule(before)
    k_outer, k_inner = s.split("y_r0", (None, 3))
    j_outer, j_inner = s.split("y_i1", (None, tile))
    s.reorder(k_outer, "y_i0", j_outer, k_inner, j_inner)
    s.decompose_reduction("y", k_outer)
    load, store = s.cache_inplace("y", "y", "register", j_outer)
    assert (load, store) == ("y_load", "y_store")
    assert s.loops(load)[:3] == s.loops(store)[:3] == (k_outer, "y_i0", j_outer)
    checked(before, s)


def test_caches_keep_the_layout_of_their_buffer() -> None:
    before = conv_direct(k=5)
    s = Schedule(before)
    s.transform_layout("Y", "n, k, h, w -> n, k // 4, h, w, k % 4")
    s.cache_write("epilogue", "Y", "scratch")
    s.transform_block_layout("epilogue", "n, k, h, w -> n, k // 4, h, w, k % 4")
    checked(before, s)


def test_set_scope_of_a_local_buffer() -> None:
    before = conv_direct()
    s = Schedule(before)
    s.set_scope("T", "register")
    assert "local T: f32[1, 4, 5, 7] @register" in print_func(s.func)
    assert all(
        item.buffer.scope == "register" for item in s.block("epilogue").reads if item.buffer.name == "T"
    )
    checked(before, s)


def test_storage_align() -> None:
    before = conv_direct()
    s = Schedule(before)
    s.storage_align("T", 2, 8, 1)
    strides = [int(item.value) for item in s.func.buffer("T").strides]  # type: ignore[attr-defined]
    assert strides == [4 * 5 * 9, 5 * 9, 9, 1]
    checked(before, s)


@pytest.mark.parametrize(
    ("axis", "dense", "wanted"),
    [(3, 2, [4 * 7 * 9, 7 * 9, 1, 9]), (1, 2, [4 * 41, 41, 1, 5])],
)
def test_storage_align_with_another_dense_dimension(axis: int, dense: int, wanted: list[int]) -> None:
    before = conv_direct()
    s = Schedule(before)
    s.storage_align("T", axis, 8, 1, dense)
    strides = [int(item.value) for item in s.func.buffer("T").strides]  # type: ignore[attr-defined]
    assert strides == wanted
    checked(before, s)


def _decomposed() -> Schedule:
    s = Schedule(product())
    s.decompose_reduction("y", "y_r0")
    return s


REFUSALS = [
    ("set_scope", ("X", "register"), "it is a parameter", "cache_read or cache_write"),
    ("set_scope", ("T", "a b"), "'a b' is not the name of a scope", "global, scratch"),
    ("set_scope", ("Q", "register"), "no buffer 'Q'", "buffers here"),
    ("storage_align", ("X", 0, 8), "it is a parameter", "align a cache"),
    ("storage_align", ("T", 3, 8), "axis 3 cannot be aligned", "an axis of 0, 1, 2"),
    ("storage_align", ("T", 2, 8, 0, 2), "axis 2 cannot be aligned", "an axis of 0, 1, 3"),
    ("storage_align", ("T", 0, 8, 0, 4), "axis 0 cannot be aligned", "an axis of"),
    ("storage_align", ("T", 1, 8, 8), "factor 8 with offset 8 is no alignment", "offset from 0"),
    ("cache_read", ("epilogue", "X", "scratch"), "it does not read X", "one of T, B"),
    ("cache_read", ("T", "T", "scratch"), "it does not read T", "one of X, W"),
    ("cache_write", ("T", "Y", "scratch"), "it does not write Y", "one of T"),
    ("cache_operand", ("epilogue", 0, (0,), "scratch"), "it is no sum of products", "use cache_read"),
    ("cache_operand", ("T", 1, (1, 4), "scratch"), "axes (1, 4) do not make a buffer", "give 1, 4, 5, 6"),
    (
        "cache_inplace",
        ("T", "T", "scratch", "T_i1"),
        "it does not just update T",
        "decompose_reduction first",
    ),
    (
        "cache_inplace",
        ("T", "T", "scratch", "top_i1"),
        "it is not under loop top_i1",
        "a loop around the block",
    ),
]


@pytest.mark.parametrize(("step", "arguments", "what", "hint"), REFUSALS)
def test_refusals(step: str, arguments: tuple[str, ...], what: str, hint: str) -> None:
    s = Schedule(conv_direct())
    with pytest.raises(ScheduleError) as error:
        getattr(s, step)(*arguments)
    assert what in error.value.what
    assert hint in error.value.hint
    assert s.func == conv_direct()


def weighted(steps: int = 6) -> Func:
    """y = relu(c), c = sum of x * f * w, with a factor of the rows."""
    b = Builder("weighted")
    x, f, w = b.input("x", (4, steps)), b.input("f", (4,)), b.input("w", (steps, 5))
    c = b.reduce("c", (4, 5), (steps,), lambda i, j, k: x[i, k] * (f[i] + 1.0) * w[k, j])
    d = b.reduce("d", (4, 5), (steps,), lambda i, j, k: x[i, k] + w[k, j])
    return b.finish([b.compute("y", (5, 4), lambda j, i: c[i, j] * d[i, j] - c[i, 0])])


def test_a_factor_that_all_products_share_is_taken_out_of_the_sum() -> None:
    before = weighted()
    s = Schedule(before)
    s.factor_out("c")
    assert [region.buffer.name for region in s.block("c").reads] == ["x", "w"]
    assert "f" in {region.buffer.name for region in s.block("y").reads}
    checked(before, s)


@pytest.mark.parametrize(
    ("prepare", "block", "what"),
    [
        (lambda _: None, "y", "it is no sum of products"),
        (lambda _: None, "d", "its products share no factor"),
        (lambda s: s.factor_out("c"), "c", "its products share no factor"),
        (lambda s: s.decompose_reduction("c", "c_i0"), "c", "it is no sum of products"),
        (lambda s: s.transform_layout("c", "a, b -> a, b // 2, b % 2"), "c", "are not its indices"),
    ],
)
def test_where_no_factor_is_taken_out(prepare: Callable[[Schedule], object], block: str, what: str) -> None:
    s = Schedule(weighted())
    prepare(s)
    with pytest.raises(ScheduleError, match=what):
        s.factor_out(block)


def test_no_factor_is_taken_out_of_a_result() -> None:
    s = Schedule(product())
    with pytest.raises(ScheduleError, match="its products share no factor"):
        s.factor_out("y")
    b = Builder("f")
    x, f = b.input("x", (4, 6)), b.input("f", (4,))
    s = Schedule(b.finish([b.reduce("y", (4,), (6,), lambda i, k: x[i, k] * f[i])]))
    with pytest.raises(ScheduleError, match="it is an output") as error:
        s.factor_out("y")
    assert "cache_write" in error.value.hint


def test_an_update_needs_cache_inplace() -> None:
    s = _decomposed()
    with pytest.raises(ScheduleError, match="it updates what is in y") as error:
        s.cache_write("y", "y", "register")
    assert "cache_inplace" in error.value.hint


def test_what_starts_a_sum_is_not_cached_alone() -> None:
    s = _decomposed()
    with pytest.raises(ScheduleError, match="y reads y in the same loops"):
        s.cache_write("y_init", "y", "register")


def test_no_cache_across_a_reader_in_the_same_loops() -> None:
    s = Schedule(padded_conv_pool())
    s.compute_at("R", "Z_i1")
    with pytest.raises(ScheduleError, match="Z reads R in the same loops"):
        s.cache_write("R", "R", "scratch")
    with pytest.raises(ScheduleError, match="R writes R in the same loops"):
        s.cache_read("Z", "R", "scratch")
