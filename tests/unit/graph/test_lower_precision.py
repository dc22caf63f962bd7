"""Products with rounded factors: what is rounded and where, and that no kernel is added for it."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from compiler.core.types import BF16, F16, F32, F64, DType
from compiler.graph.fuse import fuse
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, Node, TensorType, Value, verify
from compiler.graph.ops.factors import FACTORS
from compiler.graph.rewrites import rewrite_graph
from compiler.graph.rewrites.lower_precision import lower_precision
from tests.support.sketch import Sketch

NUMPY = {F16: np.dtype(np.float16), BF16: np.dtype(ml_dtypes.bfloat16)}
SOURCE = np.random.default_rng(11)


def lowered(graph: Graph, kind: DType = F16, *, images: bool = False) -> Graph:
    made = rewrite_graph(graph, blocks=True, factors=kind, images=images)
    verify(made)
    return made


def found(graph: Graph, op: str) -> list[Node]:
    return [item for item in graph.nodes if item.op.name == op]


def weights(s: Sketch, *shape: int, scale: float = 1.0) -> Value:
    return s.constant((scale * SOURCE.standard_normal(shape)).astype(np.float32))


def residual(s: Sketch) -> Graph:
    """Two products and a sum over what the second one reads, as in ResNet."""
    first = s.emit("Relu", s.conv(s.input(1, 8, 6, 6), 8, 3))
    second = s.conv(first, 8)
    return s.graph(s.emit("Relu", s.conv(s.emit("Relu", s.emit("Add", second, first)), 8)))


@pytest.mark.parametrize("kind", [F16, BF16])
def test_both_factors_are_rounded_and_sums_are_not(kind: DType) -> None:
    s = Sketch()
    matrix = weights(s, 40, 6)
    graph = s.graph(s.emit("MatMul", s.input(5, 40), matrix))
    x = SOURCE.standard_normal((5, 40)).astype(np.float32)
    (got,) = evaluate(lowered(graph, kind), {graph.input_names[0]: x}).values()

    def rounded(array: np.ndarray) -> np.ndarray:
        return array.astype(NUMPY[kind]).astype(np.float64)

    want = rounded(x) @ rounded(s.constants[matrix])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    assert np.abs(got - x.astype(np.float64) @ s.constants[matrix]).max() > 1e-4
    assert got.dtype == np.float32


@pytest.mark.parametrize(
    ("channels", "images", "rounded"),
    [(3, False, False), (7, False, False), (8, False, True), (3, True, True)],
)
def test_convolutions_of_images_keep_their_factors(channels: int, images: bool, rounded: bool) -> None:
    """Unless a matrix unit takes them."""
    s = Sketch()
    graph = s.graph(s.conv(s.input(1, channels, 6, 6), 8, 3))
    (item,) = found(lowered(graph, images=images), "Conv")
    assert (item.attrs.get(FACTORS) is not None) == rounded


def test_what_lies_between_products_has_16_bits_and_no_kernel_is_added() -> None:
    graph = residual(Sketch())
    made = lowered(graph)
    before, after = (fuse(rewrite_graph(graph, blocks=True)), fuse(made))
    assert len(after.groups) == len(before.groups) == 3
    assert [group.outputs[0].type.dtype for group in after.groups] == [F16, F16, F32]
    assert made.inputs[0].type.dtype == made.outputs[0].type.dtype == F32
    for item in found(made, "Conv"):
        assert item.attrs.dtype(FACTORS) == F16
        assert made.constants[item.inputs[1]].dtype == np.float16
        assert item.output.type.dtype == F32


def test_the_meaning_is_that_of_the_graph_within_the_type() -> None:
    graph = residual(Sketch())
    feeds = {graph.input_names[0]: SOURCE.standard_normal((1, 8, 6, 6)).astype(np.float32)}
    (want,), (got,) = evaluate(graph, feeds).values(), evaluate(lowered(graph), feeds).values()
    assert 0 < np.abs(got - want).max() < 2e-3 * np.abs(want).max()


def _pooled(s: Sketch, x: Value) -> Value:
    return s.pool(x, 2, 2, "MaxPool")


def _joined(s: Sketch, x: Value) -> Value:
    return s.emit("Concat", s.emit("Relu", s.conv(x, 4)), s.emit("Relu", s.conv(x, 4)), axis=1)


def _reshaped(s: Sketch, x: Value) -> Value:
    return s.emit("Reshape", x, shape=(1, 16, x.type.shape[2] // 2, x.type.shape[3]))


@pytest.mark.parametrize("moves", [_pooled, _joined, _reshaped])
def test_what_moves_elements_moves_16_bits(moves: Callable[[Sketch, Value], Value]) -> None:
    s = Sketch()
    x = s.emit("Relu", s.conv(s.input(1, 8, 6, 6), 8))
    graph = s.graph(s.conv(moves(s, x), 8))
    made = lowered(graph)
    moved = [n for n in made.nodes if n.op.name in ("MaxPool", "Concat", "Reshape")]
    assert [item.output.type.dtype for item in moved] == [F16]
    assert len(fuse(made).groups) == len(fuse(rewrite_graph(graph, blocks=True)).groups)


def test_what_an_exponential_reads_stays_f32() -> None:
    """Its product rounds what it reads, as it reads it."""
    s = Sketch()
    x = s.emit("Relu", s.conv(s.input(1, 8, 6, 6), 8))
    made = lowered(s.graph(s.conv(x, 8), s.emit("Exp", x)))
    (read,) = {item.inputs[0] for item in found(made, "Exp")}
    assert read.type.dtype == F32
    assert found(made, "Conv")[1].inputs[0] == read
    assert not found(made, "Cast")


def test_weights_of_attention_are_stored_in_16_bits_and_computed_in_f32() -> None:
    s = Sketch()
    q, k, v = s.input(2, 9, 8), s.input(2, 8, 9), s.input(2, 9, 8)
    weighed = s.emit("Softmax", s.emit("MatMul", q, k), axis=2, flatten=False)
    made = lowered(s.graph(s.emit("MatMul", weighed, v)))
    (softmax,) = found(made, "Softmax")
    assert softmax.inputs[0].type.dtype == softmax.output.type.dtype == F32
    assert found(made, "MatMul")[1].inputs[0].type.dtype == F16
    assert len(fuse(made).groups) == 3


def test_a_result_of_the_model_stays_f32_where_a_product_reads_it() -> None:
    s = Sketch()
    x = s.emit("Relu", s.conv(s.input(1, 8, 6, 6), 8))
    made = lowered(s.graph(x, s.conv(x, 8)))
    assert made.outputs[0].type.dtype == F32
    assert found(made, "Conv")[1].inputs[0] == made.outputs[0]


def test_weights_that_the_type_cannot_hold_are_left_alone() -> None:
    s = Sketch()
    large = weights(s, 8, 8, scale=1e6)
    graph = s.graph(s.emit("MatMul", s.input(4, 8), large))
    assert FACTORS not in found(lowered(graph, F16), "MatMul")[0].attrs
    assert FACTORS in found(lowered(graph, BF16), "MatMul")[0].attrs


@pytest.mark.parametrize("kind", [F16, F64])
def test_products_of_other_types_are_left_alone(kind: DType) -> None:
    s = Sketch()
    s.inputs = [s.value(TensorType(kind, (4, 4))), s.value(TensorType(kind, (4, 4)))]
    graph = s.graph(s.emit("MatMul", *s.inputs))
    assert lower_precision(F16)(graph) is graph


def test_graphs_stay_as_they_are_where_nothing_was_asked() -> None:
    graph = residual(Sketch())
    assert not any(FACTORS in item.attrs for item in rewrite_graph(graph).nodes)
    assert graph.outputs[0].type.dtype == F32
