"""All of an attention is one launch on devices: a block makes scores of its rows, and goes on with them."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from compiler.core.types import F16, F32
from compiler.loops.build import Builder
from compiler.loops.ir import Binary, Call, Cast, Const, Expr, Func, Select
from compiler.render.device import render_launches
from compiler.render.launch import DeviceText
from compiler.render.vocabulary_cuda import CUDA, HIP
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.targets import get_target
from tests.support.emulation import Emulated
from tests.support.kernels import lower_all

HEADS = 2
TOLERANCE = {"f32": 2e-6, "tf32": 2e-3, "f16": 2e-3}


def attend(rows: int, keys: int, depth: int, width: int, kind: str, mask: str) -> Func:
    """Two heads; scores are scaled, with a mask of keys added, or only those up to a row's own."""
    b = Builder("attend")
    narrow = F16 if kind == "f16" else F32
    q, k = b.input("q", (HEADS, rows, depth), narrow), b.input("k", (HEADS, keys, depth), narrow)
    v = b.input("v", (HEADS, keys, width), narrow)
    added = b.input("mask", (keys,), F32) if mask == "added" else None

    def factor(value: Expr) -> Expr:
        if kind != "f16":
            return value
        return Cast(F32, value if value.dtype == F16 else Cast(F16, value))

    def masked(h: Expr, i: Expr, j: Expr) -> Expr:
        scaled = sums[h, i, j] * Const(1 / math.sqrt(depth), F32)
        if mask == "causal":
            return Select(Binary("le", j, i), scaled, Const(-1e30, F32))
        return scaled + added[j] if added else scaled

    def product(h: Expr, i: Expr, j: Expr, n: Expr) -> Expr:
        return factor(q[h, i, n]) * factor(k[h, j, n])

    sums = b.reduce("sums", (HEADS, rows, keys), (depth,), product, dtype=F32)
    x = b.compute("scores", (HEADS, rows, keys), masked) if mask else sums
    grid = (HEADS, rows)
    largest = b.reduce("largest", grid, (keys,), lambda h, i, j: x[h, i, j], combiner="max", dtype=F32)

    def power(h: Expr, i: Expr, j: Expr) -> Expr:
        return Call("exp", (x[h, i, j] - largest[h, i],), F32)

    total = b.reduce("total", grid, (keys,), power, dtype=F32)

    def weight(h: Expr, i: Expr, d: Expr, j: Expr) -> Expr:
        return factor(power(h, i, j) / total[h, i]) * factor(v[h, j, d])

    return b.finish([b.reduce("y", (HEADS, rows, width), (keys,), weight, dtype=F32)])


def numbers(func: Func) -> list[np.ndarray]:
    source = np.random.default_rng(0)
    kinds = {F32: np.float32, F16: np.float16}
    shapes = [tuple(int(n.value) for n in item.shape) for item in func.params[:-1]]  # type: ignore[union-attr]
    return [
        source.standard_normal(shape).astype(kinds[item.dtype])
        for item, shape in zip(func.params, shapes, strict=False)
    ]


def wanted(arrays: list[np.ndarray], mask: str) -> np.ndarray:
    q, k, v, *added = (item.astype(np.float64) for item in arrays)
    x = q @ k.swapaxes(-1, -2)
    if mask:
        x /= math.sqrt(q.shape[-1])
    if mask == "causal":
        x[:, ~np.tri(*x.shape[1:], dtype=bool)] = -np.inf
    for item in added:
        x += item
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


def device_text(func: Func, target: str, kind: str, together: int) -> DeviceText:
    facts = get_target(target, precision=kind).facts
    chooser = ReplayChooser({"attention.together": (together,)}, AnalyticChooser())
    scheduled = schedule_func(func, {}, facts, chooser).func
    return render_launches(lower_all(scheduled, facts), 0, HIP if "rocm" in target else CUDA, facts)


@pytest.mark.parametrize(
    ("target", "kind", "sizes", "mask"),
    [
        ("cuda:sm_80", "f16", (32, 64, 32, 32), "added"),
        ("cuda:sm_80", "f16", (21, 53, 24, 40), "causal"),
        ("cuda:sm_80", "tf32", (50, 77, 32, 16), "added"),
        ("cuda:sm_75", "f16", (32, 48, 16, 16), ""),
        ("cuda:sm_80", "f32", (21, 53, 20, 12), "causal"),
        ("rocm:gfx90a", "f16", (21, 53, 24, 40), "added"),
        ("rocm:gfx906", "f32", (32, 40, 16, 16), ""),
    ],
)
def test_what_it_computes_in_one_launch(target: str, kind: str, sizes: tuple[int, ...], mask: str) -> None:
    func = attend(*sizes, kind, mask)
    device = device_text(func, target, kind, together=1)
    (launch,) = device.launches
    arrays = numbers(func)
    got = np.zeros((HEADS, sizes[0], sizes[3]), np.float32)
    emulated = Emulated((HIP if "rocm" in target else CUDA).module([device.text]))
    assert emulated.launch(launch.name, launch.grid, launch.block, [*arrays, got]) == ""
    np.testing.assert_allclose(got, wanted(arrays, mask), rtol=0, atol=TOLERANCE[kind])


def test_scores_stay_in_the_block() -> None:
    """A block of 16 rows has 64 scores of each, eight banks apart; matrix units make both products."""
    text = device_text(attend(32, 64, 32, 32, "f16", "added"), "cuda:sm_80", "f16", together=1).text
    assert f"__shared__ float s0[{16 * (64 + 8) - 8}]" in text
    assert text.count("= tk_mma_") + text.count(", tk_mma_") == 8


def test_lanes_store_scores_without_waiting_in_between() -> None:
    text = device_text(attend(32, 64, 32, 32, "f16", "added"), "cuda:sm_80", "f16", together=1).text
    stored = text[text.rindex("tk_mma", 0, text.index("tk_max")) : text.index("tk_max")]
    assert stored.count("__syncthreads") == 1


def test_values_come_as_they_lie() -> None:
    """Eight of 16 bits at a time, or four of f32; lanes read them by columns."""
    text = device_text(attend(32, 64, 32, 32, "f16", "added"), "cuda:sm_80", "f16", together=1).text
    assert "tk_load_columns<2>" in text
    assert re.search(r"tk_load_aligned<tk_u16x8>\(", text)
    rows = device_text(attend(32, 64, 32, 32, "f16", "added"), "cuda:sm_70", "f16", together=1).text
    assert "tk_load_columns<2>" not in rows


def test_scores_may_have_a_launch_of_their_own() -> None:
    assert len(device_text(attend(32, 64, 32, 32, "f16", "added"), "cuda:sm_80", "f16", 0).launches) == 2


@pytest.mark.parametrize(
    ("target", "kind", "keys", "together"),
    [("cuda:sm_90", "f16", 128, 1), ("cuda:sm_90", "f32", 128, 1), ("rocm:gfx90a", "f32", 1024, 0)],
)
def test_together_where_that_takes_less(target: str, kind: str, keys: int, together: int) -> None:
    """Long rows leave room for few of them where a compute unit has 64 KB."""
    chooser = AnalyticChooser()
    facts = get_target(target, precision=kind).facts
    schedule_func(attend(64, keys, 64, 64, kind, "added"), {}, facts, chooser)
    assert chooser.decisions["attention.together"] == (together,)
