"""Products on matrix units: parts under way while others are multiplied, factors as the types they have."""

from __future__ import annotations

import re

import numpy as np
import pytest

from compiler.core.types import F16, F32, DType
from compiler.loops.build import Builder
from compiler.loops.ir import Cast, Expr, Func, Select, all_of, const
from compiler.render.device import render_launches
from compiler.render.launch import DeviceText
from compiler.render.vocabulary_cuda import CUDA
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.rules.threads.matrix import matrix_gemm
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target
from tests.support.emulation import Emulated
from tests.support.kernels import lower_all

ROWS, COLUMNS, TERMS = 64, 48, 160


def _product(kind: DType, rows: int = ROWS, columns: int = COLUMNS) -> Func:
    b = Builder("product")
    x, w = b.input("x", (rows, TERMS), kind), b.input("w", (columns, TERMS), kind)

    def wide(value: Expr) -> Expr:
        return value if kind == F32 else Cast(F32, value)

    y = b.reduce("y", (rows, columns), (TERMS,), lambda i, j, k: wide(x[i, k]) * wide(w[j, k]), dtype=F32)
    return b.finish([y])


def _device(kind: DType, *tile: int, sizes: tuple[int, int] = (ROWS, COLUMNS)) -> DeviceText:
    facts = get_target("cuda:sm_80", precision="tf32" if kind == F32 else "f32").facts
    chosen = {"y.unit": (1,), **({"y.tile": tile} if tile else {})}
    schedule = Schedule(_product(kind, *sizes))
    assert matrix_gemm(schedule, "y", facts, ReplayChooser(chosen, AnalyticChooser()))
    return render_launches(lower_all(schedule.func, facts), 0, CUDA, facts)


def _window(channels: int, size: int, *, chunks: int, tile: tuple[int, ...]) -> str:
    """A convolution of 3 x 3 over a padded image by channels."""
    b = Builder("window")
    x, w = b.input("x", (size, size, channels), F16), b.input("w", (64, 3, 3, channels), F16)

    def padded(i: Expr, j: Expr, c: Expr) -> Expr:
        inside = all_of(i.ge(1), i.lt(size + 1), j.ge(1), j.lt(size + 1))
        return Select(inside, x[i - 1, j - 1, c], const(0.0, F16))

    image = b.compute("image", (size + 2, size + 2, channels), padded)
    y = b.reduce(
        "y",
        (size, size, 64),
        (3, 3, channels),
        lambda i, j, o, p, q, c: Cast(F32, image[i + p, j + q, c]) * Cast(F32, w[o, p, q, c]),
        dtype=F32,
    )
    name = "y" if chunks == 1 else "y_rf"
    chosen = {"y.chunks": (chunks,), f"{name}.unit": (1,), f"{name}.tile": tile}
    facts = get_target("cuda:sm_90").facts
    func = schedule_func(b.finish([y]), {}, facts, ReplayChooser(chosen, AnalyticChooser())).func
    return render_launches(lower_all(func, facts), 0, CUDA, facts).text


@pytest.mark.parametrize(("channels", "chunks"), [(64, 1), (256, 1), (256, 8)])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_window_is_pipelined(channels: int, chunks: int, stages: int) -> None:
    """Over its taps and channels as one loop, one wait a round, and bits of the image are copied."""
    tile = (2, 2, 2, 2, 64 if chunks == 1 else 32, stages, 1)
    whole = _window(channels, 14, chunks=chunks, tile=tile)
    assert "int64" not in whole, "places fit 32 bits, in the conditions of copies, too"
    text = _loop(whole)
    body = text[: text.rindex("tk_mma_")]
    assert re.findall(r"tk_async_wait<(\d)>", body) == [str(stages - 2)]
    assert body.count("__syncthreads") == 1
    assert "tk_async_copy_or_zero<16>" in body
    assert "tk_f16_to_f32" not in body


def _loop(text: str) -> str:
    """The part of a kernel from its first loop on."""
    return text[text.index("TK_ROLLED") :]


@pytest.mark.parametrize("kind", [F16, F32], ids=str)
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_one_wait_a_round(kind: DType, stages: int) -> None:
    """Behind it the next part is asked for, before this one is multiplied: nothing stands between the two."""
    text = _loop(_device(kind, 2, 2, 1, 1, 32, stages, 1).text)
    assert re.findall(r"tk_async_wait<(\d)>", text) == [str(stages - 2)]
    assert text.count("__syncthreads") == 1
    assert text.index("__syncthreads") < text.index("tk_async_copy") < text.index("tk_mma_")


@pytest.mark.parametrize("kind", [F16, F32], ids=str)
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_what_it_computes(kind: DType, stages: int) -> None:
    device = _device(kind, 2, 2, 1, 1, 32, stages, int(stages > 1))
    (launch,) = device.launches
    source = np.random.default_rng(0)
    dtype = np.float16 if kind == F16 else np.float32
    x, w = (source.integers(-8, 9, (n, TERMS)).astype(dtype) for n in (ROWS, COLUMNS))  # exact in tf32
    found = np.zeros((ROWS, COLUMNS), np.float32)
    message = Emulated(CUDA.module([device.text])).launch(
        launch.name, launch.grid, launch.block, [x, w, found]
    )
    assert message == ""
    np.testing.assert_array_equal(found, x.astype(np.float32) @ w.astype(np.float32).T)


def test_copies_are_chosen_and_wide() -> None:
    for kind in (F16, F32):
        assert set(re.findall(r"tk_async_copy<(\d+)>", _device(kind).text)) == {"16"}


@pytest.mark.parametrize("stages", [1, 3])
def test_bits_of_f16_are_not_converted(stages: int) -> None:
    text = _device(F16, 2, 2, 1, 1, 32, stages, int(stages > 1)).text
    assert "tk_f16_to_f32" not in text
    assert "tk_f32_to_f16" not in text


def test_bits_of_f16_are_not_converted_in_a_padded_tile() -> None:
    text = _device(F16, 2, 2, 1, 1, 32, 3, 1, sizes=(48, 40)).text
    assert "tk_f16_to_f32" not in text


@pytest.mark.parametrize("kind", [F16, F32], ids=str)
def test_operands_come_by_rows(kind: DType) -> None:
    """All of a tile's operands at once, of the padded rows that copies bring."""
    text = _loop(_device(kind, 2, 2, 1, 1, 32, 3, 1).text)
    assert {"tk_load_matrices<4>", "tk_load_matrices<2>"} <= set(re.findall(r"tk_load_matrices<\d>", text))
    assert not re.search(r"tk_load_aligned<tk_u16x2>", text)


@pytest.mark.parametrize("stages", [1, 3])
def test_tf32_is_rounded_once(stages: int) -> None:
    """Where a lane reads its operands: shared memory holds f32."""
    text = _device(F32, 2, 2, 1, 1, 32, stages, int(stages > 1)).text
    assert "tk_tf32_to_f32" not in text
    assert len(re.findall(r"__shared__ float", text)) == 2
    rounded = [line for line in text.splitlines() if "tk_f32_to_tf32" in line]
    assert rounded
    assert all("tk_mma_" in line or line.lstrip().startswith("const ") for line in rounded)


def test_more_shared_memory_than_an_array_may_have() -> None:
    """Four parts of 128 x 128 results with 64 terms each: 147 KB, which a launch asks for."""
    facts = get_target("cuda:sm_80").facts
    b = Builder("product")
    x, w = b.input("x", (128, 1024), F16), b.input("w", (128, 1024), F16)
    y = b.reduce("y", (128, 128), (1024,), lambda i, j, k: Cast(F32, x[i, k]) * Cast(F32, w[j, k]), dtype=F32)
    schedule = Schedule(b.finish([y]))
    chosen = {"y.unit": (1,), "y.tile": (2, 4, 4, 4, 64, 4, 1)}
    assert matrix_gemm(schedule, "y", facts, ReplayChooser(chosen, AnalyticChooser()))
    (launch,) = render_launches(lower_all(schedule.func, facts), 0, CUDA, facts).launches
    assert launch.shared_bytes > 48 << 10
