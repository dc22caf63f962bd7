"""A model at several sizes: the same nodes, one after the other, in each instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, from_numpy
from compiler.graph.ir import Extent, Graph, Node, Shape, TensorType, Value
from compiler.graph.ops import OPS
from compiler.graph.rewrites.sizes.fits import Point

Nodes = tuple[Node, ...]
"""The same node in all instances."""


class FixedSizeError(Exception):
    """Why kernels of one size do not do for others; `str` of it is for the user."""


class UnevenExtentError(FixedSizeError):
    """An extent of a tensor does not follow from the sizes as a sum."""

    def __init__(self, tensor: str, axis: int, extents: Sequence[int]) -> None:
        text = ", ".join(map(str, dict.fromkeys(extents)))
        super().__init__(f"an extent of {tensor!r} is not a sum of dimensions: {text}")
        self.tensor = tensor
        self.axis = axis


@dataclass(frozen=True, slots=True)
class Witness:
    """The shapes that named tensors have at other sizes, where nodes may be others than at those tried."""

    point: Point
    shapes: Mapping[str, Shape]

    @classmethod
    def of(cls, graph: Graph, point: Point) -> Witness:
        """Of the model at these sizes; what several tensors are called, as in a loop, tells nothing."""
        values = [value for value in (*graph.producers, *graph.constants) if value.name]
        names = Counter(value.name for value in values)
        return cls(point, {value.name: value.type.shape for value in values if names[value.name] == 1})

    def check(self, tensor: str, axis: int, extent: Extent, extents: Sequence[int]) -> None:
        """Raise UnevenExtentError where an extent is another one here; extents: those it was found from."""
        shape = self.shapes.get(tensor, ())
        if axis < len(shape) and shape[axis] != extent.of(self.point):
            raise UnevenExtentError(tensor, axis, (*extents, shape[axis]))


class Instance:
    """A model with these values of its symbols; tensors are found by number, which all instances share."""

    def __init__(self, graph: Graph, point: Point) -> None:
        self.graph = graph
        self.point = point
        self.constants: dict[int, Array] = {value.id: array for value, array in graph.constants.items()}
        sources = (*graph.inputs, *graph.constants, *graph.producers)
        self.values: dict[int, Value] = {value.id: value for value in sources}

    def type_of(self, number: int) -> TensorType:
        """The type of a tensor in this instance."""
        return self.values[number].type


class Instances:
    """All instances, that of the largest extents first; new nodes and tensors come to all of them at once.

    instead: ends of the node in whose place nodes are being added; akin: the same for each tensor that was.
    ignored: (tensor, axis) where what is known of what is beyond is not to be relied on, so that nobody has
    to compute it.
    """

    def __init__(self, graphs: Sequence[Graph], points: Sequence[Point]) -> None:
        aligned = _aligned(graphs)
        self.all = tuple(Instance(graph, point) for graph, point in zip(aligned, points, strict=True))
        self.points = tuple(points)
        self.lengths: dict[int, tuple[int, int]] = {}
        self.akin: dict[int, tuple[int, ...]] = {}
        self.instead: tuple[int, ...] = ()
        self.ignored: set[tuple[int, int]] = set()
        self._next = max(graph.next_id for graph in aligned)

    @property
    def largest(self) -> Instance:
        """That whose extents tensors have in memory."""
        return self.all[0]

    def types(self, number: int) -> tuple[TensorType, ...]:
        """A tensor's type in each instance."""
        return tuple(item.type_of(number) for item in self.all)

    def is_constant(self, number: int) -> bool:
        """Whether a tensor is known; it may be another one in each instance."""
        return number in self.largest.constants

    def constant(self, make: Callable[[Instance], Array]) -> int:
        """Add a constant, which instances may know as another one each."""
        number = self._number()
        for item in self.all:
            array = make(item)
            item.constants[number] = array
            item.values[number] = Value(number, TensorType(from_numpy(array.dtype), array.shape))
        return number

    def length(self, number: int, axis: int) -> int:
        """Add a constant, an i64, that is the extent of an axis; `lengths` says which."""
        made = self.constant(lambda item: np.asarray(item.type_of(number).shape[axis], np.int64))
        self.lengths[made] = number, axis
        return made

    def node(
        self,
        op: str,
        inputs: Sequence[int],
        attrs: Callable[[Instance], Mapping[str, AttrValue]] = lambda _: {},
        *,
        makes: Sequence[int] = (),
        origin: tuple[str, ...] = (),
    ) -> Nodes:
        """A node for each instance, not folded where its operands are known.

        makes: the tensors that it makes; by default a new one.
        """
        numbers = makes or (self._number(),)
        made = []
        for item in self.all:
            operands = tuple(item.values[one] for one in inputs)
            given = Attrs(attrs(item))
            types = OPS[op].infer(tuple(value.type for value in operands), given)
            for number, kind in zip(numbers, types, strict=True):
                name = item.values[number].name if number in item.values else ""
                item.values[number] = Value(number, kind, name)
            results = tuple(item.values[number] for number in numbers)
            made.append(Node(OPS[op], operands, results, given, origin))
        return tuple(made)

    def fresh(self, kind: TensorType) -> Value:
        """A tensor of the largest instance alone."""
        return Value(self._number(), kind)

    def _number(self) -> int:
        self.akin[self._next] = self.instead
        self._next += 1
        return self._next - 1


Row = tuple[Value, ...]
"""One tensor, as each graph has it."""


def _aligned(graphs: Sequence[Graph]) -> list[Graph]:
    """The graphs with numbers by which the same tensor is found in all of them.

    Raises FixedSizeError unless all have the same operators on the same tensors.
    """
    _check_operators(graphs)
    numbers: dict[Row, int] = {}

    def rows(parts: Iterable[Sequence[Value]]) -> list[Row]:
        found = list(zip(*parts, strict=True))
        for row in found:
            numbers.setdefault(row, len(numbers))
        return found

    inputs = rows(graph.inputs for graph in graphs)
    nodes = list(zip(*(graph.nodes for graph in graphs), strict=True))
    ends = [(rows(n.inputs for n in group), rows(n.outputs for n in group)) for group in nodes]
    outputs = rows(graph.outputs for graph in graphs)
    _check_sources(graphs, numbers)

    def aligned(at: int, graph: Graph) -> Graph:
        def values(found: Sequence[Row]) -> tuple[Value, ...]:
            return tuple(Value(numbers[row], row[at].type, row[at].name) for row in found)

        made = [
            Node(node.op, values(read), values(written), node.attrs, node.origin)
            for node, (read, written) in zip(graph.nodes, ends, strict=True)
        ]
        known = [row for row in numbers if row[at] in graph.constants]
        constants = {value: graph.constants[row[at]] for value, row in zip(values(known), known, strict=True)}
        return graph.replace(inputs=values(inputs), nodes=made, outputs=values(outputs), constants=constants)

    return [aligned(at, graph) for at, graph in enumerate(graphs)]


def _check_operators(graphs: Sequence[Graph]) -> None:
    """The same, one after the other, between as many inputs and outputs."""
    if len({(len(graph.inputs), len(graph.outputs)) for graph in graphs}) > 1:
        raise FixedSizeError("some inputs or outputs are there for some sizes only")
    for group in zip_longest(*(graph.nodes for graph in graphs)):
        there = [item for item in group if item is not None]
        if len(there) < len(group) or len({(n.op, len(n.inputs), len(n.outputs)) for n in there}) > 1:
            name = there[-1].origin[-1] if there[-1].origin else str(there[-1].output)
            raise FixedSizeError(f"node {name!r} ({there[-1].op.name}) is there for some sizes only")


def _check_sources(graphs: Sequence[Graph], numbers: Iterable[Row]) -> None:
    """What one instance knows all know; what is computed is one tensor in all."""
    computed: set[tuple[int, Value]] = set()
    for row in numbers:
        known = {value in graph.constants for value, graph in zip(row, graphs, strict=True)}
        places = set() if all(known) else set(enumerate(row))
        if len(known) > 1 or places & computed:
            name = row[0].name or str(row[0])
            raise FixedSizeError(f"tensor {name!r} is known, or shared, for some sizes only")
        computed |= places
