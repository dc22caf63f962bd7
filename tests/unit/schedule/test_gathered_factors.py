"""Images on matrix units: terms without an order in memory are written out, each thread one row of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from compiler.core.types import F16, F32, TF32, DType
from compiler.loops.build import Builder
from compiler.loops.ir import CONSTANT, Cast, Expr, Func, Select, all_of, const
from compiler.render.device import render_launches
from compiler.render.launch import DeviceText
from compiler.render.vocabulary_cuda import CUDA
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.targets import get_target
from tests.support.emulation import Emulated
from tests.support.kernels import lower_all

CHANNELS, WINDOW, SIZE, RESULTS = 3, 5, 16, 16
TILE = (2, 1, 2, 2, 32, 1, 0)
KINDS = pytest.mark.parametrize("kind", [F16, TF32], ids=str)


def _stem(kind: DType) -> Func:
    """A convolution in steps of two over a padded image, of which no channel lies beside another."""
    b = Builder("stem")
    image = b.input("x", (CHANNELS, 2 * SIZE, 2 * SIZE), F32)
    weights = b.input("w", (RESULTS, CHANNELS, WINDOW, WINDOW), F16 if kind == F16 else F32, scope=CONSTANT)

    def factor(value: Expr) -> Expr:
        if kind != F16:
            return value
        return Cast(F32, value if value.dtype == F16 else Cast(F16, value))

    def padded(c: Expr, i: Expr, j: Expr) -> Expr:
        inside = all_of(i.ge(2), i.lt(2 * SIZE + 2), j.ge(2), j.lt(2 * SIZE + 2))
        return Select(inside, image[c, i - 2, j - 2], const(0.0, F32))

    wide = b.compute("pad", (CHANNELS, 2 * SIZE + WINDOW, 2 * SIZE + WINDOW), padded)
    y = b.reduce(
        "y",
        (SIZE, SIZE, RESULTS),
        (CHANNELS, WINDOW, WINDOW),
        lambda i, j, o, c, p, q: factor(wide[c, i * 2 + p, j * 2 + q]) * factor(weights[o, c, p, q]),
        dtype=F32,
    )
    return b.finish([y])


def _device(kind: DType, tile: tuple[int, ...] = TILE) -> DeviceText:
    facts = get_target("cuda:sm_80", precision=kind.name).facts
    chooser = ReplayChooser({"y.unit": (1,), "y.tile": tile}, AnalyticChooser())
    scheduled = schedule_func(_stem(kind), {}, facts, chooser).func
    return render_launches(lower_all(scheduled, facts), 0, CUDA, facts)


@KINDS
def test_the_place_of_a_term_is_a_constant(kind: DType) -> None:
    assert not re.search(rf"[/%] ({WINDOW}|{WINDOW**2})\b", _device(kind).text)


@KINDS
def test_a_row_reaches_shared_memory_in_whole_accesses(kind: DType) -> None:
    vector = {F16: "tk_u16x8", TF32: "tk_f32x4"}[kind]
    assert f"tk_load_aligned<{vector}>" in _device(kind).text


def test_elements_are_rounded_once_and_weights_not_at_all() -> None:
    text = _device(F16).text
    assert "tk_f32_to_f16" in text
    assert "tk_f16_to_f32" not in text


@KINDS
@pytest.mark.parametrize("tile", [TILE, (4, 2, 1, 1, 64, 1, 0)])
def test_what_it_computes(kind: DType, tile: tuple[int, ...]) -> None:
    device = _device(kind, tile)
    (launch,) = device.launches
    source = np.random.default_rng(0)
    x = source.integers(-8, 9, (CHANNELS, 2 * SIZE, 2 * SIZE)).astype(np.float32)  # exact in either type
    w = source.integers(-8, 9, (RESULTS, CHANNELS, WINDOW, WINDOW)).astype(np.float32)
    found = np.zeros((SIZE, SIZE, RESULTS), np.float32)
    stored = w.astype(np.float16) if kind == F16 else w
    message = Emulated(CUDA.module([device.text])).launch(
        launch.name, launch.grid, launch.block, [x, stored, found]
    )
    assert message == ""
    wide = np.pad(x, ((0, 0), (2, 3), (2, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (WINDOW, WINDOW), (1, 2))[:, ::2, ::2]
    wanted = np.einsum("cijpq,ocpq->ijo", windows[:, :SIZE, :SIZE], w)
    np.testing.assert_array_equal(found, wanted)
