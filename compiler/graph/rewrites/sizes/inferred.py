"""Extents that are quotients: found from what operators' types are at many sizes, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from compiler.core.diagnostics import BadInputError
from compiler.graph.ir import Extent, Graph, Shape
from compiler.graph.op import InvalidError
from compiler.graph.rewrites.drop_dead import drop_dead
from compiler.graph.rewrites.fold_constants import fold_constants
from compiler.graph.rewrites.sizes.fits import Point, fit_extent
from compiler.graph.rewrites.sizes.instances import Instance, Instances

_DIVISORS = (2, 4, 8, 16, 32, 64, 3, 5, 6, 7)
_SIZES = 2 * max(_DIVISORS)
"""Of each symbol: more than any divisor, so that they show where a quotient steps."""
_COUNTS = (8, 32, _SIZES)
"""How many sizes to look at, where each is an import of its own: few do for small divisors."""

Shapes = Mapping[int, Shape]
Probe = Callable[[Point], Graph]
"""The model at another size."""


class Inferred:
    """Types of tensors at sizes that there is no instance of.

    probe: tells where attributes depend on the size. free: how many symbols inputs say, the first ones;
    others do not make quotients.
    """

    def __init__(self, instances: Instances, steps: Point, probe: Probe, free: int) -> None:
        self._free = free
        self._instances = instances
        self._steps = steps
        self._probe = probe
        self._known: dict[tuple[int, int], Shapes] = {}

    def extent(self, number: int, axis: int, extents: Sequence[int]) -> Extent | None:
        """How an extent follows from one symbol as a quotient; None where it does not.

        extents: what it is in each instance.
        """
        symbols = range(self._free)
        for count in (_SIZES,) if self._are_alike else _COUNTS:
            columns = [self._column(symbol, number, axis, count) for symbol in symbols]
            moving = [symbol for symbol, column in enumerate(columns) if len(set(column)) > 1]
            if len(moving) != 1 or len(columns[moving[0]]) < count:
                continue
            (symbol,) = moving
            first, step = self._base.point[symbol], self._steps[symbol]
            sizes = range(first, first + count * step, step)
            found = _quotient(sizes, columns[symbol], symbol, len(self._steps))
            pairs = zip(self._instances.points, extents, strict=True)
            if found and all(found.of(point) == extent for point, extent in pairs):
                return found
        return None

    @property
    def _base(self) -> Instance:
        return self._instances.all[1]

    def _column(self, symbol: int, number: int, axis: int, count: int) -> list[int]:
        """An extent at one size of a symbol after the other, as far as it is known."""
        found = []
        for more in range(count):
            if (symbol, more) not in self._known:
                self._known[symbol, more] = (self._shapes if self._are_alike else self._probed)(symbol, more)
            shape = self._known[symbol, more].get(number, ())
            found += [shape[axis]] if axis < len(shape) else []
        return found

    @cached_property
    def _are_alike(self) -> bool:
        """Whether no attribute depends on the size."""
        graphs = [item.graph for item in self._instances.all]
        groups = zip(*(graph.nodes for graph in graphs), strict=True)
        return all(repr(node.attrs) == repr(nodes[0].attrs) for nodes in groups for node in nodes)

    def _point(self, symbol: int, more: int) -> Point:
        base = self._base.point
        return (*base[:symbol], base[symbol] + more * self._steps[symbol], *base[symbol + 1 :])

    def _probed(self, symbol: int, more: int) -> Shapes:
        """Shapes where a symbol is larger than in the small instance, by an import."""
        try:
            graph = drop_dead(fold_constants(self._probe(self._point(symbol, more))))
        except BadInputError:
            return {}
        # In front of an instance's nodes may be others: what it computes that was folded here.
        pairs = list(zip(reversed(self._base.graph.nodes), reversed(graph.nodes), strict=False))
        if len(pairs) < len(graph.nodes) or any(a.op is not b.op for a, b in pairs):
            return {}
        ends = ((*a.inputs, *a.outputs) for a, _ in pairs), ((*b.inputs, *b.outputs) for _, b in pairs)
        rows = (row for a, b in zip(*ends, strict=True) for row in zip(a, b, strict=True))
        return {ours.id: theirs.type.shape for ours, theirs in rows}

    def _shapes(self, symbol: int, more: int) -> Shapes:
        """The same by types alone, as far as they can be told."""
        base, point = self._base, self._point(symbol, more)
        types = {value.id: base.type_of(value.id) for value in (*base.graph.inputs, *base.graph.constants)}
        for value in base.graph.inputs:
            shapes = (kind.shape for kind in self._instances.types(value.id))
            rows = zip(*shapes, strict=True)
            fits = [fit_extent(self._instances.points, row, self._steps) for row in rows]
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
