"""Libraries of models that leave their batch open: as onnxruntime for any number of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler import CompileOptions
from compiler.library_inspection import inspect_library
from compiler.runtime.manifest import manifest_of
from tests.support.command import Result
from tests.support.emulated_models import TARGETS, text_only

Tk = Callable[..., Result]
Array = np.ndarray
node = helper.make_node
COUNTS = (1, 3, 8, 2)
"""Memory grows, and shrinks again."""


def some(*shape: int) -> Array:
    scale = 1 / np.sqrt(np.prod(shape[1:]) or 1)
    return (np.random.default_rng(shape).standard_normal(shape) * scale).astype(np.float32)


def model(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str | None], **weights: Array
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


MODELS = {
    "elementwise": model([node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "x"], ["y"])], ("samples", 5, 7)),
    "no name": model([node("Relu", ["x"], ["y"])], (None, 3)),
    "dense layers": model(
        [
            node("Gemm", ["x", "w", "b"], ["a"], transB=1),
            node("Relu", ["a"], ["r"]),
            node("MatMul", ["r", "v"], ["m"]),
            node("Softmax", ["m"], ["y"]),
        ],
        ("N", 37),
        w=some(64, 37),
        b=some(64),
        v=some(64, 10),
    ),
    "tokens": model(
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("Transpose", ["a"], ["t"], perm=[0, 2, 1]),
            node("Transpose", ["x"], ["u"], perm=[0, 2, 1]),
            node("Concat", ["t", "u"], ["y"], axis=1),
        ],
        ("N", 9, 24),
        w=some(24, 40),
    ),
    # On devices a sum in chunks, whose parts lie in a workspace until all of them are there.
    "long sums": model(
        [
            node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
            node("Conv", ["c", "l"], ["y"], pads=[1, 1, 1, 1]),
        ],
        ("N", 64, 4, 4),
        k=some(64, 64, 3, 3),
        l=some(64, 64, 3, 3),
    ),
    # Winograd in three nests, a concatenation in place, a view, workspaces.
    "convolutions": model(
        [
            node("Conv", ["x", "k", "b"], ["c"], pads=[1, 1, 1, 1]),
            node("Relu", ["c"], ["r"]),
            node("Conv", ["r", "l"], ["d"], pads=[1, 1, 1, 1]),
            node("Concat", ["d", "r"], ["j"], axis=1),
            node("Conv", ["j", "m"], ["e"], strides=[2, 2]),
            node("Flatten", ["e"], ["f"]),
            node("Gemm", ["f", "w"], ["y"], transB=1),
        ],
        ("N", 3, 20, 20),
        k=some(32, 3, 3, 3),
        b=some(32),
        l=some(32, 32, 3, 3),
        m=some(8, 64, 1, 1),
        w=some(10, 800),
    ),
}


def check(name: str, target: str, directory: Path, device: str | None = None, threads: int = 1) -> None:
    """Several batches in turns, by one library."""
    path, library = directory / "m.onnx", directory / "m.so"
    onnx.save(MODELS[name], path)
    compiler.compile_model(path, CompileOptions(output=library, target=target))
    assert manifest_of(library)["batch"]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with compiler.load(library, device=device) as loaded, loaded.context(threads) as context:
        for count in COUNTS:
            x = some(count, *loaded.inputs[0].shape[1:])
            (expected,) = session.run(None, {"x": x})
            given = np.full_like(expected, np.nan)
            assert context.run({"x": x}, out={"y": given})["y"] is given
            np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(context.run({"x": x})["y"], given)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_as_onnxruntime(name: str, threads: int, tmp_path: Path) -> None:
    check(name, "cpu", tmp_path, threads=threads)


@pytest.mark.parametrize("name", MODELS)
def test_on_a_device(name: str, opencl_driver: str, tmp_path: Path) -> None:
    """Samples of 35 and 37 numbers, and ten results of each, do not lie as the caller's do."""
    check(name, "opencl-cpu", tmp_path, opencl_driver)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", TARGETS)
def test_in_the_emulator(name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_only(monkeypatch)
    check(name, target, tmp_path, "emulator")


def test_the_library_says_what_is_free(tk: Tk, tmp_path: Path) -> None:
    onnx.save(MODELS["convolutions"], tmp_path / "m.onnx")
    assert tk("compile", "m.onnx").code == 0
    manifest = manifest_of(tmp_path / "m.so")
    assert manifest["batch"]["name"] == "N"
    assert [one["shape"] for one in (*manifest["inputs"], *manifest["outputs"])] == [
        ["N", 3, 20, 20],
        ["N", 10],
    ]
    assert manifest["sample_bytes"] > 4 * 32 * 20 * 20
    shown = tk("inspect", "m.so").out
    assert "Nx3x20x20" in shown
    assert " for each sample" in shown
    assert inspect_library(tmp_path / "m.so", check=True).kernels, "a trace gives the same text again"
    np.save(tmp_path / "x.npy", some(5, 3, 20, 20))
    for words in (
        ("run", "m.so", "--input", "x=x.npy"),
        ("verify", "m.so", "--model", "m.onnx"),
        ("run", "m.so"),
    ):
        done = tk(*words)
        assert done.code == 0, done.err


def test_rates_are_those_of_all_samples(tmp_path: Path) -> None:
    path, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(MODELS["convolutions"], path)
    compiler.compile_model(path, CompileOptions(output=library, target="cpu"))
    request = compiler.BenchRequest(library, seconds=0.02, warmup=0, dims={"N": 5}, threads=1)
    report = compiler.bench_library(request)
    assert report.gflops == pytest.approx(5 * manifest_of(library)["flops"] / report.p50_ms * 1e-6)


def test_an_extent_beyond_the_largest_is_refused(tmp_path: Path) -> None:
    path, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(MODELS["no name"], path)
    compiler.compile_model(path, CompileOptions(output=library, target="cpu"))
    with compiler.load(library) as loaded, pytest.raises(compiler.BadInputError, match="expected 1 to 65536"):
        loaded.run({"x": np.zeros((65537, 3), np.float32)})


@pytest.mark.parametrize("target", ["cpu", "opencl-cpu"])
def test_where_samples_meet_the_batch_is_a_size_like_others(target: str, tmp_path: Path) -> None:
    proto = model([node("Softmax", ["x"], ["y"], axis=0)], ("N", 4))
    onnx.save(proto, tmp_path / "m.onnx")
    compiler.compile_model(tmp_path / "m.onnx", CompileOptions(output=tmp_path / "m.so", target=target))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert manifest_of(tmp_path / "m.so")["batch"] is None
    with compiler.load(tmp_path / "m.so") as loaded:
        for count in COUNTS:
            x = some(count, 4)
            np.testing.assert_allclose(loaded.run({"x": x})["y"], *session.run(None, {"x": x}), rtol=1e-5)
