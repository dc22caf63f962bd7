"""Gradient-boosted trees: learned, kept in a file, and read from one that anybody may have made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler.core.diagnostics import BadInputError, HostError
from compiler.core.files import write_atomic
from compiler.runtime.tensors import Array

_PARAMETERS = {
    "objective": "reg:squarederror",
    "max_depth": 6,
    "eta": 0.15,
    "gamma": 0.001,
    "min_child_weight": 0,
    "tree_method": "hist",
    "base_score": 0.0,
    "nthread": 1,  # the same trees on every machine
    "seed": 43,
    "verbosity": 0,
}
_ROUNDS = 150
_MOST_BYTES = 64 << 20


def require_xgboost() -> Any:
    """The package; raises HostError where it is not installed."""
    try:
        import xgboost
    except ImportError as error:
        raise HostError("xgboost is not installed", hint="pip install 'tk-toolchain[tune]'") from error
    return xgboost


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees that were learned: what they add up to for a row. columns: names of a row's numbers, in order."""

    booster: Any
    columns: tuple[str, ...]

    def of(self, rows: Array) -> list[float]:
        """A prediction for each row; NaN stands for what is not known."""
        data = require_xgboost().DMatrix(np.ascontiguousarray(rows, np.float32), nthread=1)
        return [float(value) for value in self.booster.predict(data)]


def learned(rows: Array, labels: Sequence[float], weights: Sequence[float], columns: Sequence[str]) -> Trees:
    """Trees whose sum comes near to the labels; the same for the same data."""
    xgboost = require_xgboost()
    data = xgboost.DMatrix(np.ascontiguousarray(rows, np.float32), label=labels, weight=weights, nthread=1)
    return Trees(xgboost.train(_PARAMETERS, data, _ROUNDS), tuple(columns))


# ---------------------------------------------------------------- files


def save_trees(trees: Trees, path: Path, version: int) -> None:
    """Write trees in xgboost's own JSON, beside the version of their columns."""
    model = json.loads(bytes(trees.booster.save_raw("json")))
    write_atomic(path, json.dumps({"features": version, "columns": trees.columns, "model": model}))


def load_trees(path: Path, version: int) -> Trees:
    """Read what `save_trees` wrote.

    Raises BadInputError for columns of another version and for what is no model: every number that xgboost
    takes as a place is checked here, as it does not do so itself. Raises HostError where there is no xgboost.
    """
    xgboost = require_xgboost()
    try:
        data = _read(path)
        if data["features"] != version:
            why = f"its columns are of version {data['features']}, these are {version}"
            raise _refused(path, why)
        columns = _names(data["columns"])
        raw = _checked(data["model"], len(columns))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise _refused(path, f"it is damaged ({type(error).__name__}: {error})") from error
    booster = xgboost.Booster({"nthread": 1})
    try:
        booster.load_model(bytearray(json.dumps(raw).encode()))
    except xgboost.core.XGBoostError as error:
        raise _refused(path, "xgboost cannot read it") from error
    return Trees(booster, columns)


def _refused(path: Path, why: str) -> BadInputError:
    hint = "remove it: a new one is learned from the database"
    return BadInputError("the cost model cannot be used", where=str(path), why=why, hint=hint)


def _read(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError("too large")
    data = json.loads(path.read_bytes())
    if not isinstance(data, dict):
        raise TypeError("no object")
    return data


def _names(columns: object) -> tuple[str, ...]:
    if not isinstance(columns, list) or not all(isinstance(item, str) for item in columns):
        raise TypeError("columns are names")
    return tuple(columns)


def _checked(model: dict[str, Any], columns: int) -> dict[str, Any]:
    """A model of the same trees, if they are trees over so many columns; nothing else is taken from it."""
    trees = model["learner"]["gradient_booster"]["model"]["trees"]
    if not isinstance(trees, list):
        raise TypeError("no list of trees")
    kept = [_checked_tree(tree, number, columns) for number, tree in enumerate(trees)]
    forest = {
        "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(kept))},
        "iteration_indptr": list(range(len(kept) + 1)),
        "tree_info": [0] * len(kept),
        "trees": kept,
    }
    learner = {
        "attributes": {},
        "feature_names": [],
        "feature_types": [],
        "gradient_booster": {"model": forest, "name": "gbtree"},
        "learner_model_param": {
            "base_score": "[0E0]",
            "boost_from_average": "0",
            "num_class": "0",
            "num_feature": str(columns),
            "num_target": "1",
        },
        "objective": {"name": _PARAMETERS["objective"], "reg_loss_param": {"scale_pos_weight": "1"}},
    }
    return {"learner": learner, "version": [3, 0, 0]}


_PLACES = ("left_children", "right_children", "parents", "split_indices", "default_left")
_NUMBERS = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")


def _checked_tree(tree: dict[str, Any], number: int, columns: int) -> dict[str, Any]:
    """A tree of the same nodes, of numbers that are compared and no categories."""
    count = len(tree["left_children"])
    places, numbers = {name: tree[name] for name in _PLACES}, {name: tree[name] for name in _NUMBERS}
    lists = [*places.values(), *numbers.values()]
    if count < 1 or any(not isinstance(item, list) or len(item) != count for item in lists):
        raise ValueError("nodes are missing")
    if any(type(value) is not int for item in places.values() for value in item):
        raise TypeError("a place is no number")
    finite = (
        type(value) in (int, float) and abs(value) < _LARGE for item in numbers.values() for value in item
    )
    if not all(finite):
        raise ValueError("a number is not finite")
    if any(not 0 <= item < columns for item in places["split_indices"]):
        raise ValueError("a split is over no column")
    if any(item not in (0, 1) for item in places["default_left"]):
        raise ValueError("a split has a third way")
    _check_links(places["left_children"], places["right_children"], places["parents"])
    return {
        **places,
        **numbers,
        **{f"categories{kind}": [] for kind in ("", "_nodes", "_segments", "_sizes")},
        "id": number,
        "split_type": [0] * count,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(columns),
            "num_nodes": str(count),
            "size_leaf_vector": "1",
        },
    }


_LARGE = 1e30
_ROOT = 2147483647
"""What the root has as its parent."""


def _check_links(left: list[int], right: list[int], parents: list[int]) -> None:
    """Each node but the root is the child of one that comes before it, once."""
    children = [-1] * len(left)
    for node, pair in enumerate(zip(left, right, strict=True)):
        if pair == (-1, -1):
            continue
        for child in pair:
            if not node < child < len(left) or children[child] != -1:
                raise ValueError("nodes are no tree")
            children[child] = node
    if parents != [_ROOT, *children[1:]] or -1 in children[1:]:
        raise ValueError("nodes are no tree")
