"""Every network of the zoo: valid, deterministic, of the published size, and alive under onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from toolchain import zoo
from toolchain.zoo import build, write
from toolchain.zoo.transformer_parts import Spelling

ort = pytest.importorskip("onnxruntime")

_BIG_PARAMETERS = 40_000_000
_BIG = [name for name, one in zoo.networks().items() if (one.parameters or 0) > _BIG_PARAMETERS]
_SMALL = [name for name in zoo.networks() if name not in _BIG]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Path]:
    """One network's file, removed with its data when the next one is asked for."""
    path = tmp_path_factory.mktemp("zoo") / "model.onnx"
    zoo.make(request.param, path)
    yield path
    for file in path.parent.iterdir():
        file.unlink()


@pytest.mark.sample(12)
@pytest.mark.parametrize(("model_path", "name"), [(n, n) for n in _SMALL], indirect=["model_path"])
def test_counts_are_the_recorded_ones(model_path: Path, name: str) -> None:
    model = onnx.load(model_path)
    record = zoo.network(name)
    assert record.parameters == _parameters(model)
    assert record.gflop == pytest.approx(_gflop(model), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", _BIG)
def test_counts_of_big_networks_are_the_recorded_ones(name: str) -> None:
    draft = build.draft(zoo.network(name))
    model = onnx.ModelProto()
    model.CopyFrom(draft.model)
    for one in draft.initializers:
        tensor = model.graph.initializer.add(name=one.name, dims=one.shape, data_type=one.data_type)
        if one.data_type != onnx.TensorProto.FLOAT:
            tensor.raw_data = one.make().tobytes()
    record = zoo.network(name)
    assert record.parameters == _parameters(model)
    assert record.gflop == pytest.approx(_gflop(model), rel=0.01)


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    ("model_path", "name"),
    [*((n, n) for n in _SMALL), *(pytest.param(n, n, marks=pytest.mark.slow) for n in _BIG)],
    indirect=["model_path"],
)
def test_runs_with_well_scaled_results(model_path: Path, name: str) -> None:
    onnx.checker.check_model(str(model_path), full_check=True)
    session = _session(model_path)
    record = zoo.network(name)
    assert {one.name: tuple(one.shape) for one in session.get_inputs()} == dict(record.inputs)
    for sample in (_normal, _unit):
        for output in session.run(None, _feeds(record, sample)):
            _assert_well_scaled(output)


@pytest.mark.parametrize("name", ["mnist", "shufflenet", "unet", "transformer-encoder"])
def test_bytes_are_deterministic(tmp_path: Path, name: str) -> None:
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    zoo.make(name, first)
    zoo.make(name, second)
    assert first.read_bytes() == second.read_bytes()


def test_networks_differ_in_their_weights(tmp_path: Path) -> None:
    weights = []
    for name in ("caffenet", "rcnn-ilsvrc13"):
        one = next(one for one in build.draft(zoo.network(name)).initializers if one.name == "conv1.weight")
        weights.append(one.make())
    assert not np.array_equal(weights[0], weights[1])


def test_big_constants_lie_beside_the_model(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside.onnx", tmp_path / "outside.onnx"
    draft = build.draft(zoo.network("unet"))
    write.write_model(draft, inside)
    write.write_model(draft, outside, embed_limit=1000)
    assert outside.stat().st_size < 100_000 < (tmp_path / "outside.onnx.data").stat().st_size
    feed = {"image": _normal((1, 3, 128, 128))}
    np.testing.assert_array_equal(_session(inside).run(None, feed)[0], _session(outside).run(None, feed)[0])


def test_an_old_ir_version_lists_its_constants_as_inputs(tmp_path: Path) -> None:
    path = tmp_path / "mnist.onnx"
    zoo.make("mnist", path)
    model = onnx.load(path)
    assert model.ir_version == 3
    assert {one.name for one in model.graph.initializer} < {one.name for one in model.graph.input}


def test_residual_activations_keep_their_size(tmp_path: Path) -> None:
    """The sums of a 50-layer network neither vanish nor explode on the way through."""
    path = tmp_path / "resnet.onnx"
    zoo.make("resnet50-v1", path)
    model = onnx.load(path)
    sums = [node.output[0] for node in model.graph.node if node.op_type == "Add"]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in sums)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    scales = [float(np.std(values)) for values in session.run(sums, {"data": _normal((1, 3, 224, 224))})]
    assert min(scales) > 0.1
    assert max(scales) < 10.0


SPELT = [
    ("bert", {"tokens": 9, "words": 50, "width": 64, "layers": 2, "heads": 2}),
    ("vit", {"image": 32, "width": 64, "layers": 2, "heads": 2}),
    ("gpt2", {"tokens": 9, "words": 50, "width": 64, "layers": 2, "heads": 2}),
    ("gpt2", {"tokens": 2, "past": 5, "words": 50, "width": 64, "layers": 2, "heads": 2}),
    ("whisper_encoder", {"frames": 20, "mels": 8, "width": 64, "layers": 2, "heads": 2}),
    ("swin", {"image": 56, "width": 32, "layers": (2, 2)}),
    ("convnext", {"image": 32, "width": 16, "layers": (1, 1)}),
]


@pytest.mark.parametrize(("builder", "sizes"), SPELT)
def test_every_spelling_means_the_same(builder: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    results, operators = [], []
    for spelling in Spelling:
        path = tmp_path / f"{spelling}.onnx"
        draft = build.BUILDERS[builder]("small", 1.0, spelling=spelling, **sizes)
        write.write_model(draft, path)
        onnx.checker.check_model(str(path), full_check=True)
        feeds = {one.name: _any_input(one) for one in draft.model.graph.input}
        results.append(_session(path).run(None, feeds))
        operators.append({node.op_type for node in draft.model.graph.node})
    for one in results[1:]:
        for actual, expected in zip(one, results[0], strict=True):
            np.testing.assert_allclose(actual, expected, atol=2e-5)
    fused = {"LayerNormalization", "Gelu", "Attention"}
    assert not operators[0] & fused
    assert "LayerNormalization" in operators[1]
    assert operators[2] - operators[1] <= {"Attention"}


def _any_input(value: onnx.ValueInfoProto) -> np.ndarray:
    """Normal numbers, or integers that are 0 and 1 by turns."""
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        return _normal(shape)
    return (np.arange(math.prod(shape)) % 2).reshape(shape)


def _feeds(record: zoo.Network, sample: Callable[[tuple[int, ...]], np.ndarray]) -> dict[str, np.ndarray]:
    choices, generator = dict(record.choices), np.random.default_rng(2)
    return {
        name: generator.integers(0, choices[name], shape) if name in choices else sample(shape)
        for name, shape in record.inputs
    }


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _normal(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _unit(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).random(shape, dtype=np.float32)


def _assert_well_scaled(output: np.ndarray) -> None:
    values = output.astype(np.float64).ravel()
    assert np.isfinite(values).all()
    if output.dtype.kind != "f":
        assert np.unique(values).size > 2  # labels
        return
    assert 1e-4 < (values.std() if values.size > 1 else abs(values[0])) < 10.0
    if values.min() >= 0.0 and abs(values.sum() - 1.0) < 1e-3:
        # A softmax: not one-hot, not uniform, and no entry lost to underflow.
        assert values.max() < 0.9
        assert values.max() > 3.0 / values.size
        assert values.min() > 1e-20


def _parameters(model: onnx.ModelProto) -> int:
    """Trained values: float constants with dimensions, without the statistics of normalisations."""
    statistics = {
        name for node in model.graph.node if node.op_type == "BatchNormalization" for name in node.input[3:]
    }
    scales = {node.input[2] for node in model.graph.node if node.op_type == "Resize"}
    return sum(
        math.prod(one.dims)
        for one in model.graph.initializer
        if one.data_type == onnx.TensorProto.FLOAT and one.dims and one.name not in statistics | scales
    )


def _gflop(model: onnx.ModelProto) -> float:
    """Two operations per multiply-add of convolutions and matrix products, from inferred shapes."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim]
        for one in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    shapes.update({one.name: list(one.dims) for one in model.graph.initializer})
    total = 0
    for node in model.graph.node:
        if node.op_type == "Conv":
            total += math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])
        elif node.op_type == "ConvTranspose":
            total += math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])
        elif node.op_type in ("Gemm", "MatMul"):
            total += math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
        elif node.op_type in ("LSTM", "GRU"):
            total += shapes[node.input[0]][0] * sum(math.prod(shapes[one]) for one in node.input[1:3])
    return 2e-9 * total


@pytest.mark.parametrize("name", zoo.of_free_sizes())
def test_of_free_sizes_as_recorded(name: str) -> None:
    record = zoo.network(name)
    draft = build.draft(record)
    drawn = (one for one in draft.initializers if one.name.endswith(("weight", "scale", "words")))
    assert sum(math.prod(one.shape) for one in drawn) == record.parameters
    inputs = {
        one.name: tuple(dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim)
        for one in draft.model.graph.input
    }
    assert inputs == dict(record.inputs)
