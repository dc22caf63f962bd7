"""The model's operators at sizes that there is no instance of, for experiments.

Instances are few, and small: behind strides of 32 they all have one place, and where all have an even number
of places, nothing shows what an odd one does. So each operator is also tried at sizes that follow one another
in its own operands, from what is known of extents, attributes and constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd, lcm

import numpy as np

from compiler.graph.dtypes import Array
from compiler.graph.extents import Ends
from compiler.graph.interpret import apply
from compiler.graph.ir import Extent, Node, Symbol, TensorType, Value
from compiler.graph.op import RefusedError
from compiler.graph.rewrites.sizes.attributes import attributes_at
from compiler.graph.rewrites.sizes.fits import Point, fit_extent
from compiler.graph.rewrites.sizes.instances import Instance, Instances, Nodes
from compiler.graph.rewrites.sizes.restriction import Operand, Trial

_PLACES = (8, 20, 70)
"""About so many places along an axis, the first that an operator takes: windows want some room."""
_ALONE, _TOGETHER = (1, 2, 3, 4, 5), (1, 2, 5)
"""By how many places parts are smaller: along one symbol alone, and along all."""
_UNITS, _FEWEST = 4, 3
"""Steps of a symbol that make the larger size, and parts that an operator has to take: at least so many."""


def _counts(counts: Sequence[int], more: int) -> Sequence[int]:
    """By how many steps to be smaller, where each is so many places: many places are large tensors."""
    return counts if more == 1 else counts[: _UNITS - 1]


@dataclass(frozen=True, slots=True)
class AnySize:
    """Tensors and nodes at any values of the symbols, by how they follow from these.

    extents: of each tensor, how much of each axis a run has. grown: constants of the largest size, and how
    much their elements grow with each symbol. learned: nodes whose operands are all known, by what they make.
    natural: tensors that hold nothing below 0. All four are added to while the graph is gone through. tried:
    how many instances are for experiments.
    """

    instances: Instances
    symbols: Sequence[Symbol]
    tried: int | None = None
    extents: dict[int, Ends] = field(default_factory=dict)
    grown: dict[int, tuple[Array, Point]] = field(default_factory=dict)
    learned: dict[int, Nodes] = field(default_factory=dict)
    natural: set[int] = field(default_factory=set)

    @property
    def steps(self) -> Point:
        """What each symbol is a multiple of."""
        return tuple(symbol.step for symbol in self.symbols)

    def seen(self, nodes: Nodes) -> tuple[Trial, ...]:
        """A node at the larger and smaller sizes of the instances."""
        _, whole, *parts = self.instances.all[: self.tried]
        return tuple(
            Trial(nodes[1], node, tuple(self._seen(value.id, whole, part) for value in node.inputs))
            for part, node in zip(parts, nodes[2 : self.tried], strict=True)
        )

    def more(self, nodes: Nodes) -> tuple[Trial, ...]:
        """The same at sizes that follow one another, as far as what operands hold is known there."""
        found = (self._trial(nodes, *points) for points in self._points(nodes))
        return tuple(one for one in found if one is not None)

    def differs(self, nodes: Nodes) -> Value | None:
        """A result of which the types at some sizes are not what its extents say; None where all are."""
        for point in {point for points in self._points(nodes) for point in points}:
            node = self._node(nodes, point)
            for value in node.outputs if node is not None else ():
                if value.type != self._type(value.id, point):
                    return value
        return None

    def is_known(self, number: int) -> bool:
        """Whether a tensor follows from the sizes alone."""
        return number in self.grown or number in self.learned or number in self.instances.lengths

    # ------------------------------------------------------------ sizes

    def _points(self, nodes: Nodes) -> Sequence[tuple[Point, Point]]:
        """Larger and smaller sizes of a node, between which its operands have a few places more."""
        ends = [end for value in nodes[0].inputs for end in self.extents.get(value.id, ()) if end is not None]
        if not ends:
            return ()
        found: list[tuple[Point, Point]] = []
        units = [self._units(ends, number) for number in range(len(self.symbols))]
        for places in _PLACES:
            whole = tuple(self._large(number, some, places) for number, some in enumerate(units))
            if self._node(nodes, whole) is None:
                continue
            smaller = self._smaller(whole, units)
            found = [(whole, part) for part in smaller if self._node(nodes, part) is not None]
            if len(found) >= _FEWEST:
                break
        return found

    def _units(self, ends: Sequence[Extent], number: int) -> Mapping[int, int]:
        """By how much a symbol grows, at least and at most, for operands to grow: how many places that is."""
        step = self.steps[number]
        found = {
            lcm(step, end.divisor): step // gcd(step, end.divisor) for end in ends if end.factors[number]
        }
        return {unit: found[unit] for unit in sorted(found) if unit in (min(found), max(found))}

    def _large(self, number: int, units: Mapping[int, int], places: int) -> int:
        """Where operands have about so many places; without units as in the small instances."""
        symbol = self.symbols[number]
        sizes = [unit * max(-(-places // more), _UNITS) for unit, more in units.items()]
        wanted = max(sizes, default=self.instances.all[1].point[number])
        return min(wanted, symbol.maximum) // symbol.step * symbol.step

    def _smaller(self, whole: Point, units: Sequence[Mapping[int, int]]) -> Iterator[Point]:
        """Points that are less in one symbol, or in all, by a few places."""
        moving = [(number, unit, more) for number, some in enumerate(units) for unit, more in some.items()]
        alone = [{number: unit * count} for number, unit, more in moving for count in _counts(_ALONE, more)]
        together = [
            {number: unit * count for number, unit, _ in moving if pick([*units[number]]) == unit}
            for pick in (min, max)
            for count in _counts(_TOGETHER, max((more for _, _, more in moving), default=1))
        ]
        for less in (*alone, *(one for one in together if len(one) > 1)):
            point = tuple(size - less.get(number, 0) for number, size in enumerate(whole))
            if all(size > 0 for number, size in enumerate(point) if number in less):
                yield point

    # ------------------------------------------------------------ nodes and tensors

    def _type(self, number: int, point: Point) -> TensorType:
        kind = self.instances.largest.type_of(number)
        pairs = zip(kind.shape, self.extents.get(number, (None,) * kind.rank), strict=True)
        return kind.with_shape([size if end is None else end.of(point) for size, end in pairs])

    def _node(self, nodes: Nodes, point: Point) -> Node | None:
        """A node at a size; None where it does not take that, or its attributes are not known there."""
        for item, node in zip(self.instances.all, nodes, strict=True):
            if item.point == point:
                return node
        first = nodes[0]
        inputs = tuple(Value(value.id, self._type(value.id, point)) for value in first.inputs)
        attrs = attributes_at(nodes, self.extents, self._fit, point)
        if attrs is None or any(size <= 0 for value in inputs for size in value.type.shape):
            return None
        try:
            types = first.op.infer(tuple(value.type for value in inputs), attrs)
        except RefusedError:
            return None
        if any(size < 0 for kind in types for size in kind.shape):
            return None
        outputs = tuple(Value(value.id, kind) for value, kind in zip(first.outputs, types, strict=True))
        return Node(first.op, inputs, outputs, attrs, first.origin)

    def _fit(self, values: Sequence[int]) -> Extent | None:
        return fit_extent(self.instances.points, values, self.steps)

    def _trial(self, nodes: Nodes, whole: Point, part: Point) -> Trial | None:
        """An experiment; None where what operands hold is not known for sizes."""
        larger, smaller = self._node(nodes, whole), self._node(nodes, part)
        if larger is None or smaller is None:
            return None
        operands = []
        for a, b in zip(larger.inputs, smaller.inputs, strict=True):
            held = (self._known(a.id, whole, part), self._known(a.id, part, part))
            known = None if held[0] is None or held[1] is None else (held[0], held[1])
            if self.is_known(a.id) and (known is None or known[0].shape != a.type.shape):
                return None
            operands.append(Operand(a.type, b.type, known, a.id in self.natural))
        return Trial(larger, smaller, tuple(operands))

    def _seen(self, number: int, whole: Instance, part: Instance) -> Operand:
        """An operand in two instances."""
        known = self._known(number, whole.point, part.point)
        alone = self._known(number, part.point, part.point)
        pair = None if known is None or alone is None else (known, alone)
        return Operand(whole.type_of(number), part.type_of(number), pair, number in self.natural)

    def _known(self, number: int, shape: Point, point: Point) -> Array | None:
        """What a tensor with the extents of one size holds in a run of another; None where data says it."""
        if number in self.instances.lengths:
            source, axis = self.instances.lengths[number]
            return np.asarray(self._type(source, point).shape[axis], np.int64)
        if number in self.grown:
            array, growth = self.grown[number]
            steps = zip(growth, point, self.instances.largest.point, strict=True)
            more = sum(factor * (n - m) for factor, n, m in steps)
            part = array[tuple(map(slice, self._type(number, shape).shape))]
            return (part + more).astype(array.dtype) if more else part
        node = self._node(self.learned[number], shape) if number in self.learned else None
        if node is None:
            return None
        arrays = [self._known(value.id, shape, point) for value in node.inputs]
        held = [array for array in arrays if array is not None]
        if len(held) < len(arrays):
            return None
        made = apply(node.op, held, node.attrs, [value.type for value in node.outputs])
        return next(array for value, array in zip(node.outputs, made, strict=True) if value.id == number)
