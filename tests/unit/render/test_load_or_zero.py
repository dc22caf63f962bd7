"""What is zero under a condition: on AMD's devices a load from a buffer in place of a branch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler.core.types import F16, F32, I64, DType
from compiler.loops.build import Builder
from compiler.loops.ir import Expr, Func, Select, const
from compiler.render.device import render_launches
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.rules import schedule_func
from compiler.targets import get_target
from tests.support.kernels import lower_all

COUNT = 96
WORD = "tk_load_or_zero(b"


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
        (lambda: shifted(F16), "rocm:gfx90a", False),
        (gathered, "rocm:gfx90a", False),
    ],
    ids=["f32 or zero", "CUDA", "OpenCL", "or one", "or minus zero", "f16", "by an index in memory"],
)
def test_only_elements_of_f32_or_zero(make: Callable[[], Func], target: str, wanted: bool) -> None:
    text = text_of(make(), target)
    assert (WORD in text) == wanted
    assert (" ? " in text) != wanted


def test_the_base_is_what_all_threads_have() -> None:
    (line,) = (line for line in text_of(shifted(), "rocm:gfx90a").splitlines() if WORD in line)
    assert WORD + "0, " in line
