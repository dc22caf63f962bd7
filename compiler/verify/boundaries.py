"""The walk over a library's kernels: which value each ends with, and which nodes of the model it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx


@dataclass(frozen=True, slots=True)
class Boundary:
    """One kernel of a library: the value that it ends with, and the places in the file of its nodes."""

    value: str
    nodes: tuple[int, ...]


def boundaries(model: onnx.ModelProto, plan: Mapping[str, Any]) -> tuple[Boundary, ...]:
    """The kernels whose result has a name in the file, each once, in order of execution.

    plan: what the manifest says of one.
    """
    by_label = _labels(model)
    found: dict[str, Boundary] = {}
    for step in plan["steps"]:
        labels = (
            f"makes {label.partition(', makes ')[2]}" if label[:1] == "(" else label
            for label in step["nodes"]
        )
        places = sorted(by_label[label] for label in labels if label in by_label)
        if places:
            _, name = places[-1]
            found.setdefault(name, Boundary(name, tuple(place for place, _ in places)))
    return tuple(found.values())


def _labels(model: onnx.ModelProto) -> dict[str, tuple[int, str]]:
    """What the manifest calls a node -> its place in the file and its first output."""
    labels = {}
    for place, node in enumerate(model.graph.node):
        if node.op_type == "Constant" or not node.output:
            continue
        label = node.name or _nameless(node)
        labels[label] = (place, node.output[0])
    return labels


def _nameless(node: onnx.NodeProto) -> str:
    return f"makes {', '.join(node.output)[:80]})"
