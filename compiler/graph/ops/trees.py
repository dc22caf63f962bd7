"""Ensembles of decision trees (ai.onnx.ml): their nodes as tables, which `forest.py` walks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.core.types import F32, F64, I64, DType
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import (
    Emitter,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Signature,
    Types,
    UnsupportedError,
    Values,
)
from compiler.graph.ops.forest import MODES, Forest, emit_scores, heights, start_of
from compiler.graph.ops.learned import (
    ML,
    as_type,
    checked_transform,
    labelled,
    refuse_strings,
    transformed,
    transformed_array,
)

_LEAF = "LEAF"


def numbers(node: OnnxNode, name: str, kind: Any) -> Array:
    """An attribute, or the tensor that stands for it."""
    given = node.attrs.get(f"{name}_as_tensor")
    if not isinstance(given, np.ndarray):
        given = np.asarray(node.attrs.get(name, ()))
    return np.asarray(given, kind).reshape(-1)


def _forest(node: OnnxNode, prefix: str, targets: int) -> Forest:
    """The trees of an ensemble before opset 5 of the domain: nodes by tree and number."""
    trees, nodes = numbers(node, "nodes_treeids", np.int64), numbers(node, "nodes_nodeids", np.int64)
    place = {key: at for at, key in enumerate(zip(trees.tolist(), nodes.tolist(), strict=True))}
    modes = np.asarray(node.attrs.get("nodes_modes", ()))
    if len(place) != len(trees) or modes.size != trees.size or not trees.size:
        raise InvalidError("the nodes of the trees are not told apart, or have no modes")
    leaf = modes == _LEAF

    def branch(name: str) -> Array:
        ends = numbers(node, name, np.int64)
        return np.asarray(
            [at if leaf[at] else place[trees[at], ends[at]] for at in range(trees.size)], np.int64
        )

    yes, no = branch("nodes_truenodeids"), branch("nodes_falsenodeids")
    weights = np.zeros((trees.size, targets), np.float32)
    leaves = zip(
        numbers(node, f"{prefix}_treeids", np.int64).tolist(),
        numbers(node, f"{prefix}_nodeids", np.int64).tolist(),
        strict=True,
    )
    ends = np.asarray([place[key] for key in leaves], np.int64), numbers(node, f"{prefix}_ids", np.int64)
    np.add.at(weights, ends, numbers(node, f"{prefix}_weights", np.float32))
    given = np.zeros(weights.shape, bool)
    given[ends] = True
    reached = np.zeros(trees.size, bool)
    reached[yes[~leaf]] = reached[no[~leaf]] = True
    roots = np.flatnonzero(~reached)
    if not np.array_equal(np.unique(trees), np.sort(trees[roots])):
        raise InvalidError("a tree has no root, or several")
    missing = numbers(node, "nodes_missing_value_tracks_true", np.int64)
    found = Forest(
        roots=roots,
        features=np.where(leaf, 0, numbers(node, "nodes_featureids", np.int64)),
        thresholds=numbers(node, "nodes_values", np.float32),
        yes=yes,
        no=no,
        missing=missing.astype(bool) if missing.size else np.zeros(trees.size, bool),
        modes=np.where(leaf, "BRANCH_LEQ", modes),
        weights=weights,
        given=given,
    )
    heights(found)  # every walk ends
    return found


def packed(forest: Forest, together: str, **more: Any) -> Raw:
    """The forest as attributes, and more of them; raises UnsupportedError for a mode that is not known."""
    unknown = sorted(set(forest.modes.tolist()) - {*MODES})
    if unknown:
        raise UnsupportedError(f"trees with nodes {', '.join(unknown)} are not supported")
    absent = forest.weights.dtype.type(start_of(_TOGETHER[together]))
    weights = np.where(forest.given, forest.weights, absent)
    return {
        "roots": tuple(forest.roots.tolist()), "features": tuple(forest.features.tolist()),
        "thresholds": tuple(forest.thresholds.tolist()), "yes": tuple(forest.yes.tolist()),
        "no": tuple(forest.no.tolist()), "missing": tuple(forest.missing.astype(int).tolist()),
        "modes": tuple(map(str, forest.modes)), "weights": tuple(weights.reshape(-1).tolist()),
        "together": together, "wide": forest.weights.dtype == np.float64, **more,
    }  # fmt: skip


def _kind(attrs: Attrs) -> DType:
    """What is computed with."""
    return F64 if attrs.flag("wide") else F32


def _unpacked(attrs: Attrs) -> Forest:
    roots, features, yes, no = (
        np.asarray(attrs.integers(name), np.int64) for name in ("roots", "features", "yes", "no")
    )
    kind = to_numpy(_kind(attrs))
    weights = np.asarray(attrs.numbers("weights"), kind).reshape(features.size, -1)
    return Forest(
        roots, features, np.asarray(attrs.numbers("thresholds"), kind), yes, no,
        np.asarray(attrs.integers("missing"), bool), np.asarray(attrs.texts("modes")),
        weights, np.isfinite(weights),
    )  # fmt: skip


# ---------------------------------------------------------------- the walk

_NUMPY = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
}


def _leaves(x: Array, forest: Forest) -> Array:
    """The leaf that each row reaches in each tree."""
    at = np.broadcast_to(forest.roots, (x.shape[0], forest.roots.size))
    rows = np.arange(x.shape[0])[:, None]
    for _ in range(heights(forest)[forest.roots].max(initial=0)):
        value, threshold, mode = x[rows, forest.features[at]], forest.thresholds[at], forest.modes[at]
        fits = (mode == "BRANCH_NEQ") & (value != threshold)
        for name, compare in _NUMPY.items():
            fits |= (mode == name) & compare(value, threshold)
        fits |= np.isnan(value) & forest.missing[at]
        at = np.where(fits, forest.yes[at], forest.no[at])
    return at


_FOLDS: Mapping[str, Callable[..., Array]] = {"SUM": np.sum, "AVERAGE": np.mean, "MIN": np.min, "MAX": np.max}
_TOGETHER = {"SUM": "sum", "AVERAGE": "sum", "MIN": "min", "MAX": "max"}


def emit_sums(e: Emitter, item: Node) -> Value:
    """For each row what its leaves say of each target, over all trees, and the base values.

    A target of which no leaf says anything has its base value, whatever is done with the others.
    """
    kind = _kind(item.attrs)
    forest, data = _unpacked(item.attrs), as_type(e, item.inputs[0], kind)
    name, base = item.attrs.text("together"), item.attrs.numbers("base")
    together = _TOGETHER[name]
    if name == "SUM":
        return emit_scores(e, data, forest, together, base)

    def number(value: float) -> Value:
        return e.constant(np.asarray(value, to_numpy(kind)))

    start = start_of(together)
    total = emit_scores(e, data, forest, together, (start,) * len(base))
    if name == "AVERAGE":
        total = e.emit("Div", total, number(forest.roots.size))
    elif not forest.given[forest.is_leaf].all():
        total = e.emit("Where", e.emit("Equal", total, number(start)), number(0), total)
    return e.emit("Add", total, e.constant(np.asarray(base, to_numpy(kind)))) if any(base) else total


def sums(x: Array, attrs: Attrs) -> Array:
    """The same in numpy."""
    forest, kind = _unpacked(attrs), to_numpy(_kind(attrs))
    total = _FOLDS[attrs.text("together")](forest.weights[_leaves(x.astype(kind), forest)], axis=1)
    return np.asarray(np.where(np.isinf(total), 0, total) + np.asarray(attrs.numbers("base"), kind), kind)


# ---------------------------------------------------------------- records

_TREES = frozenset({
    "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values",
    "nodes_values_as_tensor", "nodes_truenodeids", "nodes_falsenodeids", "nodes_hitrates",
    "nodes_hitrates_as_tensor", "nodes_missing_value_tracks_true", "base_values", "base_values_as_tensor",
    "target_ids", "target_nodeids", "target_treeids", "target_weights", "target_weights_as_tensor",
    "class_ids", "class_nodeids", "class_treeids", "class_weights", "class_weights_as_tensor",
    "classlabels_strings",
})  # fmt: skip


def _base(node: OnnxNode, targets: int) -> tuple[float, ...]:
    found = numbers(node, "base_values", np.float32)
    if found.size not in (0, targets):
        raise InvalidError(f"{found.size} base values for {targets} targets")
    return tuple(found.tolist()) or (0.0,) * targets


def check_features(inputs: Values, forest: Forest) -> None:
    """Raise InvalidError where the trees ask for features that the rows do not have."""
    kind = inputs[0].type
    if kind.rank != 2 or forest.features.max(initial=0) >= kind.shape[1]:
        raise InvalidError(f"the trees ask for feature {forest.features.max(initial=0)} of {kind}")


def _regressor_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    targets, together = given.integer("n_targets"), given.text("aggregate_function")
    forest = _forest(node, "target", targets)
    check_features(inputs, forest)
    if together not in _TOGETHER:
        raise InvalidError(f"there is no aggregate_function {together!r}")
    transform = checked_transform(given.text("post_transform"))
    base = _base(node, targets)
    return inputs, packed(forest, together, base=base, post_transform=transform)


def _scores_type(types: Types, columns: int) -> TensorType:
    return TensorType(F32, (types[0].shape[0], columns))


REGRESSOR = Op(
    "TreeEnsembleRegressor", Kind.REDUCTION, domain=ML,
    infer=lambda t, a: (_scores_type(t, len(a.numbers("base"))),),
    reference=lambda x, a: (transformed_array(sums(x[0], a), a.text("post_transform")),),
    expand=lambda e, n: (transformed(e, emit_sums(e, n), n.attrs.text("post_transform")),),
    signatures=(
        Signature(1, {"n_targets": 1, "aggregate_function": "SUM", "post_transform": "NONE"},
                  ignored=_TREES, adapt=_regressor_import),
    ),
)  # fmt: skip


def _classifier_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """`positive`: whether all weights are, so that a single score is a probability."""
    refuse_strings(node)
    labels = Attrs(attrs).integers("classlabels_int64s")
    classes = set(numbers(node, "class_ids", np.int64).tolist())
    binary = len(labels) == 2 and len(classes) == 1
    columns = 1 if binary else len(labels)
    weights = numbers(node, "class_weights", np.float32)
    ids = np.zeros_like(numbers(node, "class_ids", np.int64)) if binary else None
    if ids is not None:
        node = OnnxNode(
            {**node.attrs, "class_ids": tuple(ids.tolist())}, node.inputs, node.known, node.used_outputs
        )
    forest = _forest(node, "class", columns)
    check_features(inputs, forest)
    transform = checked_transform(Attrs(attrs).text("post_transform"))
    return inputs, packed(
        forest, "SUM", base=_base(node, columns), post_transform=transform, labels=labels,
        positive=bool((weights >= 0).all()),
    )  # fmt: skip


def _classifier_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return TensorType(I64, types[0].shape[:1]), _scores_type(types, len(attrs.integers("labels")))


def _classifier_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    scores, labels = sums(arrays[0], attrs), np.asarray(attrs.integers("labels"))
    transform = attrs.text("post_transform")
    if scores.shape[1] == labels.size:
        return labels[scores.argmax(axis=1)], transformed_array(scores, transform)
    limit = 0.5 if attrs.flag("positive") else 0.0
    found = labels[(scores[:, 0] > limit).astype(np.int64)]
    other = 1 - scores if attrs.flag("positive") else -scores
    return found, transformed_array(np.concatenate([other, scores], axis=1), transform)


def _classifier_expand(e: Emitter, item: Node) -> Values:
    scores, attrs = emit_sums(e, item), item.attrs
    labels, transform = attrs.integers("labels"), attrs.text("post_transform")
    if scores.type.shape[1] == len(labels):
        return labelled(e, scores, labels), transformed(e, scores, transform)
    limit = e.constant(np.asarray(0.5 if attrs.flag("positive") else 0, np.float32))
    no, yes = (e.constant(np.asarray(label, np.int64)) for label in labels)
    flat = e.emit("Reshape", scores, shape=scores.type.shape[:1])
    found = e.emit("Where", e.emit("Greater", flat, limit), yes, no)
    one = e.constant(np.asarray(1, np.float32))
    other = e.emit("Sub", one, scores) if attrs.flag("positive") else e.emit("Neg", scores)
    return found, transformed(e, e.emit("Concat", other, scores, axis=1), transform)


CLASSIFIER = Op(
    "TreeEnsembleClassifier", Kind.REDUCTION, _classifier_infer, _classifier_reference, domain=ML,
    expand=_classifier_expand,
    signatures=(
        Signature(1, {"classlabels_int64s": None, "post_transform": "NONE"}, ignored=_TREES,
                  adapt=_classifier_import, outputs=2),
    ),
)  # fmt: skip

OPS = (REGRESSOR, CLASSIFIER)
