"""From a model at several sizes to one graph for all: its largest instance, masked where it has to be.

Each operator is looked at by itself (`restriction.py`). What passes from one to the next is, for each tensor,
how much of each axis a run has, and what is known to lie beyond.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import Extent, Graph, Node, Symbol, Value
from compiler.graph.op import Sign
from compiler.graph.ops import OPS
from compiler.graph.ops.counted import COUNTED_PART
from compiler.graph.rewrites.sizes.attributes import attributes_follow
from compiler.graph.rewrites.sizes.fits import Point, fit_constant, fit_extent
from compiler.graph.rewrites.sizes.inferred import Inferred, Probe
from compiler.graph.rewrites.sizes.instances import (
    FixedSizeError,
    Instance,
    Instances,
    Nodes,
    UnevenExtentError,
    Witness,
)
from compiler.graph.rewrites.sizes.rescues import rescued
from compiler.graph.rewrites.sizes.restriction import Filled, Operand, Restriction, fill_value, restriction
from compiler.graph.rewrites.sizes.trials import AnySize
from compiler.graph.rewrites.sizes.unfolded import unfolded


def for_all_sizes(
    graphs: Sequence[Graph],
    points: Sequence[Point],
    symbols: Sequence[Symbol],
    probe: Probe,
    tried: int | None = None,
    least: Sequence[Witness] = (),
) -> Graph:
    """The graph of the largest sizes (the first) with extents, masks, and a hidden input for each symbol.

    The second instance is the one that smaller ones are parts of in experiments; both it and those after it
    are best small. tried: how many there are for experiments; those behind show only that extents follow from
    the sizes. probe: the model at other sizes. least: shapes at the least sizes, which have to follow, too:
    `x[:3]` has 3 elements at all that are tried. Counted symbols come last: what a run finds takes the place
    of their hidden input. Raises FixedSizeError, with the reason, where there is no such graph.
    """
    steps = tuple(symbol.step for symbol in symbols)
    return _Symbolic(Instances(unfolded(graphs, points, steps), points), symbols, probe, tried, least).run()


class _Symbolic:
    """The graph under construction: nodes of the largest instance, and what is known of its tensors."""

    def __init__(
        self,
        instances: Instances,
        symbols: Sequence[Symbol],
        probe: Probe,
        tried: int | None = None,
        least: Sequence[Witness] = (),
    ) -> None:
        self.instances = instances
        self._least = least
        self.symbols = symbols
        self.nodes: list[Node] = []
        self.beyond: dict[tuple[int, int], float] = {}
        self.any_size = AnySize(instances, symbols, tried)
        self.extents = self.any_size.extents
        self.steps = self.any_size.steps
        free = sum(not symbol.counted for symbol in symbols)
        self.inferred = Inferred(instances, self.steps, probe, free)
        self._measured: set[int] = set()
        self._found: dict[Hashable, Restriction | None] = {}
        self.sizes = [instances.constant(partial(_size, at)) for at in range(len(symbols))]
        self._masks: dict[object, Value] = {}
        self._counts: dict[int, Value] = {}
        nodes = instances.largest.graph.nodes
        self._cut = {value.id for node in nodes if node.op is COUNTED_PART for value in node.inputs}
        self._read = {value.id for node in nodes for value in node.inputs} | {
            value.id for value in instances.largest.graph.outputs
        }

    def run(self) -> Graph:
        graph = self.instances.largest.graph
        for value in (*graph.inputs, *graph.constants):
            self._source(value)
        for nodes in zip(*(item.graph.nodes for item in self.instances.all), strict=True):
            self._node(nodes)
        return self._finish(graph)

    # ------------------------------------------------------------ tensors

    def _source(self, value: Value) -> None:
        self._measure(value.id, value.name or str(value))
        if value.id in self.instances.lengths:
            self._grown_length(value.id)
        elif self.instances.is_constant(value.id):
            self._grown(value.id, value.name or str(value))

    def _measure(self, number: int, name: str) -> None:
        """How much of each axis a run has."""
        self._measured.add(number)
        types = self.instances.types(number)
        if len({kind.rank for kind in types}) > 1:
            raise FixedSizeError(f"the rank of {name!r} depends on the size")
        found: list[Extent | None] = []
        for axis, extents in enumerate(zip(*(kind.shape for kind in types), strict=True)):
            extent = self._fit(extents)
            extent = extent or self._inferred(number, axis, extents)
            if extent is None:
                raise UnevenExtentError(name, axis, extents)
            for witness in self._least:
                witness.check(name, axis, extent, extents)
            found.append(extent if any(extent.factors) else None)
        if any(found):
            self.extents[number] = tuple(found)

    def _fit(self, values: Sequence[int]) -> Extent | None:
        return fit_extent(self.instances.points, values, self.steps)

    def _inferred(self, number: int, axis: int, extents: Point) -> Extent | None:
        """As a quotient; what was added has the extents of what is around."""
        if number not in self.instances.akin:
            return self.inferred.extent(number, axis, extents)
        for other in self.instances.akin[number]:
            rows = zip(*(kind.shape for kind in self.instances.types(other)), strict=True)
            # The same axis first: two that are alike at all sizes seen may follow from two symbols.
            for at, known in sorted(enumerate(rows), key=lambda item: item[0] != axis):
                more = {n - m for n, m in zip(extents, known, strict=True)}
                found = self.inferred.extent(other, at, known) if len(more) == 1 else None
                if found is not None:
                    return replace(found, offset=found.offset + more.pop() * found.divisor)
        return None

    def _grown(self, number: int, name: str) -> None:
        """Let a constant whose elements depend on the size be computed."""
        arrays = [item.constants[number] for item in self.instances.all]
        growth = fit_constant(self.instances.points, arrays, self.steps)
        if growth is None:
            raise FixedSizeError(f"what is computed from shapes ({name!r}) depends on the size")
        self.any_size.grown[number] = arrays[0], growth
        if any(growth):
            point = self.instances.largest.point
            offset = arrays[0].astype(np.int64) - sum(f * n for f, n in zip(growth, point, strict=True))
            self._compute(number, self._sum(self._constant(offset), growth))

    def _grown_length(self, number: int) -> None:
        """Let a constant that is the extent of an axis be computed."""
        source, axis = self.instances.lengths[number]
        extent = self.extents.get(source, (None,) * (axis + 1))[axis]
        if extent is not None:
            self._compute(number, self._limit(extent))

    def _compute(self, number: int, made: Value) -> None:
        """Let a tensor that was a constant be what is computed."""
        value = self.instances.largest.values[number]
        del self.instances.largest.constants[number]
        self._emit("Cast", [made], to=value.type.dtype, makes=value)

    def _limit(self, extent: Extent) -> Value:
        """How much of an axis a run has."""
        total = self._sum(self._constant(extent.offset), extent.factors)
        return total if extent.divisor == 1 else self._emit("Div", [total, self._constant(extent.divisor)])

    def _sum(self, offset: Value, factors: Point) -> Value:
        """An offset and so many times each symbol of the run."""
        total = offset
        for number, factor in zip(self.sizes, factors, strict=True):
            if factor:
                size = self.instances.largest.values[number]
                times = size if factor == 1 else self._emit("Mul", [size, self._constant(factor)])
                total = self._emit("Add", [total, times])
        return total

    def _constant(self, value: object) -> Value:
        number = self.instances.constant(lambda _: np.asarray(value, np.int64))
        return self.instances.largest.values[number]

    # ------------------------------------------------------------ nodes

    def _node(self, nodes: Nodes) -> None:
        """Add a node for all sizes, with masks for its operands or as other operators."""
        if nodes[0].op is COUNTED_PART:
            self._part(nodes[0])
            return
        follow = self._is_cut(nodes[0]) or attributes_follow(nodes, self._fit)
        found = self._restriction(nodes) if follow else None
        if found is not None:
            self._add(nodes, found)
            return
        others = rescued(self.instances, nodes)
        if others is None:
            node = nodes[0]
            name = node.origin[-1] if node.origin else str(node.output)
            raise FixedSizeError(f"node {name!r} ({node.op.name}) computes something else at another size")
        for other in others:
            for value in other[0].inputs:
                if self.instances.is_constant(value.id) and value.id not in self._measured:
                    self._source(value)
            self._node(other)

    def _add(self, nodes: Nodes, found: Restriction) -> None:
        """Add a node as it is, with masks for its operands."""
        node = nodes[0]
        if all(self.any_size.is_known(value.id) for value in node.inputs):
            self.any_size.learned.update(dict.fromkeys((value.id for value in node.outputs), nodes))
        inputs = list(node.inputs)
        for operand, axis in found.masks:
            inputs[operand] = self._masked(inputs[operand], node.inputs[operand], axis, found.fill)
        self.nodes.append(Node(node.op, tuple(inputs), node.outputs, node.attrs, node.origin))
        self._learn_sign(node)
        for value in node.outputs:
            if value.id not in self._cut:
                self._measure(value.id, value.name or str(value))
        wrong = None if self._is_cut(node) else self.any_size.differs(nodes)
        if wrong is not None:
            raise FixedSizeError(f"an extent of {wrong.name or str(wrong)!r} does not follow from the sizes")
        for (at, axis), fill in found.beyond.items():
            number = node.outputs[at].id
            if (number, axis) not in self.instances.ignored:
                self.beyond[number, axis] = fill

    def _is_same(self, nodes: Nodes) -> bool:
        """Whether a node does the very same at all sizes."""
        known = (self.any_size.grown.get(value.id) for value in nodes[0].inputs)
        grows = any(growth for item in known if item is not None for growth in item[1])
        follows = any(
            value.id in self.extents
            or value.id in self.any_size.learned
            or value.id in self.instances.lengths
            for value in nodes[0].inputs
        )
        return not (grows or follows) and len({repr(node.attrs) for node in nodes}) == 1

    def _is_cut(self, node: Node) -> bool:
        """Whether of all that it makes only as much is looked at as a run counts."""
        return all(value.id in self._cut for value in node.outputs if value.id in self._read)

    def _part(self, node: Node) -> None:
        """Of what a node found a part has a meaning: as much as there is, which is the value of a symbol."""
        names = [symbol.name for symbol in self.symbols]
        number = names.index(node.attrs.text("symbol"))
        if number not in self._counts:
            self._counts[number] = self.instances.largest.values[self.sizes[number]]
            self._compute(self.sizes[number], self._emit("Reshape", [node.inputs[1]], shape=()))
        self.nodes.append(node)
        self._learn_sign(node)
        self._measure(node.output.id, node.output.name or str(node.output))

    def _learn_sign(self, node: Node) -> None:
        """Whether integers are never below 0: places that are such do not count from an end."""
        sign = node.op.sign_of(node.attrs)
        keeps = sign is Sign.KEEPS and all(map(self._is_natural, node.inputs))
        if keeps or sign is Sign.NONNEGATIVE:
            self.any_size.natural.update(value.id for value in node.outputs)

    def _is_natural(self, value: Value) -> bool:
        known = [item.constants.get(value.id) for item in self.instances.all]
        arrays = [item for item in known if item is not None]
        is_known = bool(arrays) and all(item.size and item.min() >= 0 for item in arrays)
        return is_known or value.id in self.any_size.natural

    def _restriction(self, nodes: Nodes) -> Restriction | None:
        """By experiments with the instances after the largest one; the first of them is the larger one."""
        filled: Filled = {
            (at, axis): self.beyond[value.id, axis]
            for at, value in enumerate(nodes[0].inputs)
            for axis in range(value.type.rank)
            if (value.id, axis) in self.beyond
        }
        seen = self.any_size.seen(nodes)
        if self._is_same(nodes):
            return Restriction((), 0.0, {})
        operands = tuple(_operand_key(operand) for trial in seen for operand in trial.operands)
        ends = tuple(self.extents.get(value.id) for value in nodes[0].inputs)
        key = (_key(nodes), tuple(filled.items()), operands, ends)
        if key not in self._found:
            self._found[key] = restriction((*seen, *self.any_size.more(nodes)), filled)
        return self._found[key]

    # ------------------------------------------------------------ masks

    def _masked(self, value: Value, original: Value, axis: int, fill: float) -> Value:
        """The operand with a number in place of what is beyond a run's part of an axis."""
        key = (value.id, axis, fill)
        if key not in self._masks:
            element = np.asarray(fill_value(fill, to_numpy(value.type.dtype)), to_numpy(value.type.dtype))
            number = self.instances.constant(lambda _: element)
            inside = self._inside(original, axis)
            self._masks[key] = self._emit("Where", [inside, value, self.instances.largest.values[number]])
        return self._masks[key]

    def _inside(self, value: Value, axis: int) -> Value:
        """Which places along an axis are within the part of a run, to go with a tensor."""
        extent, length, after = self._extent(value, axis), value.type.shape[axis], value.type.rank - axis - 1
        key = (extent, length)
        if key not in self._masks:
            self._masks[key] = self._emit("Less", [self._constant(np.arange(length)), self._limit(extent)])
        if after == 0:
            return self._masks[key]
        if (key, after) not in self._masks:
            shape = (length, *(1,) * after)
            self._masks[key, after] = self._emit("Reshape", [self._masks[key]], shape=shape)
        return self._masks[key, after]

    def _extent(self, value: Value, axis: int) -> Extent:
        extent = self.extents[value.id][axis]
        assert extent is not None
        return extent

    def _emit(
        self, op: str, inputs: Sequence[Value], makes: Value | None = None, **attrs: AttrValue
    ) -> Value:
        """A node of the graph alone, not of the instances."""
        given = Attrs(attrs)
        (kind,) = OPS[op].infer(tuple(value.type for value in inputs), given)
        made = self.instances.fresh(kind) if makes is None else makes
        self.nodes.append(Node(OPS[op], tuple(inputs), (made,), given))
        return made

    def _finish(self, graph: Graph) -> Graph:
        largest = self.instances.largest
        numbered = zip(self.sizes, self.symbols, strict=True)
        hidden = tuple(largest.values[number] for number, item in numbered if not item.counted)
        counts = tuple(self._counts[number] for number, item in enumerate(self.symbols) if item.counted)
        results, names = len(graph.results), graph.output_names
        constants: Mapping[Value, Array] = {
            largest.values[number]: array
            for number, array in largest.constants.items()
            if number not in self.sizes
        }
        return replace(
            graph,
            inputs=(*graph.inputs, *hidden),
            outputs=(*graph.results, *counts, *graph.outputs[results:]),
            input_names=(*graph.input_names, *self._names("size of", counted=False)),
            output_names=(*names[:results], *self._names("count of", counted=True), *names[results:]),
            nodes=_behind_operands(self.nodes),
            constants=constants,
            symbols=tuple(self.symbols),
            extents={
                value: self.extents[value.id]
                for value in (*graph.inputs, *graph.outputs)
                if value.id in self.extents
            },
            undefined=self._undefined(),
            sizes=len(hidden),
        )

    def _names(self, what: str, *, counted: bool) -> tuple[str, ...]:
        return tuple(f"{what} {item.name}" for item in self.symbols if item.counted == counted)

    def _undefined(self) -> Mapping[Value, tuple[Extent | None, ...]]:
        """The extents of what nodes make along axes behind which nothing is relied on."""
        found = {}
        for value in (value for node in self.nodes for value in node.outputs if value.id in self.extents):
            pairs = enumerate(self.extents[value.id])
            found[value] = tuple(
                None if (value.id, axis) in self.beyond or self._is_counted(end) else end
                for axis, end in pairs
            )
        return {value: ends for value, ends in found.items() if any(ends)}

    def _is_counted(self, end: Extent | None) -> bool:
        """Whether it is known only while a run goes on."""
        factors = zip(end.factors, self.symbols, strict=True) if end is not None else ()
        return any(factor and symbol.counted for factor, symbol in factors)


def _behind_operands(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes with each behind those whose results it reads, else as they are."""
    made = {value: node for node in nodes for value in node.outputs}
    done: dict[int, Node] = {}
    for node in nodes:
        pending = [node]
        while pending:
            missing = [made[v] for v in pending[-1].inputs if v in made and id(made[v]) not in done]
            if missing:
                pending += missing
            else:
                done.setdefault(id(pending[-1]), pending.pop())
    return tuple(done.values())


def _key(nodes: Nodes) -> Hashable:
    """What an experiment depends on beside its operands; as text, since 0.0 and -0.0 are equal."""
    return nodes[0].op.name, tuple(repr(node.attrs) for node in nodes[1:])


_SMALL = 1 << 12


def _operand_key(item: Operand) -> Hashable:
    """Weights of the same type are alike in experiments; integers say where to read."""
    if item.known is None:
        return item.whole, item.part, item.natural
    small = all(array.dtype.kind in "iub" or array.nbytes <= _SMALL for array in item.known)
    return item.whole, item.part, tuple(array.tobytes() for array in item.known) if small else True


def _size(symbol: int, item: Instance) -> Array:
    return np.asarray(item.point[symbol], np.int64)
