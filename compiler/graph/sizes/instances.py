"""A model at several sizes: the same nodes, one after the other, in each instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, from_numpy
from compiler.graph.ir import Graph, Node, TensorType, Value
from compiler.graph.ops import OPS
from compiler.graph.sizes.fits import Point

Nodes = tuple[Node, ...]
"""The same node in all instances."""


class FixedSizeError(Exception):
    """Why kernels of one size do not do for others; `str` of it is for the user."""


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
    """All instances, that of the largest extents first; new nodes and tensors come to all of them at once."""

    def __init__(self, graphs: Sequence[Graph], points: Sequence[Point]) -> None:
        _check_alike(graphs)
        self.all = tuple(Instance(graph, point) for graph, point in zip(graphs, points, strict=True))
        self.points = tuple(points)
        self._next = max(graph.next_id for graph in graphs)

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

    def node(
        self,
        op: str,
        inputs: Sequence[int],
        attrs: Callable[[Instance], Mapping[str, AttrValue]] = lambda _: {},
        *,
        makes: int | None = None,
        origin: tuple[str, ...] = (),
    ) -> Nodes:
        """A node of one result for each instance, not folded where its operands are known.

        makes: the tensor that it makes; by default a new one.
        """
        number = self._number() if makes is None else makes
        made = []
        for item in self.all:
            operands = tuple(item.values[one] for one in inputs)
            given = Attrs(attrs(item))
            (kind,) = OPS[op].infer(tuple(value.type for value in operands), given)
            name = item.values[number].name if number in item.values else ""
            item.values[number] = Value(number, kind, name)
            made.append(Node(OPS[op], operands, (item.values[number],), given, origin))
        return tuple(made)

    def fresh(self, kind: TensorType) -> Value:
        """A tensor of the largest instance alone."""
        return Value(self._number(), kind)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1


def _check_alike(graphs: Sequence[Graph]) -> None:
    """Raise FixedSizeError unless all have the same operators on the same tensors."""
    first = graphs[0]
    for other in graphs[1:]:
        for a, b in zip_longest(first.nodes, other.nodes):
            if a is None or b is None or a.op is not b.op or a.inputs != b.inputs or a.outputs != b.outputs:
                extra = b or a
                name = extra.origin[-1] if extra.origin else str(extra.output)
                raise FixedSizeError(f"node {name!r} ({extra.op.name}) is there for some sizes only")
        if first.constants.keys() != other.constants.keys() or first.outputs != other.outputs:
            raise FixedSizeError("some of its tensors are known for some sizes only")
