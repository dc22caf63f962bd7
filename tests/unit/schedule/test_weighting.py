"""A softmax and the product of its rows are one launch on devices, whatever the sizes and the precision."""

from __future__ import annotations

import re

import numpy as np
import pytest

from compiler.core.types import F16, F32
from compiler.loops.build import Builder
from compiler.loops.ir import Call, Cast, Expr, Func
from compiler.render.device import render_launches
from compiler.render.launch import DeviceText
from compiler.render.vocabulary_cuda import CUDA
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.rules.threads.weighting import weighted_rows
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target
from tests.support.emulation import Emulated
from tests.support.kernels import lower_all

SIZES = pytest.mark.parametrize(("rows", "keys", "width"), [(32, 64, 32), (21, 53, 40)])
PRECISIONS = pytest.mark.parametrize("precision", ["f32", "f16"])


def _weigh(rows: int, keys: int, width: int, precision: str) -> Func:
    b = Builder("weigh")
    scores = b.input("scores", (2, rows, keys), F32)
    values = b.input("values", (2, keys, width), F16 if precision == "f16" else F32)

    def power(h: Expr, i: Expr, j: Expr) -> Expr:
        return Call("exp", (scores[h, i, j] - largest[h, i],), F32)

    def factor(value: Expr) -> Expr:
        if precision == "f32":
            return value
        return Cast(F32, value if value.dtype == F16 else Cast(F16, value))

    largest = b.reduce(
        "largest", (2, rows), (keys,), lambda h, i, j: scores[h, i, j], combiner="max", dtype=F32
    )
    total = b.reduce("total", (2, rows), (keys,), power, dtype=F32)
    weights = b.compute("weights", (2, rows, keys), lambda h, i, j: power(h, i, j) / total[h, i])
    y = b.reduce(
        "y",
        (2, rows, width),
        (keys,),
        lambda h, i, d, j: factor(weights[h, i, j]) * factor(values[h, j, d]),
        dtype=F32,
    )
    return b.finish([y])


def _device(*sizes: int, precision: str, target: str = "cuda:sm_80") -> DeviceText:
    facts = get_target(target, precision=precision).facts
    scheduled = schedule_func(_weigh(*sizes, precision), {}, facts, AnalyticChooser()).func
    return render_launches(lower_all(scheduled, facts), 0, CUDA, facts)


@SIZES
@PRECISIONS
def test_what_it_computes_in_one_launch(rows: int, keys: int, width: int, precision: str) -> None:
    device = _device(rows, keys, width, precision=precision)
    (launch,) = device.launches
    assert ("tk_mma_" in device.text) == (precision == "f16")
    source = np.random.default_rng(0)
    scores = (4 * source.standard_normal((2, rows, keys))).astype(np.float32)
    values = source.standard_normal((2, keys, width)).astype(np.float16 if precision == "f16" else np.float32)
    found = np.zeros((2, rows, width), np.float32)
    emulated = Emulated(CUDA.module([device.text]))
    assert emulated.launch(launch.name, launch.grid, launch.block, [scores, values, found]) == ""
    powers = np.exp(scores - scores.max(-1, keepdims=True), dtype=np.float64)
    wanted = powers / powers.sum(-1, keepdims=True) @ values.astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-3 if precision == "f16" else 2e-6)


def test_each_row_is_looked_through_by_one_block() -> None:
    """Its tile has all columns, and the sums over a row stay in what the block shares."""
    device = _device(32, 64, 32, precision="f16")
    (launch,) = device.launches
    assert launch.grid[0] == 1
    assert device.text.count("__shared__ float") == 4


def test_parts_of_a_row_grow_in_registers() -> None:
    text = _device(32, 64, 32, precision="f16").text
    assert re.search(r"v\d+ = tk_max<float>\(v\d+, p\d+\[0\]\)", text)


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx90a", "rocm:gfx906"])
def test_functions_of_another_structure_are_left_alone(target: str) -> None:
    """Three sums, of which the last reads but one of the others."""
    b = Builder("other")
    x, w = b.input("x", (32, 64), F32), b.input("w", (64, 32), F32)
    first = b.reduce("first", (32,), (64,), lambda i, j: x[i, j], dtype=F32)
    second = b.reduce("second", (32,), (64,), lambda i, j: x[i, j] * first[i], dtype=F32)
    y = b.reduce("y", (32, 32), (64,), lambda i, d, j: (x[i, j] - first[i]) * w[j, d], dtype=F32)
    schedule = Schedule(b.finish([y, second]))
    before = schedule.func
    assert not weighted_rows(schedule, get_target(target).facts, AnalyticChooser())
    assert schedule.func == before
