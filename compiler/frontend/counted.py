"""Results as long as a run finds them: lengths are symbols, whose values the caller of an import supposes.

What a node makes has room for all that there may be. In the graph a `CountedPart` follows it, whose extent is
the supposed one, by default the room there is.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from compiler.frontend.clipped import clipped_count
from compiler.frontend.refusals import Refusal
from compiler.graph.attrs import Attrs
from compiler.graph.edit import Editor
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.op import Checked, OnnxNode, UnsupportedError
from compiler.graph.ops.counted import COUNTED_PART

_SMALL = 1 << 16
"""Bytes of a constant that is compared by content."""


@dataclass(frozen=True, slots=True)
class Supposed:
    """Extents by name of a symbol; those that are not given have as much as may be.

    least: but at least this; most: or what the caller says by name. clipped: axes by the names of tensors
    that end where there is no more, or at a limit (`x[:100]`): these are symbols, too.
    """

    extents: Mapping[str, int] = field(default_factory=dict)
    least: int = 0
    most: Mapping[str, int] = field(default_factory=dict)
    clipped: Mapping[str, int] = field(default_factory=dict)

    def extent(self, symbol: str, room: int) -> int:
        """The extent of a symbol; room: how much there may be."""
        if symbol in self.extents:
            return self.extents[symbol]
        return max(min(room, self.most.get(symbol, room)), self.least)


@dataclass(frozen=True, slots=True)
class CountedSymbol:
    """A dimension that a run decides by what it finds.

    room: the largest extent; supposed: that in the graph; node: what is counted, for messages.
    """

    name: str
    room: int
    supposed: int
    node: str
    op: str


def counted_symbols(graph: Graph) -> tuple[CountedSymbol, ...]:
    """The counted dimensions of an imported graph, in order."""
    found: dict[str, CountedSymbol] = {}
    for item in graph.nodes:
        if item.op is COUNTED_PART:
            name, axis = item.attrs.text("symbol"), item.attrs.integer("axis")
            room, extent = item.inputs[0].type.shape[axis], item.attrs.integer("extent")
            node = item.origin[-1] if item.origin else name
            found.setdefault(name, CountedSymbol(name, room, extent, node, item.attrs.text("counts")))
    return tuple(found.values())


def count_refusal(counted: CountedSymbol, reason: str) -> Refusal:
    """Why a model is refused in which a dimension cannot be what the run finds."""
    why = f"the content of inputs decides over its shape, which cannot stay open: {reason}"
    return Refusal(counted.node, counted.op, f"{why}; if a model input carries the content, give --bind")


def declared_symbols(graph: onnx.GraphProto) -> dict[str, tuple[str, ...]]:
    """What a model calls the dimensions of its tensors; "" for those without a name."""
    inputs = {dim.dim_param for item in graph.input for dim in item.type.tensor_type.shape.dim}
    return {
        item.name: tuple("" if dim.dim_param in inputs else dim.dim_param for dim in _dims(item))
        for item in (*graph.value_info, *graph.output)
    }


def _dims(item: onnx.ValueInfoProto) -> Sequence[onnx.TensorShapeProto.Dimension]:
    return tuple(item.type.tensor_type.shape.dim)


class Counting:
    """The symbols of one import. Where equal operators read equal tensors, what they find is counted once."""

    def __init__(self, editor: Editor, supposed: Supposed, declared: Mapping[str, Sequence[str]]) -> None:
        self._editor = editor
        self._supposed = supposed
        self._declared = declared
        self._names: dict[int, str] = {}
        self._structures: dict[Value, int] = {}
        self._numbers: dict[Hashable, int] = {}

    def parts(
        self, computed: Checked, given: OnnxNode, names: Sequence[str], node: str, op: str
    ) -> Sequence[Value]:
        """The results of a node, those that are used as long as is supposed; names: those of its outputs."""
        if computed.count is None:
            return computed.results
        key = self._structure(computed.count)
        if key not in self._names:
            self._names[key] = self._fresh(computed, names, node)
        symbol, found = self._names[key], []
        for value, axis, used in zip(computed.results, computed.along, given.used_outputs, strict=False):
            found.append(
                self._part(value, axis, computed.count, symbol, op) if axis is not None and used else value
            )
        return found

    def clipped(self, made: tuple[Value, ...], given: OnnxNode, op: str) -> tuple[Value, ...]:
        """What a node makes, where it ends at a limit as much of it as there is.

        Raises UnsupportedError where that cannot be told.
        """
        axis = next(
            (self._supposed.clipped[one.name] for one in made if one.name in self._supposed.clipped), None
        )
        if axis is None:
            return made
        count = clipped_count(self._editor, op, given, axis)
        if count is None:
            raise UnsupportedError("how long its result is at each size cannot be told")
        name = next(one.name for one in made if one.name)
        symbol = next(one for one in self._spellings(name) if one not in self._names.values())
        self._names[-1 - len(self._names)] = symbol
        parts = [self._part(one, axis, count, symbol, op) if one.name else one for one in made]
        ends = zip(parts, made, strict=True)
        return tuple(self._editor.rename(part, one.name) for part, one in ends)

    def _part(self, value: Value, axis: int, count: Value, symbol: str, op: str) -> Value:
        extent = self._supposed.extent(symbol, value.type.shape[axis])
        attrs = Attrs(axis=axis, extent=extent, symbol=symbol, counts=op)
        return self._editor.emit_all(COUNTED_PART, (value, count), attrs)[0]

    def _fresh(self, computed: Checked, names: Sequence[str], node: str) -> str:
        """What the model calls the dimension, else the node's name."""
        rows = zip(names, computed.along, strict=False)
        dims = [(self._declared.get(name, ()), axis) for name, axis in rows if axis is not None]
        given = [shape[axis] for shape, axis in dims if axis < len(shape) and shape[axis]]
        wanted = next((name for name in given if name not in self._names.values()), node or names[0])
        taken = {*self._names.values(), *(name for shape in self._declared.values() for name in shape)} - set(
            given
        )
        return next(name for name in self._spellings(wanted) if name not in taken)

    def _spellings(self, name: str) -> Sequence[str]:
        return (
            name,
            *(f"{name} {number}" for number in range(2, len(self._names) + len(self._declared) + 3)),
        )

    def _structure(self, value: Value) -> int:
        """A number that tensors have in common which are computed alike."""
        pending = [value]
        while pending:
            item = pending[-1]
            node = self._editor.producer(item)
            missing = [one for one in node.inputs if one not in self._structures] if node is not None else []
            pending += missing
            if not missing:
                key = self._key(pending.pop(), node)
                self._structures[item] = self._numbers.setdefault(key, len(self._numbers))
        return self._structures[value]

    def _key(self, value: Value, node: Node | None) -> Hashable:
        if node is not None:
            operands = tuple(self._structures[one] for one in node.inputs)
            return node.op.name, node.attrs, operands, node.outputs.index(value)
        array = self._editor.known(value)
        is_small = array is not None and array.nbytes <= _SMALL
        return (value.type, array.tobytes()) if array is not None and is_small else value.id
