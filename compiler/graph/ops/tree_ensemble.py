"""TreeEnsemble (ai.onnx.ml, opset 5): trees whose leaves are apart from nodes, and tests of membership."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, from_numpy
from compiler.graph.ir import Node, TensorType
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
    Values,
)
from compiler.graph.ops.forest import Forest, heights
from compiler.graph.ops.learned import (
    ML,
    TRANSFORMS,
    as_type,
    checked_transform,
    transformed,
    transformed_array,
)
from compiler.graph.ops.trees import check_features, emit_sums, numbers, packed, sums

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


class _Row(NamedTuple):
    """A node; a leaf leads to itself."""

    feature: int
    threshold: float
    yes: int
    no: int
    missing: bool
    mode: str


def _search(rows: list[_Row], node: _Row, members: Sequence[float]) -> _Row:
    """The node that looks a value up among sorted members by halves; `rows` gets the nodes below it."""
    if len(members) < 2:
        return node._replace(mode="BRANCH_EQ", threshold=members[0] if members else np.nan)
    half = len(members) // 2
    ends = []
    for part in (members[:half], members[half:]):
        below = _search(rows, node, part)
        ends.append(len(rows))
        rows.append(below)
    return node._replace(mode="BRANCH_LEQ", threshold=members[half - 1], yes=ends[0], no=ends[1])


def _member_sets(values: Array) -> list[list[float]]:
    """Sets with a NaN behind each, which the last one may lack; each sorted."""
    *parts, last = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    parts += [last] if last.size else []
    return [sorted({float(one) for one in part if one == one}) for part in parts]


def _rows(node: OnnxNode, leaves: int, kind: np.dtype) -> list[_Row]:
    """All nodes: those that branch, then leaves, then what tests of membership are made of."""
    modes = numbers(node, "nodes_modes", np.int64)
    count = modes.size

    def column(name: str, dtype: type | np.dtype = np.int64) -> Array:
        found = numbers(node, name, dtype)
        if found.size != count:
            raise InvalidError(f"{found.size} {name} for {count} nodes")
        return found

    def ends(side: str) -> Array:
        leaf, at = column(f"nodes_{side}leafs").astype(bool), column(f"nodes_{side}nodeids")
        if ((at < 0) | (at >= np.where(leaf, leaves, count))).any() or not count:
            raise InvalidError(f"a node leads to no node or leaf where it is {side}")
        return np.asarray(np.where(leaf, at + count, at))

    if ((modes < 0) | (modes >= len(_MODES))).any():
        raise InvalidError(f"there is no mode {modes.max()} of a node")
    tracked = numbers(node, "nodes_missing_value_tracks_true", np.int64)
    missing = tracked.astype(bool) if tracked.size == count else np.zeros(count, bool)
    columns = column("nodes_featureids"), column("nodes_splits", kind), ends("true"), ends("false"), missing
    each = zip(*(one.tolist() for one in columns), modes.tolist(), strict=True)
    rows = [
        _Row(feature, split, yes, no, missing=tracks, mode=_MODES[mode])
        for feature, split, yes, no, tracks, mode in each
    ]
    rows += [_Row(0, 0.0, at, at, missing=False, mode="BRANCH_LEQ") for at in range(count, count + leaves)]
    sets, tests = _member_sets(numbers(node, "membership_values", kind)), np.flatnonzero(modes == 6)
    if len(sets) != tests.size:
        raise InvalidError(f"{len(sets)} sets of members for {tests.size} tests of membership")
    for at, members in zip(tests.tolist(), sets, strict=True):
        rows[at] = _search(rows, rows[at], members)
    return rows


def _forest(node: OnnxNode, targets: int) -> Forest:
    leaf_weights = node.attrs.get("leaf_weights")
    if not isinstance(leaf_weights, np.ndarray):
        raise InvalidError("TreeEnsemble has no leaf_weights")
    kind = np.dtype(np.float64 if leaf_weights.dtype == np.float64 else np.float32)
    ids = numbers(node, "leaf_targetids", np.int64)
    if ids.size != leaf_weights.size or ((ids < 0) | (ids >= targets)).any():
        raise InvalidError(f"{ids.size} leaf_targetids for {leaf_weights.size} leaves and {targets} targets")
    rows = _rows(node, ids.size, kind)
    roots, branching = numbers(node, "tree_roots", np.int64), len(numbers(node, "nodes_modes", np.int64))
    if ((roots < 0) | (roots >= branching)).any() or not roots.size:
        raise InvalidError("tree_roots are no nodes")
    features, thresholds, yes, no, missing, modes = zip(*rows, strict=True)
    weights, given = np.zeros((len(rows), targets), kind), np.zeros((len(rows), targets), bool)
    places = branching + np.arange(ids.size), ids
    weights[places], given[places] = leaf_weights.reshape(-1), True
    found = Forest(
        roots=roots, features=np.asarray(features, np.int64), thresholds=np.asarray(thresholds, kind),
        yes=np.asarray(yes, np.int64), no=np.asarray(no, np.int64), missing=np.asarray(missing, bool),
        modes=np.asarray(modes), weights=weights, given=given,
    )  # fmt: skip
    heights(found)  # every walk ends
    return found


def _import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    targets, together = given.integer("n_targets"), given.integer("aggregate_function")
    transform = given.integer("post_transform")
    if targets < 1 or together not in range(4) or transform not in range(len(TRANSFORMS)):
        raise InvalidError(f"{targets} targets, aggregate_function {together}, post_transform {transform}")
    forest, kind = _forest(node, targets), from_numpy(np.asarray(node.attrs["leaf_weights"]).dtype)
    check_features(inputs, forest)
    if kind != inputs[0].type.dtype:
        raise InvalidError(f"leaf_weights are {kind}, the rows {inputs[0].type.dtype}")
    name = checked_transform(TRANSFORMS[transform])
    return inputs, packed(forest, _AGGREGATES[together], base=(0.0,) * targets, post_transform=name)


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0].with_shape((types[0].shape[0], len(attrs.numbers("base")))),)


def _reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    found = transformed_array(sums(arrays[0], attrs), attrs.text("post_transform"))
    return (found.astype(arrays[0].dtype),)


def _expand(e: Emitter, item: Node) -> Values:
    found = transformed(e, emit_sums(e, item), item.attrs.text("post_transform"))
    return (as_type(e, found, item.output.type.dtype),)


ENSEMBLE = Op(
    "TreeEnsemble", Kind.REDUCTION, domain=ML, infer=_infer, reference=_reference, expand=_expand,
    signatures=(
        Signature(
            5, {"n_targets": 1, "aggregate_function": 1, "post_transform": 0}, adapt=_import,
            ignored=frozenset({
                "nodes_featureids", "nodes_modes", "nodes_splits", "nodes_truenodeids", "nodes_falsenodeids",
                "nodes_trueleafs", "nodes_falseleafs", "nodes_hitrates", "nodes_missing_value_tracks_true",
                "membership_values", "leaf_targetids", "leaf_weights", "tree_roots",
            }),
        ),
    ),
)  # fmt: skip

OPS = (ENSEMBLE,)
