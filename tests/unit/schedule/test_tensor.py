"""blockize and tensorize."""

from __future__ import annotations

import pytest

from compiler.core.diagnostics import InternalError
from compiler.loops.build import Builder
from compiler.loops.ir import Func
from compiler.loops.printer import print_func
from compiler.schedule.errors import ScheduleError
from compiler.schedule.schedule import Schedule
from compiler.schedule.tensor_intrinsics import TensorIntrinsic, register_tensor_intrinsic
from tests.support.intrinsics import OUTER_PRODUCT
from tests.support.schedules import checked, conv_direct, product


def tiled(func: Func) -> tuple[Schedule, str]:
    """A 4 x 4 register tile inside the reduction; gives its outer loop."""
    s = Schedule(func)
    s.cache_write("y", "y", "register")
    i, i_tile = s.split("y_i0", (None, 4))
    j, j_tile = s.split("y_i1", (None, 4))
    s.reorder(i, j, "y_r0", i_tile, j_tile)
    s.reverse_compute_at("y_write", j)
    s.decompose_reduction("y", "y_r0")
    return s, i_tile


def test_blockize_before_and_after() -> None:
    b = Builder("f")
    x = b.input("x", (12,))
    before = b.finish([b.compute("y", (12,), lambda i: x[i] * 2.0)])
    s = Schedule(before)
    _, inner = s.split("y_i0", (None, 4))
    assert s.blockize(inner) == "y_o"
    text = print_func(s.func)
    assert (
        text[text.index("\n  for") :]
        == """
  for y_i0_0 in 0..3
    block y_o(vy_i0_o: spatial 3 = y_i0_0)
      reads x[vy_i0_o * 4 +: 4]
      writes y[vy_i0_o * 4 +: 4]
      for y_i0_1 in 0..4
        block y(vy_i0: spatial 12 = vy_i0_o * 4 + y_i0_1)
          reads x[vy_i0]
          writes y[vy_i0]
          y[vy_i0] = x[vy_i0] * 2.0
"""
    )
    checked(before, s)


def test_blockize_of_a_reduction_keeps_its_start_inside() -> None:
    before = product(8, 12, 5)
    s = Schedule(before)
    _, tile = s.split("y_r0", (None, 5))
    s.blockize(tile)
    checked(before, s)


def test_a_consumer_follows_a_block_of_a_tile() -> None:
    b = Builder("f")
    x = b.input("x", (12,))
    p = b.compute("p", (12,), lambda i: x[i] * 2.0)
    before = b.finish([b.compute("y", (12,), lambda i: p[i] + 1.0)])
    s = Schedule(before)
    outer, inner = s.split("p_i0", (None, 4))
    s.blockize(inner)
    assert len(s.reverse_compute_at("y", outer)) == 1
    checked(before, s)


def test_tensorize_before_and_after() -> None:
    before = product(8, 12, 5)
    s, tile = tiled(before)
    block = s.tensorize(tile, "test.outer4x4")
    assert dict(s.block(block).annotations)["tensorized"] == "test.outer4x4"
    text = print_func(s.func)
    assert "broadcast(x[" in text
    assert "block y(" not in text
    checked(before, s)


def test_tensorize_in_a_blocked_layout() -> None:
    before = conv_direct(n=1, c=3, k=8, h=2, w=8)
    s = Schedule(before)
    for buffer in ("T", "Y"):
        s.transform_layout(buffer, "n, k, h, w -> n, k // 4, h, w, k % 4")
    s.transform_layout("W", "k, c, r, s -> k // 4, c, r, s, k % 4")
    n, k, h, w, lane, c, r, q = s.transform_block_layout(
        "T", "n, k, h, w, c, r, s -> n, k // 4, h, w, k % 4, c, r, s"
    )
    s.set_scope("T", "register")
    w_outer, w_tile = s.split(w, (None, 4))
    s.reorder(n, k, h, w_outer, c, r, q, w_tile, lane)
    s.reverse_compute_at("epilogue", w_outer)
    s.decompose_reduction("T", c)
    s.tensorize(w_tile, "test.outer4x4")
    checked(before, s)


def test_tensorize_refusals() -> None:
    s, tile = tiled(product(8, 12, 5))
    with pytest.raises(ScheduleError, match="no such intrinsic") as error:
        s.tensorize(tile, "test.outer4x5")
    assert "did you mean 'test.outer4x4'?" in error.value.hint
    with pytest.raises(ScheduleError, match="loops of 4, the intrinsic has 4 x 4"):
        s.tensorize("y_i1_1", "test.outer4x4")
    with pytest.raises(ScheduleError, match="loops of 5 x 4 x 4"):
        s.tensorize("y_r0", "test.outer4x4")
    s = Schedule(product(4, 4, 1))
    with pytest.raises(ScheduleError, match="its inner block has a start or a predicate"):
        s.tensorize("y_i0", "test.outer4x4")
    s = Schedule(product(4, 4, 1))
    s.decompose_reduction("y", "y_i0")
    with pytest.raises(ScheduleError, match="y is in global, the intrinsic wants register") as error:
        s.tensorize("y_i0", "test.outer4x4")
    assert "cache_write" in error.value.hint
    b = Builder("f")
    x = b.input("x", (4, 4))
    other = Schedule(b.finish([b.compute("y", (4, 4), lambda i, j: x[i, j] * 2.0)]))
    with pytest.raises(ScheduleError, match="it computes something else"):
        other.tensorize("y_i0", "test.outer4x4")


def test_blockize_refusals() -> None:
    s = Schedule(conv_direct())
    s.compute_at("T", "epilogue_i1")
    with pytest.raises(ScheduleError, match="2 blocks are under it"):
        s.blockize("epilogue_i1")
    s = Schedule(product(7, 4, 3))
    _, tile = s.split("y_i0", (None, 4))
    with pytest.raises(ScheduleError, match="its predicate mixes loops inside and outside") as error:
        s.blockize(tile)
    assert "pad_einsum" in error.value.hint
    s = Schedule(product(8, 12, 5))
    fused = s.fuse("y_i0", "y_i1")
    _, tile = s.split(fused, (None, 5))
    with pytest.raises(ScheduleError, match="blockize y_i0_fused"):
        s.blockize(tile)


def test_records_are_checked() -> None:
    with pytest.raises(InternalError, match="different parameters"):
        TensorIntrinsic("x", OUTER_PRODUCT.description, product(8, 12, 5))
    with pytest.raises(InternalError, match="registered twice"):
        register_tensor_intrinsic(
            TensorIntrinsic(
                "test.outer4x4", OUTER_PRODUCT.description, OUTER_PRODUCT.implementation.replace(name="o")
            )
        )
