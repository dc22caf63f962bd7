"""How long results are that end at a limit, or where there is no more: `x[:100]`, the 100 largest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.graph.dtypes import Array
from compiler.graph.edit import Editor
from compiler.graph.ir import Value
from compiler.graph.op import OnnxNode


def clipped_count(e: Editor, op: str, node: OnnxNode, axis: int) -> Value | None:
    """The extent of a node's results along an axis, as a vector of one element that follows from operands.

    None where it is not known how it follows.
    """
    if op == "TopK":
        return node.inputs[1]
    return _of_slice(e, node, axis) if op == "Slice" else None


def _of_slice(e: Editor, node: OnnxNode, axis: int) -> Value | None:
    data, starts, ends = node.inputs[0], _integers(node, 1, "starts"), _integers(node, 2, "ends")
    if data is None or starts is None or ends is None:
        return None
    axes = _integers(node, 3, "axes")
    along = [one % data.type.rank for one in (axes if axes is not None else range(len(starts)))]
    steps = _integers(node, 4, "steps") or [1] * len(starts)
    at = along.index(axis) if axis in along else -1
    if at < 0 or steps[at] < 1:
        return None

    def number(value: int) -> Value:
        return e.constant(np.array([value]))

    length = number(data.type.shape[axis])

    def place(value: int) -> Value:
        if value < 0:
            return e.emit("Max", e.emit("Add", length, number(value)), number(0))
        return e.emit("Min", length, number(value))

    more = e.emit("Sub", place(ends[at]), place(starts[at]))
    steps_up = e.emit("Add", e.emit("Max", more, number(0)), number(steps[at] - 1))
    return e.emit("Div", steps_up, number(steps[at]))


def _integers(node: OnnxNode, number: int, name: str) -> Sequence[int] | None:
    """An operand that is known, or in old models an attribute."""
    given: object = node.known_at(number) if node.has(number) else node.attrs.get(name)
    if isinstance(given, np.ndarray):
        found: Array = given.reshape(-1)
        return [int(item) for item in found]
    return [int(item) for item in given] if isinstance(given, tuple) else None
