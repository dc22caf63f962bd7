"""Extents that are quotients: found from what operators' types are at many sizes, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from compiler.graph.ir import Extent, Shape
from compiler.graph.op import InvalidError
from compiler.graph.rewrites.sizes.fits import fit_extent
from compiler.graph.rewrites.sizes.instances import Instance, Instances

_DIVISORS = (2, 4, 8, 16, 32, 64, 3, 5, 6, 7)
_SIZES = 2 * max(_DIVISORS)
"""Of each symbol: more than any divisor, so that they show where a quotient steps."""


class Inferred:
    """Types of tensors at sizes that there is no instance of, where no attribute depends on the size."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    def extent(self, number: int, axis: int, extents: Sequence[int]) -> Extent | None:
        """How an extent follows from one symbol as a quotient; None where it does not.

        extents: what it is in each instance.
        """
        tables = self._tables
        if tables is None:
            return None
        count = len(self._instances.points[0])
        for symbol, table in enumerate(tables):
            column = [shapes[number][axis] for shapes in table if number in shapes]
            others = [shapes[number][axis] for k, t in enumerate(tables) if k != symbol for shapes in t]
            if len(column) < _SIZES or len(set(column)) == 1 or len(set(others)) > 1:
                continue
            first = self._base.point[symbol]
            found = _quotient(range(first, first + _SIZES), column, symbol, count)
            pairs = zip(self._instances.points, extents, strict=True)
            return found if found and all(found.of(point) == extent for point, extent in pairs) else None
        return None

    @property
    def _base(self) -> Instance:
        return self._instances.all[1]

    @cached_property
    def _tables(self) -> list[list[dict[int, Shape]]] | None:
        """For each symbol, shapes of all tensors at one size after the other; None where attributes vary."""
        graphs = [item.graph for item in self._instances.all]
        for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
            if any(repr(node.attrs) != repr(nodes[0].attrs) for node in nodes):
                return None
        symbols = range(len(self._instances.points[0]))
        return [[self._shapes(symbol, more) for more in range(_SIZES)] for symbol in symbols]

    def _shapes(self, symbol: int, more: int) -> dict[int, Shape]:
        """Shapes where a symbol is larger than in the small instance, as far as they can be told."""
        base = self._base
        point = (*base.point[:symbol], base.point[symbol] + more, *base.point[symbol + 1 :])
        types = {value.id: base.type_of(value.id) for value in (*base.graph.inputs, *base.graph.constants)}
        for value in base.graph.inputs:
            shapes = (kind.shape for kind in self._instances.types(value.id))
            fits = [fit_extent(self._instances.points, extents) for extents in zip(*shapes, strict=True)]
            known = zip(fits, value.type.shape, strict=True)
            types[value.id] = value.type.with_shape([n if fit is None else fit.of(point) for fit, n in known])
        for node in base.graph.nodes:
            try:
                made = node.op.infer(tuple(types[value.id] for value in node.inputs), node.attrs)
            except (InvalidError, KeyError):
                continue
            types.update(zip((value.id for value in node.outputs), made, strict=True))
        return {number: kind.shape for number, kind in types.items()}


def _quotient(sizes: Sequence[int], extents: Sequence[int], symbol: int, count: int) -> Extent | None:
    for divisor in _DIVISORS:
        for factor in (1, 2, 3, 4):
            offsets = [e * divisor - factor * n for n, e in zip(sizes, extents, strict=True)]
            low, high = max(offsets), min(offsets) + divisor - 1
            if low <= high:
                factors = tuple(factor if at == symbol else 0 for at in range(count))
                return Extent(factors, low, divisor)
    return None
