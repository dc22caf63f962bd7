"""Tensor intrinsics of GPUs: descriptions, lane maps and meanings agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.core.diagnostics import HostError
from compiler.core.settings import load_settings
from compiler.core.types import I8, I32
from compiler.loops.build import Builder
from compiler.loops.interp import ProgramError, interpret
from compiler.loops.ir import Call, Cast, Func
from compiler.loops.matrix_units.modes import size_of
from compiler.loops.matrix_units.wmma import OPAQUE
from compiler.loops.text import parse_func
from compiler.loops.verify import verify_func
from compiler.render.device import render_launches
from compiler.render.vocabulary_cuda import CUDA
from compiler.schedule.schedule import Schedule
from compiler.schedule.thread_intrinsics import DP4A
from compiler.targets import get_target
from compiler.targets.device import Module
from tests.support.emulation import Emulated
from tests.support.gpu import SM_70
from tests.support.kernels import lower_all

WITH_FRAGMENTS = replace(SM_70, scopes=SM_70.scopes | {"fragment"})


def bytes_product(rows: int, columns: int, steps: int) -> Func:
    """The second factor lies transposed: its bytes follow each other along the sum."""
    b = Builder("bytes")
    x, w = b.input("x", (rows, steps), I8), b.input("w", (columns, steps), I8)
    return b.finish(
        [
            b.reduce(
                "y",
                (rows, columns),
                (steps,),
                lambda i, j, k: Cast(I32, x[i, k]) * Cast(I32, w[j, k]),
                dtype=I32,
            )
        ]
    )


def test_dp4a_takes_the_place_of_four_products() -> None:
    func = bytes_product(5, 6, 12)
    s = Schedule(func)
    _, four = s.split("y_r0", (None, 4))
    s.decompose_reduction("y", s.loops("y")[2])
    assert s.tensorize(four, DP4A.name) == "y_o"
    s.bind("y_i0", "blockIdx.x")
    s.bind("y_i1", "threadIdx.x")
    verify_func(s.func)
    source = np.random.default_rng(0)
    x, w = (source.integers(-128, 128, (n, 12)).astype(np.int8) for n in (5, 6))
    wanted = x.astype(np.int32) @ w.astype(np.int32).T
    np.testing.assert_array_equal(interpret(s.func, {"x": x, "w": w})["y"], wanted)
    lowered = lower_all(s.func, SM_70)
    assert any(isinstance(item, Call) and item.name == "dp4a.i8" for item in lowered.body.walk())
    np.testing.assert_array_equal(interpret(lowered, {"x": x, "w": w})["y"].reshape(5, 6), wanted)
    assert "tk_dp4a_i8(" in render_launches(lowered, 0, CUDA, SM_70).text


def test_lane_maps_place_every_element() -> None:
    for unit in OPAQUE.values():
        for item in (unit.a, unit.b, unit.c):
            places = [item.place(lane, reg) for lane in range(unit.lanes) for reg in range(item.registers)]
            assert set(places) == set(np.ndindex(size_of(item.rows), size_of(item.columns)))


WMMA = """
func wmma(x: f16[16, 32], w: f16[32, 16]) -> (y: f32[16, 16])
  for t in 0..32 bound(threadIdx.x)
    alloc a: f16[16] @fragment lane_map wmma.m16n16k16.a
    alloc b: f16[16] @fragment lane_map wmma.m16n16k16.b
    alloc c: f32[8] @fragment lane_map wmma.m16n16k16.c
    wmma.fill:i32(&c[0], 0.0)
    for k in 0..2
      wmma.load_a:i32(&a[0], &x[0, k * 16], 32)
      wmma.load_b:i32(&b[0], &w[k * 16, 0], 16)
      wmma.mma:i32(&c[0], &a[0], &b[0])
    wmma.store:i32(&y[0, 0], &c[0], 16)
"""


def test_wmma_multiplies_tiles() -> None:
    source = np.random.default_rng(1)
    x, w = (source.standard_normal(shape).astype(np.float16) for shape in ((16, 32), (32, 16)))
    got = interpret(parse_func(WMMA), {"x": x, "w": w})["y"]
    np.testing.assert_allclose(got, x.astype(np.float32) @ w.astype(np.float32), 1e-5, 1e-5)


def _wmma_text() -> tuple[str, str]:
    """A module of the product, and its kernel's name."""
    made = render_launches(lower_all(parse_func(WMMA), WITH_FRAGMENTS), 0, CUDA, WITH_FRAGMENTS)
    return CUDA.module([made.text]), made.launches[0].name


def test_wmma_runs_in_the_emulator() -> None:
    source = np.random.default_rng(1)
    x, w = (source.standard_normal(shape).astype(np.float16) for shape in ((16, 32), (32, 16)))
    text, name = _wmma_text()
    found = np.zeros((16, 16), np.float32)
    assert Emulated(text).launch(name, (1, 1, 1), (32, 1, 1), [x, w, found]) == ""
    np.testing.assert_allclose(found, x.astype(np.float32) @ w.astype(np.float32), 1e-5, 1e-5)


def test_wmma_compiles() -> None:
    target = get_target("cuda:sm_70,sm_80,sm_90")
    assert target.device is not None
    try:
        images = target.device.build(Module(_wmma_text()[0], (), "0"), target, load_settings())
    except HostError as error:
        pytest.skip(str(error))
    assert len(images.resources) == 3


def test_wmma_needs_a_whole_sub_group_and_its_own_fragments() -> None:
    x, w = np.zeros((16, 32), np.float16), np.zeros((32, 16), np.float16)
    with pytest.raises(ProgramError, match="needs 32 lanes"):
        interpret(parse_func(WMMA), {"x": x, "w": w}, subgroup=16)
    with pytest.raises(ProgramError, match="is laid out as"):
        interpret(parse_func(WMMA.replace("wmma.m16n16k16.c", "m16n8k8.c")), {"x": x, "w": w})
