"""Nine mistakes in schedules for GPUs that another compiler answers with an assertion of its own.

Each test makes the mistake and reads what we say: the limit, the value, where it comes from, what to do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler import load
from compiler.core.cache import ContentCache
from compiler.core.diagnostics import BadInputError, TkError
from compiler.core.passes import run_passes
from compiler.loops.build import Builder
from compiler.loops.ir import Func
from compiler.loops.text import parse_func
from compiler.lower import lowering
from compiler.lower.verify_launch import problems_of_launches
from compiler.render.device import render_launches
from compiler.render.vocabulary_cuda import CUDA
from compiler.runtime import tensors
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import Schedule
from tests.support.gpu import SM_70
from tests.support.model_library import COMPILERS
from tests.support.model_library import Builder as LibraryBuilder


def product(m: int = 4096, n: int = 4096, k: int = 4096) -> Func:
    b = Builder("product")
    x, w = b.input("A", (m, k)), b.input("W", (k, n))
    return b.finish([b.reduce("C", (m, n), (k,), lambda i, j, r: x[i, r] * w[r, j])])


def says(error: TkError, *parts: str) -> None:
    text = f"{error.what}\n{error.where}\n{error.why}\n{error.hint}"
    assert [part for part in parts if part not in text] == [], text
    assert error.why
    assert error.hint
    for jargon in ("Check failed", "iter_var", "InternalError", "0x"):
        assert jargon not in text


def lowered(schedule: Schedule) -> Func:
    return run_passes(lowering(SM_70), schedule.func)


def test_1_one_axis_bound_with_two_extents() -> None:
    """ "domain already inferred, cannot prove their extents are the same 1024 vs 4"."""
    s = Schedule(product())
    s.cache_write("C", "C", "register")
    i, _ = s.split("C_i0", (None, 4))
    s.reverse_compute_at("C_write", i)
    loops = s.loops("C_write")
    s.bind("C_i1", "threadIdx.y")
    outer, _ = s.split(loops[-1], (4, None))
    with pytest.raises(TkError) as error:
        s.bind(outer, "threadIdx.y")
    says(error.value, "inconsistent bindings", "4 and 4096", "threadIdx.y", "split to equal extents")


def test_2_a_layout_that_mixes_sums_with_results() -> None:
    """ "Can only relayout with in data parallel dimensions"."""
    s = Schedule(product(64, 64, 64))
    with pytest.raises(TkError) as error:
        s.transform_block_layout("C", "i, j, k -> i, j * 64 + k")
    says(error.value, "mixes spatial and reduction variables", "j * 64 + k", "keep them in different outputs")


def test_3_a_tensor_on_another_device(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "Argument mmult.A.device_type has an unsatisfied constraint: 2 == ..."."""
    library = LibraryBuilder(COMPILERS[0], ContentCache(own_cache / "objects"), tmp_path)
    x = np.ones((2, 8), np.float32)
    with load(library.library(tmp_path / "model.so")) as model:
        assert model.run({"x": x, "z": x})
        monkeypatch.setattr(tensors, "CPU", 2)
        with pytest.raises(TkError) as error:
            model.run({"x": x, "z": x})
    text = str(error.value)
    assert "input 'x' lies on device type 2" in text
    assert "this library runs on the CPU (device type 1)" in text


def test_4_a_sum_bound_to_threads_and_too_much_shared_memory() -> None:
    """ "uses too much shared data (0x10000 bytes, 0xc000 max)"."""
    s = Schedule(product())
    with pytest.raises(TkError) as error:
        s.bind("C_r0", "threadIdx.z")
    says(error.value, "C_r0 is a reduce loop", "update the same element", "rfactor")

    s = staged(tile=128, depth=64)
    with pytest.raises(BadInputError) as refused:
        lowered(s)
    says(
        refused.value,
        "65536 bytes of shared memory",
        "49152 bytes",
        "A_shared 32768",
        "W_shared 32768",
        "smaller",
    )


def staged(tile: int, depth: int, *, threads: int = 256) -> Schedule:
    """A product of tiles, both factors in shared memory, every thread some results."""
    s = Schedule(product(1024, 1024, 1024))
    total = s.cache_write("C", "C", "register")
    a, w = s.cache_read("C", "A", "shared"), s.cache_read("C", "W", "shared")
    i, i_in = s.split("C_i0", (None, tile))
    j, j_in = s.split("C_i1", (None, tile))
    k, k_in = s.split("C_r0", (None, depth))
    s.reorder(i, j, k, i_in, j_in, k_in)
    follow = s.reverse_compute_at(total, j)
    cells = s.split(s.fuse(i_in, j_in), (threads, None))[0]
    s.bind(cells, "threadIdx.x")
    s.decompose_reduction("C", k)
    s.bind(s.split(s.fuse(*follow), (threads, None))[0], "threadIdx.x")
    for block in (a, w):
        s.bind(s.split(s.fuse(*s.compute_at(block, k)), (threads, None))[0], "threadIdx.x")
    s.bind(i, "blockIdx.y")
    s.bind(j, "blockIdx.x")
    return s


def test_5_nothing_of_the_compiler_needs_a_gpu() -> None:
    """ "TVMError: not implemented", for want of a GPU, from looking at the lowered loops."""
    func = product(64, 64, 64)
    s = schedule_func(func, {}, SM_70, AnalyticChooser())
    text = render_launches(lowered(s), 0, CUDA, SM_70).text
    assert "__global__" in text
    assert "__syncthreads" in text


def test_6_a_block_of_too_many_threads() -> None:
    """ "CUDA_ERROR_INVALID_VALUE grid=(2048,1,1), block=(2048,1,1)"."""
    b = Builder("scale")
    x = b.input("x", (2048, 2048))
    s = Schedule(b.finish([b.compute("y", (2048, 2048), lambda i, j: x[i, j] * 2.0)]))
    s.bind("y_i0", "blockIdx.x")
    s.bind("y_i1", "threadIdx.x")
    with pytest.raises(BadInputError) as error:
        lowered(s)
    says(error.value, "2048 threads", "at most 1024", "threadIdx.x = 2048", "split")


def test_7_a_producer_placed_where_its_readers_are_not() -> None:
    """ "Invalid Schedule, cannot find the producer along the loop nest specified by compute_at"."""
    s = Schedule(product(64, 64, 64))
    shared = s.cache_read("C", "A", "shared")
    local = s.cache_read("C", "A_shared", "register")
    s.compute_at(local, "C_i1")
    with pytest.raises(TkError) as error:
        s.compute_at(shared, "C_r0")
    says(error.value, f"{local} reads it outside of C_r0", f"move {local} under C_r0 first")


def test_8_a_loop_of_another_block() -> None:
    """ "Cannot find the axis jj_outer_inner in parent's leaf_iter_vars"."""
    s = Schedule(product(64, 64, 64))
    copy = s.cache_write("C", "C", "register")
    shared = s.cache_read("C", "A", "shared")
    with pytest.raises(TkError) as error:
        s.compute_at(shared, s.loops(copy)[-1])
    says(error.value, "C reads it outside of", "what is computed under the loop has to be used there")


def test_9_a_loop_that_is_not_there() -> None:
    """ "Operate on iter var jj_outer_inner that is not part of the schedule"."""
    s = Schedule(product(64, 64, 64))
    s.split("C_i1", (None, 16))
    with pytest.raises(TkError) as error:
        s.tensorize("C_i1", "wmma.m16n16k16.f16")
    says(error.value, "no loop or block 'C_i1'", "splitting", "did you mean 'C_i1_")


# ---------------------------------------------------------------- what else a launch may get wrong


def test_a_schedule_that_fits_is_accepted() -> None:
    assert problems_of_launches(lowered(staged(tile=64, depth=16)), SM_70) == ()


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(BadInputError) as error:
        lowered(staged(tile=128, depth=64, threads=2048))
    says(error.value, "a block of 2048 threads is too large", "65536 bytes of shared memory")


def test_private_memory_does_not_pass_values_between_threads() -> None:
    b = Builder("turn")
    x = b.input("x", (64,))
    t = b.compute("t", (64,), lambda i: x[i] * 2.0)
    s = Schedule(b.finish([b.compute("y", (64,), lambda i: t[63 - i])]))
    one, _ = s.split("y_i0", (1, 64))
    inner = s.compute_at("t", one)
    s.set_scope("t", "register")
    s.bind(inner[-1], "threadIdx.x")
    s.bind(s.loops("y")[-1], "threadIdx.x")
    with pytest.raises(TkError) as error:
        lowered(s)
    says(error.value, "t is private to each thread", "set its scope to shared")
    s.set_scope("t", "shared")
    assert problems_of_launches(lowered(s), SM_70) == ()


def private_row(store: str) -> Func:
    """Every thread fills a row of its own, and looks up an element that its number leads to."""
    return parse_func(f"""func row(x: f32[4], at: i64[32]) -> (y: f32[32])
  for t in 0..32 bound(threadIdx.x)
    alloc row: f32[4] @register
    for k in 0..4
      {store}
    y[t] = row[at[t]]
""")


def test_private_memory_is_read_at_a_place_of_the_thread() -> None:
    func = private_row("row[k] = x[k] * 2.0")
    assert problems_of_launches(func, SM_70) == ()
    cond = private_row("if k == t\n        row[k] = x[k] * 2.0")
    assert [item.what.split(",")[0] for item in problems_of_launches(cond, SM_70)] == [
        "row is private to each thread"
    ]


def test_a_grid_of_too_many_blocks() -> None:
    b = Builder("scale")
    x = b.input("x", (70000, 4))
    s = Schedule(b.finish([b.compute("y", (70000, 4), lambda i, j: x[i, j] * 2.0)]))
    s.bind("y_i0", "blockIdx.y")
    with pytest.raises(BadInputError) as error:
        lowered(s)
    says(error.value, "70000 blocks along y", "at most 65535", "blockIdx.x")
