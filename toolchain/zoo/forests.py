"""Ensembles of decision trees as converters of boosting libraries write them (ai.onnx.ml)."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import NormalDist

import onnx
from onnx import helper

from toolchain.zoo import weights
from toolchain.zoo.builder import Draft

_EARLIEST = 3  # levels that every walk has
_STOPS = 0.1  # of the nodes below


@dataclass(slots=True)
class _Nodes:
    """The nodes of all trees, attribute by attribute; those of one tree are numbered from 0."""

    trees: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    features: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    leaves: list[tuple[int, int, float]] = field(default_factory=list)


def forest(
    network: str, logit_gain: float, *, rows: int, trees: int = 500, features: int = 28, levels: int = 8
) -> Draft:
    """Boosted trees for one number: `x` [rows, features] -> `y` [rows, 1].

    Trees have at most so many levels of conditions, and ends from the fourth level on. Thresholds split
    standard normal features about in the middle.
    """
    nodes = _Nodes()
    for tree in range(trees):
        _grow(nodes, network, tree, features, levels, logit_gain)
    leaves = nodes.leaves
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", name="trees", n_targets=1,
        nodes_treeids=nodes.trees, nodes_nodeids=nodes.numbers, nodes_featureids=nodes.features,
        nodes_values=nodes.thresholds, nodes_truenodeids=nodes.yes, nodes_falsenodeids=nodes.no,
        nodes_modes=nodes.modes, target_ids=[0] * len(leaves), base_values=[0.5],
        target_treeids=[tree for tree, _, _ in leaves], target_nodeids=[at for _, at, _ in leaves],
        target_weights=[weight for _, _, weight in leaves],
    )  # fmt: skip
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        network,
        [helper.make_tensor_value_info("x", kind, [rows, features])],
        [helper.make_tensor_value_info("y", kind, [rows, 1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return Draft(helper.make_model(graph, producer_name="tk zoo", opset_imports=opsets, ir_version=8), ())


def _grow(nodes: _Nodes, network: str, tree: int, features: int, levels: int, gain: float) -> None:
    """One tree, level by level; four seeded numbers decide each node."""
    chances = weights.uniform(network.rpartition("-")[0], f"tree{tree}", (2 << levels, 4), 0.0, 1.0)
    level, count = [0], 1
    for depth in range(levels + 1):
        below: list[int] = []
        for number in level:
            stops, feature, middle, value = (float(one) for one in chances[number])
            is_leaf = depth == levels or (depth >= _EARLIEST and stops < _STOPS)
            first = count if not is_leaf else 0
            second = first + 1 if not is_leaf else 0
            nodes.trees.append(tree)
            nodes.numbers.append(number)
            nodes.features.append(0 if is_leaf else int(feature * features))
            nodes.thresholds.append(0.0 if is_leaf else NormalDist().inv_cdf(0.3 + 0.4 * middle))
            nodes.yes.append(first)
            nodes.no.append(second)
            nodes.modes.append("LEAF" if is_leaf else "BRANCH_LEQ")
            if is_leaf:
                nodes.leaves.append((tree, number, gain * (value - 0.5)))
            else:
                below += [first, second]
                count += 2
        level = below
