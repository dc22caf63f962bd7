"""Reads and writes at places that are computed, in tensors whose extents depend on the size.

A place below 0 counts from the end, which is that of this run. What is written at places that a run does not
have goes to a row of its own, which is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.graph.dtypes import to_numpy
from compiler.graph.rewrites.sizes.instances import Instance, Nodes
from compiler.graph.rewrites.sizes.node_writer import NodeWriter


def gathered(w: NodeWriter) -> Sequence[Nodes] | None:
    """Gather and GatherElements; None where places count from the beginning already."""
    node = w.replaced[0]
    data, places = node.inputs
    if _is_made_here(w, places.id):
        return None
    length = w.emit("Cast", w.instances.length(data.id, node.attrs.integer("axis")), to=places.type.dtype)
    return w.finish(node.op.name, data.id, _from_begin(w, places.id, length), **node.attrs)


def gathered_nd(w: NodeWriter) -> Sequence[Nodes] | None:
    """GatherND."""
    node = w.replaced[0]
    data, places = node.inputs
    if _is_made_here(w, places.id):
        return None
    lengths = _lengths(w, data.id, node.attrs.integer("batch_dims"), places.id)
    return w.finish("GatherND", data.id, _from_begin(w, places.id, lengths), **node.attrs)


def scattered_nd(w: NodeWriter) -> Sequence[Nodes] | None:
    """ScatterND: data gets one row more, where updates go that this run does not have."""
    node = w.replaced[0]
    data, places, updates = node.inputs
    if _is_made_here(w, places.id) or places.type.rank != _ROWS_AND_COLUMNS:
        return None
    kind = places.type.dtype
    found = _from_begin(w, places.id, _lengths(w, data.id, 0, places.id))
    rows = w.integers(lambda item: np.arange(item.type_of(places.id).shape[0])[:, None])
    inside = w.emit("Less", rows, w.instances.length(places.id, 0))
    nowhere = w.integers(lambda item: [item.type_of(data.id).shape[0], *[0] * (places.type.shape[1] - 1)])
    found = w.emit("Where", inside, found, w.emit("Cast", nowhere, to=kind))
    element = to_numpy(data.type.dtype)
    row = w.instances.constant(lambda item: np.zeros((1, *item.type_of(data.id).shape[1:]), element))
    written = w.emit("ScatterND", w.emit("Concat", data.id, row, axis=0), found, updates.id, **node.attrs)

    def size(item: Instance) -> dict[str, tuple[int, ...]]:
        shape = item.type_of(data.id).shape
        return {"begin": (0,) * len(shape), "step": (1,) * len(shape), "size": shape}

    return w.finish_by("Slice", [written], size)


_ROWS_AND_COLUMNS = 2


def _is_made_here(w: NodeWriter, places: int) -> bool:
    return places in w.instances.akin or w.instances.is_constant(places)


def _lengths(w: NodeWriter, data: int, first: int, places: int) -> int:
    """How long a run's axes are that places lie along, as a vector."""
    kind = w.instances.largest.type_of(places)
    axes = range(first, first + kind.shape[-1])
    parts = [w.emit("Reshape", w.instances.length(data, axis), shape=(1,)) for axis in axes]
    return w.emit("Cast", w.emit("Concat", *parts, axis=0) if len(parts) > 1 else parts[0], to=kind.dtype)


def _from_begin(w: NodeWriter, places: int, length: int) -> int:
    zero = w.instances.constant(lambda item: np.zeros((), to_numpy(item.type_of(places).dtype)))
    found = w.emit("Where", w.emit("Less", places, zero), w.emit("Add", places, length), places)
    return w.emit("Abs", found)  # which says that none is below 0
