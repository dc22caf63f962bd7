"""The ten-second test: one small network through every stage, against numpy. Run it before every commit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler

RNG = np.random.default_rng(1)
CONV = RNG.standard_normal((8, 3, 3, 3)).astype(np.float32) * 0.3
BIAS = RNG.standard_normal(8).astype(np.float32)
DENSE = RNG.standard_normal((8, 5)).astype(np.float32)
X = RNG.standard_normal((1, 3, 13, 17)).astype(np.float32)


def tiny() -> onnx.ModelProto:
    """Convolution, activation, pooling to one number a channel, dense layer, softmax."""
    nodes = [
        helper.make_node("Conv", ["x", "conv", "bias"], ["c"], pads=[1, 1, 1, 1], strides=[2, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "dense"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=-1),
    ]
    constants = {"conv": CONV, "bias": BIAS, "dense": DENSE}
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected() -> np.ndarray:
    """What the network computes, in float64."""
    padded = np.pad(X.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2]
    conv = np.einsum("nchwij,ocij->nohw", windows, CONV) + BIAS[None, :, None, None]
    logits = np.maximum(conv, 0).mean((2, 3)) @ DENSE
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The model and its library."""
    model = tmp_path_factory.mktemp("tiny") / "tiny.onnx"
    library = model.with_suffix(".so")
    onnx.save(tiny(), model)
    report = compiler.compile_model(model, compiler.CompileOptions(output=library))
    assert report.library_bytes == library.stat().st_size
    return model, library


def test_a_compile_tells_how_far_it_is(paths: tuple[Path, Path], tmp_path: Path) -> None:
    told: list[tuple[str, float, float]] = []
    options = compiler.CompileOptions(output=tmp_path / "tiny.so", threads=3)  # not in the cache
    report = compiler.compile_model(paths[0], options, progress=lambda *one: told.append(one))
    assert list(dict.fromkeys(one[0] for one in told))[:6] == [
        "import",
        "rewrite",
        "fuse",
        "layout",
        "loops",
        "kernels",
    ]
    kernels = [one for one in told if one[0] == "kernels"]
    assert [one[1] for one in kernels] == sorted(one[1] for one in kernels)
    assert kernels[-1][1] == kernels[-1][2] >= report.kernels
    assert ("link", 0, 0) in told


@pytest.mark.parametrize("threads", [1, 2])
def test_the_library_computes_the_network(paths: tuple[Path, Path], threads: int) -> None:
    with compiler.load(paths[1], threads=threads) as model:
        result = model.run({"x": X})["y"]
    assert np.abs(result - expected()).max() < 1e-6


def test_the_library_is_verified_layer_by_layer(paths: tuple[Path, Path]) -> None:
    report = compiler.verify_library(compiler.VerifyRequest(paths[1], paths[0], layers=True))
    assert report.passed
    assert report.layers
    assert all(one.passed for one in report.layers)


def test_every_kernel_replays_from_the_manifest(paths: tuple[Path, Path]) -> None:
    report = compiler.inspect_library(paths[1], kernels=True, check=True)
    assert report.kernels
    for kernel in report.kernels:
        assert kernel.replays, kernel
        assert kernel.kind != "opaque"
