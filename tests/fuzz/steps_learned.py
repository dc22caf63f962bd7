"""Steps: operators of ai.onnx.ml on rows of features, as scikit-learn and boosting are exported."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.grow import F32, F64, I32, I64, Pool, Step, Tensor, is_float
from tests.fuzz.steps_sums import matrix

ML = "ai.onnx.ml"
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ")


def _rows(g: Pool) -> Tensor | None:
    """Rows of a few features, in f32; as many at every length, which onnxruntime does not look at."""
    x = g.find(lambda one: one.name in g.inputs and one.rank == 2 and g.long.get(one.name) != 1)
    x = (x if x is not None and is_float(x) and x.size else None) if g.profile.lengths else matrix(g)
    if x is None or x.shape[1] > 100:
        return None
    x = g.within(x, 8.0)
    return x if x.dtype == F32 else g.add("Cast", [x], x.shape, x, dtype=F32, to=1)


def _numbers(g: Pool, count: int, scale: float = 1.0) -> list[float]:
    return [float(number) for number in g.random(F32, (count,), scale)]


def scaler(g: Pool) -> None:
    x = _rows(g)
    if x is not None:
        count = g.pick(1, x.shape[1])
        attrs = {"offset": _numbers(g, count), "scale": _numbers(g, count)}
        g.add("Scaler", [x], x.shape, x, limit=x.limit + 1, domain=ML, **attrs)


def normalizer(g: Pool) -> None:
    x = _rows(g)
    if x is not None:
        norm = g.pick("MAX", "L1", "L2")
        y = g.positive(x) if norm == "MAX" else x  # runtimes differ in a largest one that is negative
        g.add("Normalizer", [y], x.shape, x, limit=1.0, domain=ML, norm=norm)


def binarizer(g: Pool) -> None:
    x = _rows(g)
    if x is not None:
        g.add("Binarizer", [x], x.shape, x, limit=1.0, domain=ML, threshold=g.pick(0.0, 0.3, -1.0))


def imputer(g: Pool) -> None:
    """Numbers that are missing, as NaN or as a value."""
    x = _rows(g)
    if x is None:
        return
    n = x.shape[1]
    missing = g.pick(float("nan"), 0.0)
    y = g.within(x, 4.0)
    if missing == 0.0 and g.takes("Relu", x.dtype):
        y = g.add("Relu", [y], x.shape, y)
    filling = _numbers(g, g.pick(1, n))
    attrs: dict[str, Any] = {"imputed_value_floats": filling, "replaced_value_float": missing}
    g.add("Imputer", [y], x.shape, x, limit=8.0, domain=ML, **attrs)


def extractor(g: Pool) -> None:
    x = g.find(lambda one: one.dtype in (F32, F64, I64, I32) and one.rank == 2 and 0 not in one.shape)
    if x is None:
        return
    count = g.integer(1, 7)
    at = g.constant(g.rng.integers(0, x.shape[1], count).astype(np.int64))
    g.add("ArrayFeatureExtractor", [x, at], (x.shape[0], count), x, domain=ML)


def encoder(g: Pool) -> None:
    """Labels by a table, where integers are few enough to be found in it."""
    x = g.find(lambda one: one.dtype == I64 and 0 < one.rank <= 4 and one.size > 0)
    if x is None:
        return
    keys = [int(key) for key in g.rng.permutation(np.arange(-9, 17))[: g.integer(1, 12)]]
    if g.chance(0.5):
        values = [int(value) for value in g.rng.integers(-9, 9, len(keys))]
        attrs: dict[str, Any] = {"keys_int64s": keys, "values_int64s": values, "default_int64": 7}
        g.add("LabelEncoder", [x], x.shape, x, limit=9.0, domain=ML, **attrs)
    else:
        floats = _numbers(g, len(keys))
        attrs = {"keys_int64s": keys, "values_floats": floats, "default_float": 0.5}
        g.add("LabelEncoder", [x], x.shape, x, dtype=F32, limit=1.0, domain=ML, **attrs)


def one_hot_encoder(g: Pool) -> None:
    x = g.find(lambda one: one.dtype == I64 and 0 < one.rank <= 3 and 0 < one.size <= 400)
    if x is not None:
        kinds = [int(kind) for kind in g.rng.permutation(np.arange(-8, 16))[: g.integer(1, 9)]]
        shape = (*x.shape, len(kinds))
        g.add("OneHotEncoder", [x], shape, x, dtype=F32, limit=1.0, domain=ML, cats_int64s=kinds, zeros=1)


def vectorizer(g: Pool) -> None:
    x = _rows(g)
    if x is None:
        return
    other = g.add("Abs", [x], x.shape, x)
    parts = [x, other, x][: g.integer(2, 3)]
    sizes = [one.shape[1] for one in parts]
    g.add("FeatureVectorizer", list(parts), (x.shape[0], sum(sizes)), x, domain=ML, inputdimensions=sizes)


def linear(g: Pool) -> None:
    x = _rows(g)
    if x is None:
        return
    rows, n = g.integer(1, 5), x.shape[1]
    weights: dict[str, Any] = {"coefficients": _numbers(g, rows * n, 0.3), "intercepts": _numbers(g, rows)}
    limit = 3.0 * n + 1
    if g.chance(0.5):
        attrs = {**weights, "targets": rows}
        g.add("LinearRegressor", [x], (x.shape[0], rows), x, limit=limit, domain=ML, **attrs)
        return
    labels = [int(label) for label in g.rng.permutation(20)[: max(rows, 2)]]
    transform = g.pick("NONE", "LOGISTIC", "SOFTMAX") if rows > 1 else g.pick("NONE", "LOGISTIC")
    results = [(I64, (x.shape[0],), 20.0), (F32, (x.shape[0], len(labels)), limit)]
    attrs = {**weights, "classlabels_ints": labels, "post_transform": transform}
    g.add_all("LinearClassifier", [x], results, domain=ML, **attrs)


def _tree(g: Pool, number: int, features: int, targets: int) -> dict[str, list[Any]]:
    """Attributes of one tree, complete down to some depth; leaves are the last nodes."""
    depth = g.integer(0, 3)
    inner, count = 2**depth - 1, 2 ** (depth + 1) - 1
    modes = [g.pick(*_MODES[: g.pick(1, 1, 4, 6)]) if at < inner else "LEAF" for at in range(count)]
    leaves = list(range(inner, count))
    return {
        "nodes_treeids": [number] * count,
        "nodes_nodeids": list(range(count)),
        "nodes_featureids": [g.integer(0, features - 1) if at < inner else 0 for at in range(count)],
        "nodes_values": [float(np.float32(g.rng.uniform(-2, 2))) for _ in range(count)],
        "nodes_modes": modes,
        "nodes_truenodeids": [2 * at + 1 if at < inner else 0 for at in range(count)],
        "nodes_falsenodeids": [2 * at + 2 if at < inner else 0 for at in range(count)],
        "nodes_missing_value_tracks_true": [g.integer(0, 1) if at < inner else 0 for at in range(count)],
        "ids": [g.integer(0, targets - 1) for _ in leaves],
        "weights": _numbers(g, len(leaves)),
        "treeids": [number] * len(leaves),
        "nodeids": leaves,
    }


def forest(g: Pool) -> None:
    """Trees of all modes, a few of them, with one target or more; classes by their scores."""
    x = _rows(g)
    if x is None:
        return
    targets = g.pick(1, 1, 2, 3, 4)
    trees = [_tree(g, number, x.shape[1], targets) for number in range(g.integer(1, 9))]
    whole: dict[str, Any] = {name: [one for tree in trees for one in tree[name]] for name in trees[0]}
    classes = targets > 2 and g.chance(0.6)  # two classes with votes each are no model of onnxruntime's
    if classes:  # of a class without a vote, runtimes say 0 or nothing
        whole["weights"] = [abs(weight) for weight in whole["weights"]]
    prefix = "class_" if classes else "target_"
    for name in ("ids", "weights", "treeids", "nodeids"):
        whole[prefix + name] = whole.pop(name)
    limit = float(len(trees))
    if classes:
        labels = [int(label) for label in g.rng.permutation(20)[:targets]]
        whole |= {"classlabels_int64s": labels, "post_transform": g.pick("NONE", "SOFTMAX", "LOGISTIC")}
        results = [(I64, (x.shape[0],), 20.0), (F32, (x.shape[0], targets), limit)]
        g.add_all("TreeEnsembleClassifier", [x], results, domain=ML, **whole)
        return
    whole |= {"n_targets": targets, "aggregate_function": g.pick("SUM", "SUM", "AVERAGE", "MIN", "MAX")}
    g.add("TreeEnsembleRegressor", [x], (x.shape[0], targets), x, limit=limit, domain=ML, **whole)


STEPS: tuple[Step, ...] = (
    scaler, normalizer, binarizer, imputer, extractor, encoder, one_hot_encoder, vectorizer, linear, linear,
    forest, forest, forest,
)  # fmt: skip
