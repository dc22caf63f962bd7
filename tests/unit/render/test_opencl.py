"""Printed OpenCL C on every driver for processors, against the interpreter; and what it looks like."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.core.types import F16, F32, dtype
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import Cast, Func
from compiler.render.device import render_launches
from compiler.render.vocabulary_opencl import OPENCL_CPU, OPENCL_GPU
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target
from tests.support.device_kernels import on_opencl
from tests.support.kernels import lower_all, pack_inputs, unpack_outputs
from tests.support.programs import PROGRAMS, random_schedule, vectorised
from tests.support.schedules import random_inputs
from tests.unit.render.test_types_and_functions import inputs_of, program

TARGET = get_target("opencl-cpu")
LANES = TARGET.facts.lanes(32)


def assert_computes(before: Func, scheduled: Func, library: Path, driver: str) -> None:
    inputs = random_inputs(before)
    with on_opencl([lower_all(scheduled, TARGET.facts)], TARGET, library, driver) as (kernel,):
        got = unpack_outputs(scheduled, kernel(pack_inputs(scheduled, inputs)))
    for name, wanted in interpret(before, inputs).items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.sample(2, each=("vectors", "opencl_driver"))
@pytest.mark.parametrize("vectors", [False, True])
def test_all_types_and_functions(vectors: bool, opencl_library: Path, opencl_driver: str) -> None:
    func = program()
    inputs = inputs_of(func)
    lowered = lower_all(vectorised(func) if vectors else func, TARGET.facts)
    with on_opencl([lowered], TARGET, opencl_library, opencl_driver) as (kernel,):
        got = kernel(inputs)
    for name, wanted in interpret(func, inputs).items():
        np.testing.assert_allclose(
            got[name].astype(np.float64), wanted.astype(np.float64), rtol=3e-6, atol=1e-6, err_msg=name
        )


@pytest.mark.sample(2, each=("name", "opencl_driver"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_vectorised(name: str, opencl_library: Path, opencl_driver: str) -> None:
    func = PROGRAMS[name]()
    assert_computes(func, vectorised(func), opencl_library, opencl_driver)


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(24))
def test_random_schedules(seed: int, opencl_library: Path, opencl_driver: str) -> None:
    source = random.Random(seed)
    func = PROGRAMS[source.choice(list(PROGRAMS))]()
    assert_computes(func, random_schedule(func, source), opencl_library, opencl_driver)


def test_any_number_of_blocks_does_a_parallel_loop(opencl_library: Path, opencl_driver: str) -> None:
    b = Builder("rows")
    x = b.input("x", (7, 5), F32)
    func = b.finish([b.compute("y", (7, 5), lambda i, j: x[i, j] * 2.0)])
    schedule = Schedule(func)
    schedule.parallel(schedule.loops("y")[0])
    inputs = random_inputs(func)
    with on_opencl([lower_all(schedule.func, TARGET.facts)], TARGET, opencl_library, opencl_driver) as (
        kernel,
    ):
        assert [(one.grid, one.elastic) for one in kernel.launches] == [((7, 1, 1), True)]
        for blocks in range(1, 8):
            got = replace(kernel, blocks=blocks)(pack_inputs(func, inputs))
            wanted = 2 * inputs["x"]
            np.testing.assert_array_equal(unpack_outputs(func, got)["y"], wanted, err_msg=f"{blocks} blocks")


def test_private_arrays_without_room_lie_in_global_memory(opencl_library: Path, opencl_driver: str) -> None:
    rows, columns = 5, 40_000
    b = Builder("mirrored")
    x = b.input("x", (rows, columns), F32)
    first = b.compute("first", (rows, columns), lambda i, j: x[i, j] + 1.0)
    last = columns - 1
    second = b.compute("second", (rows, columns), lambda i, j: first[i, last - j] * 2.0)
    func = b.finish([b.compute("y", (rows, columns), lambda i, j: second[i, last - j] - first[i, j])])
    schedule = Schedule(func)
    row = schedule.loops("y")[0]
    for name in ("second", "first"):
        schedule.compute_at(name, row)
        schedule.set_scope(name, "scratch")
    schedule.parallel(row)
    bytes_of_row = 2 * columns * 4
    assert bytes_of_row > (TARGET.facts.limit("shared_bytes") or 0) > bytes_of_row // 2
    lowered = lower_all(schedule.func, TARGET.facts)
    (launch,) = render_launches(lowered, 0, TARGET.vocabulary, TARGET.facts).launches
    assert (launch.block_bytes, launch.shared_bytes) == (bytes_of_row, 0)
    assert_computes(func, schedule.func, opencl_library, opencl_driver)


def scaled(kind: str = "f32") -> Func:
    b = Builder("scaled")
    x = b.input("x", (4, 64), dtype(kind))
    return b.finish([b.compute("y", (4, 64), lambda i, j: x[i, j] * 2.0)])


def printed(func: Func) -> str:
    return render_launches(lower_all(func, TARGET.facts), 3, TARGET.vocabulary, TARGET.facts).text


def test_a_kernel_says_what_it_is() -> None:
    text = printed(vectorised(scaled()))
    head = (
        "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void tk_k3_0("
        "__global const float *restrict b0, __global float *restrict b1)"
    )
    assert head in text
    assert f"vstore{LANES}(" in text
    assert f"vload{LANES}(0, " in text
    for word in ("extern", "nullptr", "::", "__restrict "):  # C++
        assert word not in text, word


def test_narrow_floats_are_integers_in_memory() -> None:
    text = printed(scaled("f16"))
    assert "__global const ushort *restrict b0" in text
    assert "tk_f16_to_f32(" in text
    assert "tk_f32_to_f16(" in text


def test_what_is_rounded_when_stored_is_rounded_once() -> None:
    b = Builder("f")
    x = b.input("x", (LANES,))
    text = printed(b.finish([b.compute("y", (LANES,), lambda i: Cast(F16, x[i] * 2.0))]))
    assert text.count("tk_f32_to_f16(") == 1
    assert "tk_f16_to_f32(" not in text


def test_words_that_differ_for_gpus() -> None:
    assert (OPENCL_CPU.index, OPENCL_GPU.index) == ("long", "int")
    assert OPENCL_CPU.load_aligned is None
    assert OPENCL_GPU.load_aligned is not None
    assert OPENCL_GPU.load_aligned(dtype("f32", 4), "p") == "tk_load_aligned_float4(p)"
    assert OPENCL_GPU.store_aligned is not None
    assert OPENCL_GPU.store_aligned(F16.with_lanes(8), "p", "v") == "tk_store_aligned_ushort8(p, v)"
    device = OPENCL_GPU.device
    assert device is not None
    assert device.axes["threadIdx.y"] == "(int)get_local_id(1)"
    assert device.pointer("const float", "shared") == "__local const float *"
    assert device.pointer("float", "local-scratch") == "__local float *"
    assert device.pointer("float", "scratch") == "__private float *"
    assert device.pointer("const float", "constant") == "__global const float *"
    assert device.array("float", "s0", 8, "shared") == "__local float s0[8] __attribute__((aligned(64)));"
    assert device.array("float", "s0", 8, "scratch") == "float s0[8] __attribute__((aligned(64)));"


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (float("inf"), "f32", "(INFINITY)"),
        (float("-inf"), "f16", "(-INFINITY)"),
        (float("nan"), "f64", "((double)NAN)"),
        (-(2**63), "i64", "(-9223372036854775807L - 1)"),
        (1.5, "f32", None),
        (7, "i32", None),
    ],
)
def test_literals(value: float, kind: str, text: str | None) -> None:
    assert OPENCL_CPU.literal(value, dtype(kind)) == text


def test_masks_become_bytes() -> None:
    kind = dtype("bool", 16)
    assert OPENCL_CPU.store(kind, "p", "m") == "vstore16(as_uchar16(m), 0, p)"
    assert OPENCL_CPU.widen(kind, "v") == "(v != (uchar16)(0))"
    assert OPENCL_CPU.widen(dtype("bool"), "v") == "(v != 0)"
    assert OPENCL_CPU.widen(F32, "v") == "v"
