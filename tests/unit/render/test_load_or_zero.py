"""What is zero under a condition: on AMD's devices a load from a buffer in place of a branch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.core.types import BF16, F16, F32, I32, I64, DType
from compiler.graph.dtypes import to_numpy
from compiler.loops.build import Builder
from compiler.loops.ir import Cast, Expr, Func, Select, const
from compiler.render.device import render_launches
from compiler.render.vocabulary_cuda import HIP
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target
from tests.support.emulation import Emulated
from tests.support.kernels import lower_all

COUNT = 96
WORD = "tk_load_or_zero<"


def shifted(kind: DType = F32, otherwise: float = 0.0) -> Func:
    """y[i] = x[i - 1], a constant in front of that."""
    b = Builder("shifted")
    x = b.input("x", (COUNT,), kind)
    y = b.compute("y", (COUNT,), lambda i: Select(i.ge(1), x[i - 1], const(otherwise, kind)))
    return b.finish([y])


def gathered() -> Func:
    """y[i] = x[at[i]], zero behind the first half: places that may only be read under the condition."""
    b = Builder("gathered")
    x, at = b.input("x", (COUNT,)), b.input("at", (COUNT,), I64)

    def value(i: Expr) -> Expr:
        return Select(i.lt(COUNT // 2), x[at[i]], const(0.0, F32))

    return b.finish([b.compute("y", (COUNT,), value)])


def text_of(func: Func, target: str) -> str:
    """Of its kernels."""
    made = get_target(target)
    lowered = lower_all(schedule_func(func, {}, made.facts, AnalyticChooser()).func, made.facts)
    return render_launches(lowered, 0, made.vocabulary, made.facts).text


@pytest.mark.parametrize(
    ("make", "target", "wanted"),
    [
        (shifted, "rocm:gfx90a", True),
        (shifted, "cuda:sm_90", False),
        (shifted, "opencl-amd:gfx906", False),
        (lambda: shifted(otherwise=1.0), "rocm:gfx90a", False),
        (lambda: shifted(otherwise=-0.0), "rocm:gfx90a", False),
        (lambda: shifted(F16), "rocm:gfx90a", True),
        (lambda: shifted(I32), "rocm:gfx90a", False),
        (gathered, "rocm:gfx90a", False),
    ],
    ids=["f32 or zero", "CUDA", "OpenCL", "or one", "or minus zero", "f16", "i32", "by an index in memory"],
)
def test_only_floats_or_zero(make: Callable[[], Func], target: str, wanted: bool) -> None:
    text = text_of(make(), target)
    kernel = text[text.index("__kernel" if "opencl" in target else "__global__") :]
    assert (WORD in kernel) == wanted
    assert (" ? " in kernel) != wanted


def rows(kind: DType, lanes: int, stored: DType) -> Func:
    """y[i, j] = x[i - 1, j], rows of neighbours that a thread takes at once; zero in front."""
    b = Builder("rows")
    x = b.input("x", (64, lanes), kind)

    def value(i: Expr, j: Expr) -> Expr:
        load = x[i - 1, j]
        return Select(i.ge(1), load if kind == stored else Cast(stored, load), const(0.0, stored))

    s = Schedule(b.finish([b.compute("y", (64, lanes), value, dtype=stored)]))
    row, place = s.loops("y")
    s.bind(row, "threadIdx.x")
    s.vectorize(place)
    return s.func


@pytest.mark.parametrize(
    ("kind", "lanes", "stored", "loaded"),
    [
        (F32, 4, F32, "tk_f32x4"),
        (F32, 2, F32, "tk_f32x2"),
        (F16, 8, F16, "tk_u16x8"),
        (F16, 2, F16, "tk_u16x2"),
        (BF16, 4, F32, "tk_u16x4"),
        (F32, 4, F16, "tk_f32x4"),
    ],
    ids=["16 bytes", "8 bytes", "of 16 bits", "4 bytes", "widened", "rounded"],
)
def test_neighbours_come_at_once(kind: DType, lanes: int, stored: DType, loaded: str) -> None:
    """In the emulator as an AMD device does it: by a place in the buffer, which may be beyond its end."""
    func, made = rows(kind, lanes, stored), get_target("rocm:gfx90a")
    device = render_launches(lower_all(func, made.facts), 0, made.vocabulary, made.facts)
    assert f"{WORD}{loaded}>(b0, " in device.text
    source = np.random.default_rng(0).standard_normal((64, lanes)).astype(to_numpy(kind))
    wanted = np.concatenate([np.zeros_like(source[:1]), source[:-1]]).astype(to_numpy(stored))
    got = np.ones((64, lanes), to_numpy(stored))
    (launch,) = device.launches
    emulated = Emulated(HIP.module([device.text]))
    assert emulated.launch(launch.name, launch.grid, launch.block, [source, got]) == ""
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", [F32, F16], ids=str)
def test_single_elements_in_the_emulator(kind: DType) -> None:
    made = get_target("rocm:gfx90a")
    func = schedule_func(shifted(kind), {}, made.facts, AnalyticChooser()).func
    device = render_launches(lower_all(func, made.facts), 0, made.vocabulary, made.facts)
    source = np.arange(1, COUNT + 1).astype(to_numpy(kind))
    got = np.full(COUNT, -1, to_numpy(kind))
    (launch,) = device.launches
    emulated = Emulated(HIP.module([device.text]))
    assert emulated.launch(launch.name, launch.grid, launch.block, [source, got]) == ""
    np.testing.assert_array_equal(got, [0, *source[:-1]])


def test_the_base_is_what_all_threads_have() -> None:
    (line,) = (line for line in text_of(shifted(), "rocm:gfx90a").splitlines() if WORD in line)
    assert WORD + "float>(b0, " in line
