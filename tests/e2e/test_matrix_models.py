"""Models whose products run on matrix units: compiled, run by the emulator, verified; and what decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.core.types import F32, dtype
from compiler.loops.build import Builder
from compiler.loops.ir import Call, Cast, Expr, Func, Select, all_of, const
from compiler.pipeline import run_job
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.rules.threads.matrix import MatrixGemm, matrix_gemm, units_for_types
from compiler.schedule.schedule import Schedule
from compiler.stages.job import CompileJob
from compiler.targets import cuda, get_target
from compiler.targets.matrix_rates import MATRIX_RATES, common_rates
from tests.support.emulated_models import text_only

CHANNELS, RESULTS, SIZE, FEATURES = 16, 24, 6, 10


def _model(kind: int) -> onnx.ModelProto:
    """A convolution with padding, relu, and a product with a bias: no extent is a whole number of tiles."""
    source = np.random.default_rng(0)

    def constant(name: str, *shape: int) -> onnx.TensorProto:
        values = source.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 1)
        return numpy_helper.from_array(values.astype(helper.tensor_dtype_to_np_dtype(kind)), name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["t", "m"], ["p"]),
        helper.make_node("Add", ["p", "d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, [1, CHANNELS, SIZE, SIZE])],
        [helper.make_tensor_value_info("y", kind, [1, SIZE, SIZE, FEATURES])],
        [
            constant("w", RESULTS, CHANNELS, 3, 3),
            constant("b", RESULTS),
            constant("m", RESULTS, FEATURES),
            constant("d", FEATURES),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("target", "kind", "tf32", "call"),
    [
        ("cuda:sm_70", TensorProto.FLOAT16, False, "tk_mma_m8n8k4_f16"),
        ("cuda:sm_70", TensorProto.FLOAT16, False, "tk_wmma_mma_bt"),
        pytest.param("cuda:sm_80", TensorProto.FLOAT16, False, "tk_mma_m16n8k", marks=pytest.mark.slow),
        ("cuda:sm_80", TensorProto.FLOAT, True, "tk_mma_m16n8k8_tf32"),
        ("rocm:gfx908", TensorProto.FLOAT, False, "tk_mfma_m16n16k4_f32"),
        pytest.param(
            "rocm:gfx90a", TensorProto.FLOAT16, False, "tk_mfma_m16n16k16_f16", marks=pytest.mark.slow
        ),
    ],
)
def test_verified(
    target: str, kind: int, tf32: bool, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MatrixGemm, "thread_tiles", lambda *_: [])  # so small a model is as cheap without
    if target == "cuda:sm_70":  # which has two units for the type
        name = {"tk_mma_m8n8k4_f16": "mma.m8n8k4.f16", "tk_wmma_mma_bt": "wmma.m16n16k16"}[call]
        rates = {"sm_70": {name: MATRIX_RATES["sm_70"][name]}}
        monkeypatch.setattr(cuda, "common_rates", lambda archs: common_rates(archs, rates))
    modules: list[str] = []
    text_only(monkeypatch, lambda text: (modules.append(text), text)[1])
    model, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(_model(kind), model)
    options = compiler.CompileOptions(output=library, target=target, precision="tf32" if tf32 else "f32")
    run_job(CompileJob.of(model, options))
    assert call in modules[0]
    verified = compiler.verify_library(
        compiler.VerifyRequest(library, model, runs=1, device="emulator"), timeout=600
    )
    assert verified.passed, verified.outputs
    assert any("tf32" in note for note in verified.notes) == tf32
    assert (compiler.inspect_library(library).precision == "tf32") == tf32
    if tf32:  # that it was rounded shows, so the tolerance of f32 alone would not have done
        assert verified.needed > 2e-6


def test_tf32_is_refused_where_nothing_has_it(tmp_path: Path) -> None:
    onnx.save(_model(TensorProto.FLOAT), tmp_path / "m.onnx")
    for target in ("cuda:sm_70", "cuda:sm_70,sm_80", "rocm:gfx90a", "cpu"):
        options = compiler.CompileOptions(output=tmp_path / "m.so", target=target, precision="tf32")
        with pytest.raises(compiler.BadInputError, match="cannot be rounded to tf32") as found:
            compiler.compile_model(tmp_path / "m.onnx", options)
        assert found.value.code == 3


def _convolution(channels: int, size: int, kind: str) -> Func:
    """A convolution of ResNet-50: 3 x 3, as many results as channels."""
    b = Builder("conv")
    factor = dtype(kind)
    x = b.input("x", (1, channels, size, size), factor)
    w = b.input("w", (channels, channels, 3, 3), factor)

    def term(*at: Expr) -> Expr:
        n, o, i, j, c, r, s = at
        row, column = i + r - 1, j + s - 1
        inside = all_of(row.ge(0), row.lt(size), column.ge(0), column.lt(size))
        value = Select(inside, x[n, c, row, column], const(0, factor))
        return Cast(F32, value) * Cast(F32, w[o, c, r, s]) if kind != "f32" else value * w[o, c, r, s]

    return b.finish([b.reduce("y", (1, channels, size, size), (channels, 3, 3), term, dtype=F32)])


@pytest.mark.parametrize(
    ("target", "kind", "unit"),
    [
        ("cuda:sm_70", "f16", "wmma.m16n16k16"),
        ("cuda:sm_75", "f16", "mma.m16n8k8.f16"),
        ("sycl-nvidia:sm_70", "f16", "wmma.m16n16k16"),
        ("sycl-nvidia:sm_80", "bf16", "wmma.m16n16k16.bf16"),
        ("sycl-intel:pvc", "f16", "joint_matrix.m8n16k16.f16"),
        ("sycl-intel:dg2", "bf16", "joint_matrix.m8n8k16.bf16"),
        ("sycl-intel:spir64", "f16", ""),
    ],
)
def test_the_unit_that_is_chosen(target: str, kind: str, unit: str) -> None:
    """Tiles of a language and an architecture; none where it is not known which of Intel's GPUs it is."""
    facts, chooser = get_target(target, precision=kind).facts, AnalyticChooser()
    schedule = Schedule(_convolution(64, 56, kind))
    assert matrix_gemm(schedule, "y", facts, chooser) == bool(unit)
    units = units_for_types(dtype(kind), F32, facts)
    number = chooser.decisions.get("y.unit", (0,))[0]
    assert (units[number - 1].name if number else "") == unit
    calls = {item.name for item in schedule.func.walk() if isinstance(item, Call)}
    assert ("wmma.mma_bt" in calls) == unit.startswith(("wmma", "joint"))


@pytest.mark.parametrize(("channels", "size"), [(64, 56), (128, 28), (256, 14), (512, 7)])
@pytest.mark.parametrize(
    ("target", "kind", "expected"),
    [("cuda:sm_80", "f16", True), ("cuda:sm_70", "f32", False), ("cuda:sm_75,sm_90", "f16", True)],
)
def test_the_cheaper_form_is_chosen(target: str, kind: str, expected: bool, channels: int, size: int) -> None:
    chooser = AnalyticChooser()
    schedule = Schedule(_convolution(channels, size, kind))
    assert matrix_gemm(schedule, "y", get_target(target).facts, chooser) == expected
    assert chooser.decisions.get("y.unit", (0,)) != (0,) or not expected


def test_a_slow_unit_is_left_alone() -> None:
    """m8n8k4 exists on sm_80, at the rate of plain arithmetic."""
    facts = replace(get_target("cuda:sm_80").facts, matrix_rates=(("mma.m8n8k4.f16", 8),))
    chooser = AnalyticChooser()
    assert not matrix_gemm(Schedule(_convolution(64, 56, "f16")), "y", facts, chooser)
    assert chooser.decisions["y.unit"] == (0,)
