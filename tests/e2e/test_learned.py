"""Operators of ai.onnx.ml, compiled side by side in one library, against onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import compiler
from compiler.core.diagnostics import BadInputError
from compiler.graph.ops import OPS
from tests.support.merged_cases import Part, join
from tests.support.onnx_models import model, run_onnxruntime

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 4)).astype(np.float32)
HOLES = np.where(RNG.random((7, 4)) < 0.3, np.nan, X).astype(np.float32)
COUNTS = RNG.integers(-3, 4, (7, 4))


@dataclass(frozen=True)
class Learned:
    """A node of the domain, and what it is given."""

    op: str
    inputs: Sequence[np.ndarray]
    attrs: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    outputs: int = 1
    version: int = 4

    @property
    def name(self) -> str:
        return f"{self.op}{self.label}"

    @property
    def made(self) -> list[str]:
        """Names of outputs."""
        return [f"out{number}" for number in range(self.outputs)]

    def proto(self) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        given = {f"in{number}": array for number, array in enumerate(self.inputs)}
        made = self.made
        node = helper.make_node(self.op, list(given), made, domain="ai.onnx.ml", name=self.name, **self.attrs)
        imports = [helper.make_opsetid("ai.onnx.ml", self.version)]
        return model([node], given, made, imports=imports), given

    def part(self) -> Part:
        proto, given = self.proto()
        return Part(self.name, proto, given, run_onnxruntime(proto, given), 1e-5)


def forest(
    prefix: str,
    trees: int,
    depth: int,
    targets: int,
    *,
    modes: Sequence[str] = ("BRANCH_LEQ",),
    low: float = -1,
) -> dict[str, Any]:
    """Trees of random shape over four features, with leaves for some targets."""
    rng = np.random.default_rng([trees, depth, targets])
    rows: dict[str, list[Any]] = {
        name: []
        for name in (
            "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values",
            "nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true",
            f"{prefix}_treeids", f"{prefix}_nodeids", f"{prefix}_ids", f"{prefix}_weights",
        )
    }  # fmt: skip

    def leaf(tree: int, number: int) -> None:
        target = int(rng.integers(targets))
        for name, value in zip(("treeids", "nodeids", "ids"), (tree, number, target), strict=True):
            rows[f"{prefix}_{name}"].append(value)
        rows[f"{prefix}_weights"].append(float(rng.uniform(low, 1)))

    for tree in range(trees):
        todo, used = [(0, depth)], 1
        while todo:
            number, left = todo.pop()
            branches = left > 0 and (number == 0 or rng.random() < 0.8)
            values = (
                tree, number, int(rng.integers(4)), str(rng.choice(modes)) if branches else "LEAF",
                float(np.round(rng.uniform(-1, 1), 1)), used if branches else 0, used + 1 if branches else 0,
                int(rng.integers(2)),
            )  # fmt: skip
            for name, value in zip(list(rows)[:8], values, strict=True):
                rows[name].append(value)
            if branches:
                todo += [(used, left - 1), (used + 1, left - 1)]
                used += 2
            else:
                leaf(tree, number)
    return rows


def ensemble(trees: int, depth: int, targets: int, modes: Sequence[int], kind: type) -> dict[str, Any]:
    """Trees of random shape as opset 5 of the domain writes them: leaves are apart, modes are numbers."""
    rng = np.random.default_rng([trees, depth, targets])
    nodes: list[list[float]] = []
    leaves: list[tuple[int, float]] = []
    members: list[float] = []

    def branch(left: int) -> tuple[int, int]:
        """Whether it is a leaf, and its number."""
        if not left or (left < depth and rng.random() < 0.2):
            leaves.append((int(rng.integers(targets)), float(rng.uniform(-1, 1))))
            return 1, len(leaves) - 1
        at, row = len(nodes), [0.0] * 8
        nodes.append(row)
        row[:4] = rng.choice(modes), rng.integers(4), np.round(rng.uniform(-1, 1), 1), rng.integers(2)
        row[4:] = *branch(left - 1), *branch(left - 1)
        return 0, at

    roots = [branch(depth)[1] for _ in range(trees)]
    for row in nodes:
        if row[0] == 6:
            members += [*rng.integers(-2, 3, rng.integers(1, 5)), np.nan]  # integers, by onnxruntime's limit
    mode, feature, split, missing, true_leaf, true, false_leaf, false = zip(*nodes, strict=True)
    integers = {
        "nodes_featureids": feature, "nodes_missing_value_tracks_true": missing, "nodes_trueleafs": true_leaf,
        "nodes_truenodeids": true, "nodes_falseleafs": false_leaf, "nodes_falsenodeids": false,
        "tree_roots": roots, "leaf_targetids": [target for target, _ in leaves],
    }  # fmt: skip
    tensors = {
        "nodes_modes": np.asarray(mode, np.uint8), "nodes_splits": np.asarray(split, kind),
        "leaf_weights": np.asarray([weight for _, weight in leaves], kind),
        "membership_values": np.asarray(members, kind),
    }  # fmt: skip
    return {
        **{name: [int(one) for one in column] for name, column in integers.items()},
        **{name: numpy_helper.from_array(array, name) for name, array in tensors.items() if array.size},
        "n_targets": targets,
    }


def cases() -> Iterator[Learned]:
    yield Learned("ArrayFeatureExtractor", [X, np.array([[2, 0]])])
    yield Learned("Binarizer", [X], {"threshold": 0.5})
    yield Learned("Scaler", [X], {"offset": [1.0, 2, 3, 4], "scale": [2.0, 1, 0.5, 3]})
    yield Learned("Scaler", [COUNTS], {"offset": [1.0], "scale": [0.5]}, " of integers")
    yield Learned(
        "Imputer", [HOLES], {"imputed_value_floats": [1.0, 2, 3, 4], "replaced_value_float": np.nan}
    )
    yield Learned(
        "Imputer", [COUNTS], {"imputed_value_int64s": [9], "replaced_value_int64": -1}, " of integers"
    )
    for norm in ("MAX", "L1", "L2"):
        yield Learned("Normalizer", [X], {"norm": norm}, f" {norm}")
    yield Learned("FeatureVectorizer", [X, X[:, :2]], {"inputdimensions": [4, 2]})
    yield Learned("OneHotEncoder", [COUNTS], {"cats_int64s": [-1, 0, 2], "zeros": 1})
    yield Learned(
        "LabelEncoder",
        [COUNTS],
        {"keys_int64s": [2, 0, -1], "values_floats": [0.5, 1, 2], "default_float": 7.0},
    )
    yield Learned(
        "LabelEncoder",
        [HOLES],
        {"keys_floats": [float("nan"), float(X[0, 0])], "values_int64s": [5, 6]},
        " with NaN",
    )
    weights = RNG.standard_normal(12).tolist()
    yield Learned(
        "LinearRegressor", [X], {"coefficients": weights, "intercepts": [0.1, 0.2, 0.3], "targets": 3}
    )
    linear = {"coefficients": weights, "intercepts": [0.1, 0.2, 0.3], "classlabels_ints": [4, 0, 9]}
    for transform in ("NONE", "SOFTMAX", "LOGISTIC"):
        yield Learned("LinearClassifier", [X], {**linear, "post_transform": transform}, f" {transform}", 2)
    binary = {"coefficients": weights[:4], "intercepts": [0.1], "classlabels_ints": [3, 5]}
    for transform in ("NONE", "LOGISTIC"):
        yield Learned(
            "LinearClassifier", [X], {**binary, "post_transform": transform}, f" of two {transform}", 2
        )
    for together in ("SUM", "AVERAGE", "MIN", "MAX"):
        attrs = {**forest("target", 5, 4, 2), "aggregate_function": together, "n_targets": 2}
        yield Learned("TreeEnsembleRegressor", [HOLES], attrs, f" {together}")
    modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
    mixed = {**forest("target", 30, 2, 3, modes=modes), "n_targets": 3, "base_values": [1.0, 2, 3]}
    yield Learned("TreeEnsembleRegressor", [np.round(X, 1)], mixed, " of all modes")
    blocks = np.where(RNG.random((24, 4)) < 0.1, np.nan, np.round(RNG.standard_normal((24, 4)), 1))
    for name in ("BRANCH_LT", "BRANCH_GT"):
        attrs = {**forest("target", 19, 5, 2, modes=(name,)), "n_targets": 2}
        yield Learned("TreeEnsembleRegressor", [blocks.astype(np.float32)], attrs, f" of rows, {name}")
    for transform in ("NONE", "SOFTMAX", "LOGISTIC"):
        attrs = {**forest("class", 6, 4, 3), "classlabels_int64s": [7, 2, 5], "post_transform": transform}
        yield Learned("TreeEnsembleClassifier", [X], attrs, f" {transform}", 2)
    for low in (0, -1):
        two = {**forest("class", 6, 4, 1, low=low), "classlabels_int64s": [7, 2]}
        yield Learned("TreeEnsembleClassifier", [X], two, f" of two from {low}", 2)


def machines() -> Iterator[Learned]:
    """Support vectors of each kernel; of two, three and four classes, with probabilities and without."""
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        attrs = {**support_vectors(kernel, 5), "n_supports": 5, "rho": [0.3]}
        yield Learned("SVMRegressor", [X], attrs, f" {kernel}")
    attrs = {**support_vectors("RBF", 5), "n_supports": 5, "rho": [-0.1], "one_class": 1}
    yield Learned("SVMRegressor", [X], attrs, " of one class")
    linear = {"coefficients": [1.0, 2, 3, 4], "kernel_type": "LINEAR", "rho": [0.5]}
    yield Learned("SVMRegressor", [X], {**linear, "kernel_params": [0.0, 0.0, 3.0]}, " without vectors")
    for classes in (2, 3, 4):
        pairs = classes * (classes - 1) // 2
        sizes = list(range(1, classes + 1))
        attrs = {
            **support_vectors("RBF", sum(sizes), classes - 1), "vectors_per_class": sizes,
            "classlabels_ints": [7, 2, 5, 3][:classes], "rho": RNG.standard_normal(pairs).tolist(),
        }  # fmt: skip
        for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
            more = {"post_transform": transform}
            if (classes, transform) != (2, "SOFTMAX"):  # refused: onnxruntime gives 1 - s and s
                yield Learned("SVMClassifier", [X], attrs | more, f" of {classes} {transform}", 2)
        odds = {"prob_a": (-2 * RNG.random(pairs)).tolist(), "prob_b": RNG.standard_normal(pairs).tolist()}
        yield Learned("SVMClassifier", [X], attrs | odds, f" of {classes} with probabilities", 2)


def support_vectors(kernel: str, count: int, rows: int = 1) -> dict[str, Any]:
    """Vectors of four features, `rows` coefficients for each, and a kernel of degree 2."""
    return {
        "kernel_type": kernel, "kernel_params": [0.5, 0.25, 2.0],
        "support_vectors": RNG.standard_normal(4 * count).tolist(),
        "coefficients": RNG.standard_normal(rows * count).tolist(),
    }  # fmt: skip


def ensembles() -> Iterator[Learned]:
    """Cases of opset 5."""
    tables = np.round(2 * X)
    holes = np.where(np.isnan(HOLES), np.nan, tables).astype(np.float32)
    for together in range(4):
        attrs = {**ensemble(5, 2, 2, (0, 5, 6), np.float32), "aggregate_function": together}
        yield Learned("TreeEnsemble", [holes], attrs, f" {together}", version=5)
    doubles = ensemble(4, 2, 3, (3, 6), np.float64)  # without post_transform: onnxruntime swaps 1 and 2
    yield Learned("TreeEnsemble", [tables.astype(np.float64)], doubles, " of doubles", version=5)


CASES = (*cases(), *machines(), *ensembles())


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The outputs of all cases."""
    directory, found = tmp_path_factory.mktemp("learned"), {}
    for version in {case.version for case in CASES}:
        mine = [case for case in CASES if case.version == version]
        together = join("learned", [case.part() for case in mine])
        onnx.save(together.proto, directory / "m.onnx")
        compiler.compile_model(directory / "m.onnx", compiler.CompileOptions(output=directory / "m.so"))
        with compiler.load(directory / "m.so") as loaded:
            made = loaded.run(together.feeds)
        for number, case in enumerate(mine):
            found |= {f"{case.name}/{name}": made[f"c{number}_{name}"] for name in case.made}
    return found


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_computes_what_onnxruntime_does(case: Learned, answers: dict[str, np.ndarray]) -> None:
    part = case.part()
    for output, want in part.want.items():
        got = answers[f"{case.name}/{output}"]
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_every_record_has_a_case() -> None:
    covered = {case.op for case in CASES}
    assert not [
        op.name for op in OPS.values() if op.domain == "ai.onnx.ml" and op.name not in covered | {"ZipMap"}
    ]


def test_a_map_of_scores_is_a_row_of_them(tmp_path: Path) -> None:
    scores = np.abs(X)
    proto, given = Learned("ZipMap", [scores], {"classlabels_int64s": [3, 1, 2, 0]}).proto()
    onnx.save(proto, tmp_path / "m.onnx")
    compiler.compile_model(tmp_path / "m.onnx", compiler.CompileOptions(output=tmp_path / "m.so"))
    want = run_onnxruntime(proto, given)["out0"]
    with compiler.load(tmp_path / "m.so") as loaded:
        got = loaded.run(given)["out0"]
    assert [dict(zip([3, 1, 2, 0], row.tolist(), strict=True)) for row in got] == want


def test_a_tree_that_never_ends_is_refused(tmp_path: Path) -> None:
    attrs = forest("target", 1, 2, 1)
    attrs["nodes_truenodeids"][1] = attrs["nodes_falsenodeids"][1] = 0
    attrs["nodes_modes"][1] = "BRANCH_LEQ"
    proto, _ = Learned("TreeEnsembleRegressor", [X], {**attrs, "n_targets": 1}).proto()
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(BadInputError, match="no root"):
        compiler.compile_model(tmp_path / "m.onnx", compiler.CompileOptions(output=tmp_path / "m.so"))
