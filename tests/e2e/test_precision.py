"""`--precision`: products of fewer bits, compiled for GPUs, run by the emulator, held against onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.pipeline import run_job
from compiler.stages.job import CompileJob
from tests.support.command import tk
from tests.support.emulated_models import text_only

CHANNELS, SIZE, HEADS, WIDTH = 16, 6, 2, 12


def _constant(name: str, *shape: int) -> onnx.TensorProto:
    source = np.random.default_rng(sum(map(ord, name)))
    scale = np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 1.0
    return numpy_helper.from_array((source.standard_normal(shape) / scale).astype(np.float32), name)


def _model(
    nodes: list[onnx.NodeProto], x: list[int], y: list[int], *known: onnx.TensorProto
) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(known))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def residual() -> onnx.ModelProto:
    """Convolutions, one by channels, a residual sum, a pool, a concatenation, a dense layer and a softmax."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], group=CHANNELS),
        node("Conv", ["c2", "w3"], ["c3"]),
        node("Add", ["c3", "r1"], ["s"]),
        node("Relu", ["s"], ["r2"]),
        node("MaxPool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "w3"], ["c4"]),
        node("Concat", ["c4", "p"], ["j"], axis=1),
        node("Conv", ["j", "w5"], ["c5"]),
        node("Flatten", ["c5"], ["f"]),
        node("Gemm", ["f", "w6", "b6"], ["g"], transB=1),
        node("Softmax", ["g"], ["y"], axis=1),
    ]
    flat = 10 * (SIZE // 2) ** 2
    return _model(
        nodes, [1, CHANNELS, SIZE, SIZE], [1, 7],
        _constant("w1", CHANNELS, CHANNELS, 3, 3), _constant("b1", CHANNELS),
        _constant("w2", CHANNELS, 1, 3, 3), _constant("w3", CHANNELS, CHANNELS, 1, 1),
        _constant("w5", 10, 2 * CHANNELS, 1, 1),
        _constant("w6", 7, flat), _constant("b6", 7),
    )  # fmt: skip


def attention() -> onnx.ModelProto:
    """Layer normalisation, two heads of attention, and what is added to it."""
    node, long = helper.make_node, TensorProto.INT64
    width = HEADS * 8
    nodes = [
        node("LayerNormalization", ["x", "scale", "shift"], ["n"]),
        *(node("MatMul", ["n", f"m{one}"], [f"f{one}"]) for one in "qkv"),
        *(node("Reshape", [f"f{one}", "heads"], [f"h{one}"]) for one in "qkv"),
        *(node("Transpose", [f"h{one}"], [f"t{one}"], perm=[0, 2, 1, 3]) for one in "qv"),
        node("Transpose", ["hk"], ["tk"], perm=[0, 2, 3, 1]),
        node("MatMul", ["tq", "tk"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "tv"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "flat"], ["rows"]),
        node("MatMul", ["rows", "mo"], ["o"]),
        node("Add", ["o", "x"], ["y"]),
    ]
    shapes = [
        helper.make_tensor("heads", long, [4], [1, WIDTH, HEADS, 8]),
        helper.make_tensor("flat", long, [3], [1, WIDTH, width]),
    ]
    matrices = [_constant(f"m{one}", width, width) for one in "qkvo"]
    norm = [_constant("scale", width), _constant("shift", width)]
    return _model(nodes, [1, WIDTH, width], [1, WIDTH, width], *shapes, *matrices, *norm)


MODELS = {"residual": residual, "attention": attention}
TABLE = [
    ("cuda:sm_90", "f16"), ("cuda:sm_80", "bf16"), ("cuda:sm_80", "tf32"), ("cuda:sm_70", "f16"),
    ("cuda:sm_90", "tf32x3"),
    ("rocm:gfx90a", "f16"), ("rocm:gfx90a", "bf16"), ("rocm:gfx906", "f16"), ("dtk", "f16"),
]  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("target", "precision"), TABLE)
def test_verified(
    name: str, target: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_only(monkeypatch)
    model, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(MODELS[name](), model)
    options = compiler.CompileOptions(output=library, target=target, precision=precision)
    run_job(CompileJob.of(model, options))
    request = compiler.VerifyRequest(library, model, runs=1, device="emulator")
    verified = compiler.verify_library(request, timeout=600)
    assert verified.passed, verified.outputs
    assert any(f"--precision {precision}" in note for note in verified.notes)
    assert compiler.inspect_library(library).precision == precision
    # with tf32 small products may stay f32; else it shows that factors were rounded
    if not precision.startswith("tf32"):
        assert verified.needed > 2e-6
        with compiler.load(library, device="emulator") as loaded:
            manifest = loaded.manifest
            assert {one["dtype"] for one in (*manifest["inputs"], *manifest["outputs"])} == {"f32"}


@pytest.mark.parametrize(
    ("target", "precision", "why"),
    [
        ("cpu", "f16", "on processors"),
        ("opencl-cpu", "bf16", "on processors"),
        ("sycl-cpu", "f16", "on processors"),
        ("cuda:sm_75", "bf16", "no unit that multiplies bf16"),
        ("cuda:sm_75,sm_80", "bf16", "no unit that multiplies bf16"),
        ("rocm:gfx906", "bf16", "no unit that multiplies bf16"),
        ("opencl-intel", "bf16", "no unit that multiplies bf16"),
        ("opencl-nvidia", "tf32", "no unit that multiplies tf32"),
        ("rocm:gfx90a", "tf32x3", "no unit that multiplies tf32x3"),
    ],
)
def test_refused(target: str, precision: str, why: str, tmp_path: Path) -> None:
    onnx.save(residual(), tmp_path / "m.onnx")
    options = compiler.CompileOptions(output=tmp_path / "m.so", target=target, precision=precision)
    with pytest.raises(compiler.BadInputError, match=f"cannot be rounded to {precision}") as found:
        compiler.compile_model(tmp_path / "m.onnx", options)
    assert (found.value.code, why in found.value.why) == (3, True)


@pytest.mark.parametrize("options", [["--precision", "f8"], ["--precision", "f16", "--tf32"]])
def test_options_that_make_no_sense(options: list[str], tmp_path: Path) -> None:
    onnx.save(residual(), tmp_path / "m.onnx")
    done = tk("compile", str(tmp_path / "m.onnx"), "--target", "cuda:sm_80", *options)
    assert done.code == 2
    assert "precision" in done.err


@pytest.mark.parametrize("target", ["opencl-nvidia", "opencl-amd", "opencl-intel", "sycl-amd:gfx90a"])
def test_other_languages_store_16_bits(target: str, tmp_path: Path) -> None:
    onnx.save(residual(), tmp_path / "m.onnx")
    sizes = {}
    for precision in ("f32", "f16"):
        output = tmp_path / precision
        options = compiler.CompileOptions(
            output=output, target=target, precision=precision, emit="source", dump=tmp_path / f"d-{precision}"
        )
        compiler.compile_model(tmp_path / "m.onnx", options)
        manifest = json.loads((tmp_path / f"d-{precision}" / "62-manifest.json").read_text())
        sizes[precision] = manifest["constant_bytes"], manifest["arena_bytes"]
        assert manifest["precision"] == precision
    assert sizes["f16"][0] < 0.6 * sizes["f32"][0]
    assert sizes["f16"][1] < 0.7 * sizes["f32"][1]


@pytest.mark.parametrize("target", ["opencl-nvidia", "opencl-amd", "opencl-intel"])
def test_opencl_needs_no_extension(target: str, opencl_driver: str, tmp_path: Path) -> None:
    """Drivers for processors run what is scheduled for GPUs; the text converts 16 bits by itself."""
    model, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(residual(), model)
    options = compiler.CompileOptions(output=library, target=target, precision="f16")
    run_job(CompileJob.of(model, options))
    request = compiler.VerifyRequest(library, model, runs=1, device=f"any:{opencl_driver}")
    verified = compiler.verify_library(request, timeout=600)
    assert verified.passed, verified.outputs
    assert verified.needed > 2e-6
