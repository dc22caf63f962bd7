"""Parts of models: what is cut off is fed, and the rest computes what it did; onnxruntime says it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.reduce.candidate import (
    Candidate,
    KnownValues,
    bypassed,
    exposed,
    fixed_values,
    input_for,
    part,
    reads,
    with_outputs,
)
from compiler.reduce.simplify_model import fewer_attributes, plainer_constants, smaller_shapes
from compiler.reduce.store import ReductionStore
from tests.support.onnx_models import model, run_onnxruntime


def _array(*shape: int) -> np.ndarray:
    return np.random.default_rng([*shape]).standard_normal(shape, np.float32)


def diamond() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Two branches of a product, one of whose factors is computed from constants."""
    nodes = [
        helper.make_node("Mul", ["w", "two"], ["w2"]),
        helper.make_node("MatMul", ["x", "w2"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Sigmoid", ["p"], ["s"]),
        helper.make_node("Add", ["r", "s"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["y"]),
    ]
    constants = {
        "w": _array(6, 8),
        "two": np.float32(2).reshape(()),
        "shape": np.array([2, 4, 4], np.int64),
    }
    feeds = {"x": _array(4, 6)}
    return model(nodes, feeds, ["y"], constants), feeds


@pytest.fixture
def store(tmp_path: Path) -> ReductionStore:
    return ReductionStore(tmp_path)


@pytest.fixture
def base(store: ReductionStore) -> Candidate:
    proto, feeds = diamond()
    return Candidate(proto, {name: store.put(array) for name, array in feeds.items()})


@pytest.fixture
def known(base: Candidate, store: ReductionStore) -> KnownValues:
    names = [name for node in base.nodes for name in node.output]
    values = run_onnxruntime(exposed(base, names).model, base.arrays(store))
    return KnownValues({name: store.put(array) for name, array in values.items()}, fixed_values(base))


@pytest.mark.parametrize("seed", range(25))
def test_any_part_computes_what_it_did(
    base: Candidate, known: KnownValues, store: ReductionStore, seed: int
) -> None:
    source = random.Random(seed)
    kept = source.sample(range(6), source.randrange(1, 7))
    made = part(base, kept, known, store)
    assert made is not None
    assert [node.op_type for node in made.nodes] == [base.nodes[place].op_type for place in sorted(kept)]
    got = run_onnxruntime(made.model, made.arrays(store))
    assert got
    for name, array in got.items():
        np.testing.assert_allclose(array, store.get(known.arrays[name]), rtol=1e-6, atol=1e-6)


def test_what_depends_on_constants_alone_is_a_constant(
    base: Candidate, known: KnownValues, store: ReductionStore
) -> None:
    assert fixed_values(base) == {"w2"}
    made = part(base, [1], known, store)
    assert made is not None
    assert set(made.feeds) == {"x"}
    assert {one.name for one in made.model.graph.initializer} == {"w2"}
    assert made.size.nodes == 1


def test_a_value_that_is_not_known_cannot_be_cut(base: Candidate, store: ReductionStore) -> None:
    assert part(base, [2], KnownValues({}), store) is None
    assert part(base, range(6), KnownValues({}), store) is not None


def test_one_output(base: Candidate, known: KnownValues, store: ReductionStore) -> None:
    both = part(base, [1, 2, 3], known, store)
    assert both is not None
    assert set(both.outputs) == {"r", "s"}
    one = with_outputs(both, ["s"])
    assert [node.op_type for node in one.nodes] == ["MatMul", "Sigmoid"]


def test_a_node_bypassed(base: Candidate, store: ReductionStore) -> None:
    made = bypassed(base, 2, "p")
    assert made is not None
    p = _array(4, 6) @ (2 * _array(6, 8))
    got = run_onnxruntime(made.model, made.arrays(store))["y"]
    np.testing.assert_allclose(got.reshape(4, 8), p + 1 / (1 + np.exp(-p)), rtol=1e-5, atol=1e-5)
    last = bypassed(base, 5, "a")
    assert last is not None
    assert last.outputs == ("a",)
    assert bypassed(Candidate(made.model, made.feeds), 0, "w") is not None


def test_subgraphs_read_from_outside() -> None:
    inner = helper.make_graph(
        [helper.make_node("Add", ["outside", "local"], ["sum"])],
        "then",
        [],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.zeros(2, np.float32), "local")],
    )
    node = helper.make_node("If", ["cond"], ["y"], then_branch=inner, else_branch=inner)
    assert reads(node) == {"cond", "outside"}


def test_keys_tell_candidates_apart(base: Candidate, store: ReductionStore) -> None:
    other = Candidate(base.model, {"x": store.put(np.zeros((4, 6), np.float32))})
    assert len({base.key, other.key, exposed(base, ["p"]).key}) == 3
    assert base.key == Candidate(base.model, dict(base.feeds)).key


def test_arrays_are_kept_in_their_types(store: ReductionStore) -> None:
    import ml_dtypes

    for array in (
        _array(3, 4),
        np.array(True),
        np.zeros((0, 2), np.int8),
        _array(5).astype(ml_dtypes.bfloat16),
    ):
        name = store.put(array)
        got = store.get(name)
        assert (got.dtype, got.shape) == (array.dtype, array.shape)
        assert got.tobytes() == array.tobytes()
    assert store.get(store.put(_array(4)[::2])).tolist() == _array(4)[::2].tolist()


class Taker:
    """Takes what onnxruntime runs and what still has a node of a kind."""

    def __init__(self, candidate: Candidate, store: ReductionStore, op: str) -> None:
        self.current, self.store, self.op = candidate, store, op

    def __call__(self, candidate: Candidate) -> bool:
        try:
            run_onnxruntime(candidate.model, candidate.arrays(self.store))
        except Exception:  # noqa: BLE001 - onnxruntime's own classes
            return False
        if self.op not in {node.op_type for node in candidate.nodes}:
            return False
        self.current = candidate
        return True


def test_shapes_become_as_small_as_the_model_allows(base: Candidate, store: ReductionStore) -> None:
    taker = Taker(base, store, "MatMul")
    smaller_shapes(lambda: taker.current, taker, store)
    assert taker.current.size.inputs <= base.size.inputs / 6
    assert taker.current.size.constants < base.size.constants / 4


def test_constants_and_inputs_become_plain(base: Candidate, store: ReductionStore) -> None:
    taker = Taker(base, store, "Relu")
    plainer_constants(lambda: taker.current, taker, store, alike=True)
    constants = {one.name: numpy_helper.to_array(one) for one in taker.current.model.graph.initializer}
    assert not constants["w"].any()
    assert constants["shape"].tolist() == [2, 4, 4]
    assert not taker.current.arrays(store)["x"].any()


def test_attributes_with_defaults_go(store: ReductionStore) -> None:
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["t"], alpha=0.3),
        helper.make_node("Cast", ["t"], ["y"], to=7),
    ]
    proto = model(nodes, {"x": _array(3)}, ["y"])
    taker = Taker(Candidate(proto, {"x": store.put(_array(3))}), store, "LeakyRelu")
    fewer_attributes(lambda: taker.current, taker)
    assert [len(node.attribute) for node in taker.current.nodes] == [0, 1]


def test_an_input_is_declared_as_its_array() -> None:
    made = input_for("x", np.zeros((2, 3), np.int64)).type.tensor_type
    assert (made.elem_type, [dim.dim_value for dim in made.shape.dim]) == (TensorProto.INT64, [2, 3])
