"""Operators in forms that do for all sizes, where their own say one size: in all instances alike.

Positions that count from an end become constants that grow with a symbol, and means become sums over counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from compiler.graph.attrs import AttrValue
from compiler.graph.dtypes import Array, from_numpy
from compiler.graph.rewrites.sizes.averaging import averaged
from compiler.graph.rewrites.sizes.instances import Instance, Instances, Nodes
from compiler.graph.rewrites.sizes.node_writer import NodeWriter
from compiler.graph.rewrites.sizes.padding import with_equal_padding
from compiler.graph.rewrites.sizes.places import gathered, gathered_nd, scattered_nd
from compiler.graph.rewrites.sizes.resizing import resized


def rescued(instances: Instances, nodes: Nodes) -> Sequence[Nodes] | None:
    """Nodes that make the same; None where there is no other form."""
    rescue = _RESCUES.get(nodes[0].op.name)
    instances.instead = tuple(value.id for value in (*nodes[0].inputs, *nodes[0].outputs))
    return rescue(NodeWriter(instances, nodes)) if rescue is not None else None


def _slice(w: NodeWriter) -> Sequence[Nodes] | None:
    """What is taken from a place that depends on the size is gathered.

    A run may have less than is taken from the end: then it is taken from the begin.
    """
    begins = [node.attrs.integers("begin") for node in w.replaced]
    moving = [axis for axis in range(len(begins[0])) if len({begin[axis] for begin in begins}) > 1]
    if not moving:
        return None

    def rest(item: Instance) -> Mapping[str, AttrValue]:
        attrs, shape = w.node_of(item).attrs, w.node_of(item).inputs[0].type.shape
        rows = zip(*(attrs.integers(name) for name in ("begin", "step", "size")), shape, strict=True)
        kept = [(0, 1, extent) if at in moving else row for at, (*row, extent) in enumerate(rows)]
        begin, step, size = zip(*kept, strict=True)
        return {"begin": begin, "step": step, "size": size}

    def begin_of(axis: int, item: Instance) -> int:
        return w.node_of(item).attrs.integers("begin")[axis]

    def behind(axis: int, item: Instance) -> Array:
        step, size = (w.node_of(item).attrs.integers(name)[axis] for name in ("step", "size"))
        return np.arange(size) * step

    def places(axis: int) -> int:
        first = w.emit("Max", w.integers(partial(begin_of, axis)), w.integers(lambda _: 0))
        return w.emit("Add", w.integers(partial(behind, axis)), first)

    found = w.emit_by("Slice", [w.replaced[0].inputs[0].id], rest)
    for axis in moving[:-1]:
        found = w.emit("Gather", found, places(axis), axis=axis)
    return w.finish("Gather", found, places(moving[-1]), axis=moving[-1])


def _concat(w: NodeWriter) -> Sequence[Nodes]:
    """Each part begins where those before it end in this run; an input that becomes an output is extended."""
    node = w.replaced[0]
    axis, rank = node.attrs.integer("axis"), node.output.type.rank
    graph = w.instances.largest.graph
    if len(node.inputs) == 2 and node.inputs[0] in graph.operands and node.output in graph.results:
        length = w.integers(lambda item: w.node_of(item).inputs[0].type.shape[axis])
        return w.finish("Append", *(value.id for value in node.inputs), length, axis=axis)

    def end(count: int, item: Instance) -> int:
        """How long so many parts are."""
        return sum(value.type.shape[axis] for value in w.node_of(item).inputs[:count])

    def part(number: int, index: int) -> int:
        last = w.integers(lambda item: end(number + 1, item) - end(number, item) - 1)
        return w.emit("Gather", node.inputs[number].id, w.emit("Min", index, last), axis=axis)

    place = w.integers(lambda item: np.arange(w.node_of(item).output.type.shape[axis]))
    zero = w.integers(lambda _: 0)
    joined = part(0, place)
    for number in range(1, len(node.inputs)):
        begin = w.integers(partial(end, number))
        after = part(number, w.emit("Max", w.emit("Sub", place, begin), zero))
        column = w.emit_by(
            "Reshape",
            [w.emit("Less", place, begin)],
            lambda item: {"shape": (w.node_of(item).output.type.shape[axis],) + (1,) * (rank - axis - 1)},
        )
        if number == len(node.inputs) - 1:
            return w.finish("Where", column, joined, after)
        joined = w.emit("Where", column, joined, after)
    return w.made


def _gather(w: NodeWriter) -> Sequence[Nodes] | None:
    """Places that are counted from the end are so many from the start as this run has."""
    node = w.replaced[0]
    source, places = (value.id for value in node.inputs)
    if not w.instances.is_constant(places):
        return gathered(w)
    if np.all(w.instances.largest.constants[places] >= 0):
        return None
    axis = node.attrs.integer("axis")

    def counted(item: Instance) -> Array:
        known = item.constants[places]
        return np.where(known < 0, known + item.type_of(source).shape[axis], known).astype(known.dtype)

    return w.finish("Gather", source, w.instances.constant(counted), axis=axis)


def _mean(w: NodeWriter) -> Sequence[Nodes]:
    """The sum over the count of this run."""
    node = w.replaced[0]
    source, kind = node.inputs[0], node.output.type.dtype
    axes = node.attrs.integers("axes", tuple(range(2, source.type.rank)))
    keepdims = node.attrs.flag("keepdims", default=True)

    found = w.emit("ReduceSum", source.id, axes=axes, keepdims=keepdims)
    counts = [w.emit("Cast", w.instances.length(source.id, axis), to=kind) for axis in axes]
    for count in counts[:-1]:
        found = w.emit("Div", found, count)
    return w.finish("Div", found, counts[-1])


_LENGTHS = 4
"""The place of the operand that says how long sequences are."""


def _recurrent(w: NodeWriter) -> Sequence[Nodes] | None:
    """Sequences are as long as this run has steps, which other steps change nothing of.

    Results of steps behind the end are zero, which is worth less than not to compute what is made of them.
    """
    node = w.replaced[0]
    given = node.attrs.integers("given")
    if _LENGTHS in given:
        return None
    time = node.attrs.integer("layout")

    def none(item: Instance) -> Array:
        return np.zeros(w.node_of(item).inputs[0].type.shape[1 - time], np.int32)

    operands = dict(zip((0, 1, 2, *given), (value.id for value in node.inputs), strict=True))
    length = w.emit("Cast", w.instances.length(node.inputs[0].id, time), to=from_numpy(np.dtype(np.int32)))
    operands[_LENGTHS] = w.emit("Add", w.instances.constant(none), length)
    places = sorted(operands)
    attrs = {**node.attrs, "given": tuple(place for place in places if place > 2)}
    w.instances.ignored.add((node.outputs[0].id, time))
    return w.finish(node.op.name, *(operands[place] for place in places), **attrs)


_RESCUES: Mapping[str, Callable[[NodeWriter], Sequence[Nodes] | None]] = {
    "AveragePool": averaged,
    "Concat": _concat,
    "Conv": partial(with_equal_padding, fill=0.0),
    "GRU": _recurrent,
    "Gather": _gather,
    "GatherElements": gathered,
    "GatherND": gathered_nd,
    "GlobalAveragePool": _mean,
    "LSTM": _recurrent,
    "MaxPool": partial(with_equal_padding, fill=-np.inf),
    "RNN": _recurrent,
    "ReduceMean": _mean,
    "Resize": resized,
    "ScatterND": scattered_nd,
    "Slice": _slice,
    "SumPool": partial(with_equal_padding, fill=0.0),
}
