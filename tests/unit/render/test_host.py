"""The plan's source compiles and says what the plan says."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from compiler.core.settings import load_settings
from compiler.core.types import BF16, BOOL, F32, I64
from compiler.render.host import (
    PLAN_VERSION,
    ArgKind,
    HostPlan,
    PlanArg,
    PlanDim,
    PlanStep,
    PlanSymbol,
    PlanTensor,
    render_plan,
)
from compiler.targets import get_target
from compiler.targets.build import compile_object
from compiler.targets.toolchain import find_cxx

PLAN = HostPlan(
    inputs=(PlanTensor(F32, (PlanDim(1), PlanDim(3))), PlanTensor(BOOL, ())),
    outputs=(PlanTensor(BF16, (PlanDim(-1, (1,)), PlanDim(9, (2,), 1, 3))), PlanTensor(I64, (PlanDim(2),))),
    steps=(
        PlanStep(3, (PlanArg(ArgKind.INPUT, 1), PlanArg(ArgKind.CONST, offset=64)), 5),
        PlanStep(0, (PlanArg(ArgKind.ARENA, 0, 1 << 33, 640), PlanArg(ArgKind.OUTPUT)), 4),
    ),
    arena_bytes=1 << 34,
    scratch_bytes=128,
    constants_bytes=77,
    features=("avx2", "sse4.1"),
    symbols=(PlanSymbol(1, 64, 2),),
    threads=2,
    sample_bytes=1 << 35,
    checks=1,
    sizes=1,
    first_size=0,
)

_READER = """
#include "tk_plan.h"
extern "C" void tk_k0(void *const *, tk_exec *) {}
extern "C" void tk_k3(void *const *, tk_exec *) {}
extern "C" __attribute__((visibility("default"))) int64_t read(int64_t *out) {
  const tk_plan &p = tk_plan_model;
  const int64_t all[] = {
                    (int64_t)p.version, (int64_t)p.n_inputs, (int64_t)p.n_outputs, (int64_t)p.n_symbols,
                    (int64_t)p.n_steps, (int64_t)p.n_args, (int64_t)p.n_features, (int64_t)p.threads,
                    p.arena_bytes, p.scratch_bytes, p.constants_bytes, (int64_t)p.inputs[0].rank,
                    p.inputs[0].dims[1].extent, (int64_t)p.inputs[1].dtype_code,
                    (int64_t)p.outputs[0].dtype_code,
                    p.outputs[0].dims[0].extent, p.outputs[0].dims[0].factors[0],
                    p.outputs[0].dims[1].factors[0], p.outputs[0].dims[1].offset,
                    p.outputs[0].dims[1].divisor, (int64_t)(p.outputs[1].dims[0].factors == nullptr),
                    (int64_t)p.outputs[1].dtype_bits, p.symbols[0].max,
                    (int64_t)p.steps[1].first_arg, (int64_t)p.steps[0].kernel, (int64_t)p.args[2].kind,
                    p.args[2].offset, (int64_t)p.args[0].index, (int64_t)(p.steps[0].fn == tk_k3),
                    (int64_t)p.features[1][3], p.args[2].sample_offset, p.sample_bytes, p.n_checks,
                    (int64_t)p.n_sizes, (int64_t)p.first_size};
  __builtin_memcpy(out, all, sizeof all);
  return sizeof all / sizeof all[0];
}
"""


def test_tables_are_read_back(tmp_path: Path) -> None:
    target, cxx = get_target("cpu:x86-64"), find_cxx(load_settings())
    parts = []
    for name, text in (("plan", render_plan(PLAN)), ("reader", _READER)):
        parts.append(tmp_path / f"{name}.o")
        parts[-1].write_bytes(compile_object(cxx, (*target.flags(cxx), "-Werror"), name, text))
    library = tmp_path / "plan.so"
    subprocess.run([cxx.path, "-shared", *parts, "-o", library], check=True, timeout=60)
    values = (ctypes.c_int64 * 64)()
    count = ctypes.CDLL(str(library)).read(values)
    assert list(values)[:count] == [
        PLAN_VERSION, 2, 2, 1, 2, 4, 2, 2, 1 << 34, 128, 77, 2,
        3, 6, 4, -1, 1, 2, 1, 3, 1, 64, 64, 2, 5, 3, 1 << 33, 1, 1, ord("4"), 640, 1 << 35, 1, 1, 0,
    ]  # fmt: skip


def test_same_plan_same_text() -> None:
    assert render_plan(PLAN) == render_plan(PLAN)
