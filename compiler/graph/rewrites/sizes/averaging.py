"""Averages over windows whose counts depend on the size: those at the end of an axis have fewer elements.

The sum of each window is divided by the elements that it has in this run, which are counted for each axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.core.types import I64
from compiler.graph.dtypes import Array
from compiler.graph.ops.windows import windows_of
from compiler.graph.rewrites.sizes.instances import Instance, Nodes
from compiler.graph.rewrites.sizes.node_writer import NodeWriter

_FIRST = 2
"""The first axis that windows move along."""


def averaged(w: NodeWriter) -> Sequence[Nodes] | None:
    """Sums by counts; None where what of the padding counts depends on the size."""
    node = w.replaced[0]
    counted = [
        [one.attrs.integers(name) for one in w.replaced] for name in ("counted_before", "counted_after")
    ]
    if any(len(set(some)) > 1 for some in counted):
        return None
    source, axes = node.inputs[0], range(node.output.type.rank - _FIRST)
    found = w.emit_by("SumPool", [source.id], lambda item: windows_of(w.node_of(item).attrs).attrs())
    counts = [w.emit("Cast", _count(w, at), to=node.output.type.dtype) for at in axes]
    for count in counts[:-1]:
        found = w.emit("Div", found, count)
    return w.finish("Div", found, counts[-1])


def _count(w: NodeWriter, at: int) -> int:
    """How many elements windows count along an axis, at least one, in a shape that goes with results."""
    attrs, axes = w.replaced[0].attrs, len(w.replaced[0].attrs.integers("counted_before"))
    low, high = attrs.integers("counted_before")[at], attrs.integers("counted_after")[at]

    def taps(item: Instance) -> Array:
        """Where each window looks, [windows, taps]."""
        node = w.node_of(item)
        windows = windows_of(node.attrs)
        first = np.arange(node.output.type.shape[_FIRST + at])[:, None] * windows.strides[at]
        return first - windows.before[at] + np.arange(windows.kernel[at]) * windows.dilations[at]

    places = w.integers(taps)
    end = w.emit(
        "Add", w.instances.length(w.replaced[0].inputs[0].id, _FIRST + at), w.integers(lambda _: high)
    )
    inside = w.emit(
        "And", w.emit("Less", places, end), w.emit("GreaterOrEqual", places, w.integers(lambda _: -low))
    )
    whole = w.emit("Cast", inside, to=I64)
    count = w.emit("Max", w.emit("ReduceSum", whole, axes=(1,), keepdims=True), w.integers(lambda _: 1))
    return w.emit_by(
        "Reshape",
        [count],
        lambda item: {"shape": (w.node_of(item).output.type.shape[_FIRST + at],) + (1,) * (axes - 1 - at)},
    )
