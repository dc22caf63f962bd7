"""Composite operators without a body in ONNX: training and chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from compiler.core.diagnostics import BadInputError
from compiler.frontend.onnx import import_proto
from compiler.frontend.refusals import UnsupportedModelError
from compiler.graph.interpret import evaluate
from tests.support.onnx_models import assert_close, model

node = helper.make_node
rng = np.random.default_rng(7)
IMAGE = rng.normal(1, 2, (4, 3, 5, 6)).astype(np.float32)
ONE, TWO, THREE = (rng.uniform(0.1, 2, 3).astype(np.float32) for _ in range(3))
RATE, RATIO, TRAINING = np.asarray(0.1, np.float32), np.asarray(0.3, np.float32), np.asarray(True)
PREVIEW = "ai.onnx.preview.training"


def proto_of(
    op: str, arrays: list[np.ndarray], outputs: int, opset: int, domain: str, attrs: dict[str, Any]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node; inputs of no dimension are known."""
    given = {f"in{at}": array for at, array in enumerate(arrays)}
    known = {name: array for name, array in given.items() if array.ndim == 0 and not domain}
    feeds = {name: array for name, array in given.items() if name not in known}
    made = [f"out{at}" for at in range(outputs)]
    one = node(op, list(given), made, domain=domain, **attrs)
    imports = [helper.make_opsetid(domain, 1)] if domain else []
    return model([one], feeds, made, known, opset=opset, imports=imports), feeds


def run(proto: onnx.ModelProto, feeds: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    return evaluate(import_proto(proto, Path(), {}, {}), feeds or {})


def step(at: int) -> np.ndarray:
    return np.asarray(at, np.int64)


@pytest.mark.parametrize(
    ("op", "arrays", "outputs", "opset", "domain", "attrs"),
    [
        ("BatchNormalization", [IMAGE, ONE, TWO, THREE, ONE], 3, 15, "",
         {"training_mode": 1, "momentum": 0.7, "epsilon": 1e-3}),
        ("BatchNormalization", [IMAGE[0], *[np.resize(ONE, 5)] * 4], 3, 14, "", {"training_mode": 1}),
        ("Dropout", [IMAGE], 2, 13, "", {}),
        ("Dropout", [IMAGE], 2, 10, "", {"ratio": 0.3}),
        ("Dropout", [IMAGE, RATIO], 2, 13, "", {}),
        ("Dropout", [IMAGE, RATIO, TRAINING], 2, 13, "", {"seed": 3}),
        ("Dropout", [IMAGE, RATIO, TRAINING], 1, 13, "", {"seed": 4}),
        ("Dropout", [IMAGE, 0 * RATIO, TRAINING], 2, 13, "", {"seed": 5}),
        ("Dropout", [IMAGE, RATIO, ~TRAINING], 2, 12, "", {"seed": 5}),
        ("RandomNormal", [], 1, 15, "", {"shape": [3, 50], "seed": 2.0, "mean": 3.0, "scale": 0.5}),
        ("RandomUniform", [], 1, 15, "", {"shape": [7], "seed": 9.0, "low": -2.0, "high": 5.0}),
        ("RandomUniform", [], 1, 15, "", {"shape": [7], "seed": 9.0, "dtype": TensorProto.DOUBLE}),
        ("RandomNormalLike", [IMAGE], 1, 15, "", {"seed": 2.0, "dtype": TensorProto.FLOAT}),
        ("RandomUniformLike", [IMAGE], 1, 15, "", {"seed": 2.0, "dtype": TensorProto.FLOAT}),
        ("Adagrad", [RATE, step(3), *[ONE, TWO, THREE] * 2], 4, 15, PREVIEW,
         {"decay_factor": 0.1, "norm_coefficient": 0.01}),
        ("Adam", [RATE, step(0), ONE, TWO, THREE, ONE], 3, 15, PREVIEW, {"norm_coefficient_post": 0.1}),
        ("Adam", [RATE, step(2), *[ONE, TWO] * 4], 6, 15, PREVIEW, {"alpha": 0.8, "beta": 0.9}),
        ("Momentum", [RATE, step(0), ONE, TWO, THREE], 2, 15, PREVIEW,
         {"alpha": 0.8, "beta": 0.5, "norm_coefficient": 0.1, "mode": "standard"}),
        ("Momentum", [RATE, step(4), *[ONE, TWO] * 3], 4, 15, PREVIEW,
         {"alpha": 0.8, "beta": 0.5, "norm_coefficient": 0.1, "mode": "nesterov"}),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)  # fmt: skip
def test_a_body_means_what_the_reference_says(
    op: str, arrays: list[np.ndarray], outputs: int, opset: int, domain: str, attrs: dict[str, Any]
) -> None:
    """Random numbers are the reference's, too, where the node has a seed."""
    proto, feeds = proto_of(op, arrays, outputs, opset, domain, attrs)
    got = run(proto, feeds)
    for item, want in zip(proto.graph.output, ReferenceEvaluator(proto).run(None, feeds), strict=True):
        assert_close(got[item.name], np.asarray(want), 1e-4, what=item.name)


def test_nodes_without_a_seed_have_numbers_of_their_own() -> None:
    nodes = [node("RandomNormal", [], [name], shape=[1000]) for name in "ab"]
    proto = model(nodes, {}, ["a", "b"])
    first, again = run(proto), run(proto)
    assert abs(np.corrcoef(first["a"], first["b"])[0, 1]) < 0.2
    for name in "ab":
        np.testing.assert_array_equal(first[name], again[name])


def test_numbers_have_the_distribution_that_they_should() -> None:
    """Means and variances of as many as lie within four standard deviations."""
    count = 40_000
    probability = np.full(count, 0.2, np.float32)
    nodes = [
        node("RandomNormal", [], ["normal"], shape=[count], mean=2.0, scale=3.0),
        node("RandomUniform", [], ["uniform"], shape=[count], low=-1.0, high=3.0),
        node("Bernoulli", ["p"], ["coins"], dtype=TensorProto.DOUBLE),
        node("Dropout", ["p", "ratio", "training"], ["kept", "mask"]),
    ]
    constants = {"ratio": RATIO, "training": TRAINING}
    names = ["normal", "uniform", "coins", "kept", "mask"]
    got = run(model(nodes, {"p": probability}, names, constants, opset=15), {"p": probability})
    for name, mean, variance in [
        ("normal", 2, 9), ("uniform", 1, 16 / 12), ("coins", 0.2, 0.16), ("mask", 0.7, 0.21)
    ]:  # fmt: skip
        found = got[name].astype(np.float64)
        assert abs(found.mean() - mean) < 4 * np.sqrt(variance / count), name
        assert abs(found.var() / variance - 1) < 0.05, name
    assert got["coins"].dtype == np.float64
    assert (got["uniform"].min() >= -1) & (got["uniform"].max() < 3)
    np.testing.assert_allclose(got["kept"], got["mask"] * np.float32(0.2 / 0.7), rtol=1e-6)


def test_classes_are_drawn_as_often_as_their_weights_say() -> None:
    weights = np.array([[0.1, 0.2, 0.7, 0.0], [0.25, 0.25, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        logarithms = (np.log(weights) + 3).astype(np.float32)
    count = 20_000
    one = node("Multinomial", ["x"], ["y"], sample_size=count, dtype=TensorProto.INT64, seed=5.0)
    drawn = run(model([one], {"x": logarithms}, ["y"]), {"x": logarithms})["y"]
    assert (drawn.shape, drawn.dtype) == ((2, count), np.int64)
    for row, expected in zip(drawn, weights, strict=True):
        found = np.bincount(row, minlength=4) / count
        assert np.all(np.abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected) / count))


THETA = rng.normal(0, 1, (2, 2, 3)).astype(np.float32)
VOLUME = rng.normal(0, 1, (2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("op", "first", "content", "attrs", "shape"),
    [
        ("HannWindow", None, np.asarray(10), {}, (10,)),
        ("HannWindow", None, np.asarray(9, np.int32), {"periodic": 0}, (9,)),
        ("HammingWindow", None, np.asarray(1), {}, (1,)),
        ("HammingWindow", None, np.asarray(7), {"periodic": 0}, (7,)),
        ("BlackmanWindow", None, np.asarray(8), {"output_datatype": TensorProto.DOUBLE}, (8,)),
        ("AffineGrid", THETA, np.array([2, 3, 4, 5]), {}, (2, 4, 5, 2)),
        ("AffineGrid", THETA, np.array([2, 3, 4, 5]), {"align_corners": 1}, (2, 4, 5, 2)),
        ("AffineGrid", VOLUME, np.array([2, 3, 4, 5, 6]), {"align_corners": 1}, (2, 4, 5, 6, 3)),
        ("AffineGrid", VOLUME, np.array([2, 3, 4, 5, 6]), {}, (2, 4, 5, 6, 3)),
        ("CenterCropPad", IMAGE, np.array([3, 4, 8, 9]), {}, (3, 4, 8, 9)),
        ("CenterCropPad", IMAGE, np.array([8, 2]), {"axes": [-1, 1]}, (4, 2, 5, 8)),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)  # fmt: skip
@pytest.mark.parametrize("known", [True, False], ids=["known", "declared"])
def test_shapes_that_an_input_holds(
    op: str, first: np.ndarray | None, content: np.ndarray, attrs: dict[str, Any], shape: Any, *, known: bool
) -> None:
    """Known when compiling, else as the model declares them."""
    feeds = {"x": first, "n": content} if first is not None else {"n": content}
    constants = {"n": feeds.pop("n")} if known else {}
    names = ["n"] if first is None else ["x", "n"]
    proto = model([node(op, names, ["y"], **attrs)], feeds, ["y"], constants, opset=20, ir_version=10)
    if not known:
        double = "output_datatype" in attrs
        kind = TensorProto.DOUBLE if double else TensorProto.FLOAT
        proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, shape))
    (want,) = ReferenceEvaluator(proto).run(None, feeds)
    assert_close(run(proto, feeds)["y"], want, what=op)
    if not known:
        assert import_proto(proto, Path(), {}, {}).checks == 1
        proto.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 3
        with pytest.raises(BadInputError):
            run(proto, feeds)
        proto.graph.output[0].type.tensor_type.ClearField("shape")
        with pytest.raises(UnsupportedModelError, match="give --bind"):
            run(proto, feeds)


def test_training_that_only_a_run_knows() -> None:
    nodes = [node("Dropout", ["x", "ratio", "training"], ["y", "mask"], seed=4)]
    feeds = {"x": IMAGE, "ratio": RATIO, "training": TRAINING}
    proto = model(nodes, feeds, ["y", "mask"])
    for training in (True, False):
        feeds["training"] = np.asarray(training)
        got = run(proto, feeds)
        for name, want in zip(("y", "mask"), ReferenceEvaluator(proto).run(None, feeds), strict=True):
            assert_close(got[name], want, what=name)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "why"),
    [
        ("Dropout", [IMAGE, 2 * RATIO * 4, TRAINING], {}, "not between 0 and 1"),
        ("Adam", [RATE, step(1), ONE], {}, "2, and 4 for each tensor"),
        ("Momentum", [RATE, step(1), ONE, ONE, ONE],
         {"alpha": 1.0, "beta": 1.0, "norm_coefficient": 0.0, "mode": "heavy"}, "neither standard"),
        ("RandomNormal", [], {"shape": [-1]}, "no shape"),
        ("RandomNormal", [], {"shape": [2], "dtype": TensorProto.INT32}, "i32 is not supported"),
    ],
)  # fmt: skip
def test_what_is_refused(op: str, arrays: list[np.ndarray], attrs: dict[str, Any], why: str) -> None:
    domain = PREVIEW if op in ("Adam", "Momentum") else ""
    proto, feeds = proto_of(op, arrays, 2 if domain else 1, 15, domain, attrs)
    with pytest.raises((BadInputError, UnsupportedModelError)) as caught:
        run(proto, feeds)
    assert why in f"{caught.value.why}"
