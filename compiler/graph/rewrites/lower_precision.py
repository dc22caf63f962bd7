"""Sums of products take factors of 16 bits, and what lies between kernels for them has 16 bits, too.

Products are told to round both factors (`factors`); they sum, and end, in f32. Convolutions of images are
where matrix units take them: threads widen each factor again for every product. Known factors are rounded
here. A tensor that products read lies in memory as they read it: what makes it rounds it once, as the last
thing that its kernel does, and other readers widen it. So does a tensor that operators which only move
elements make of such ones, or need for them. Everything is computed in f32, and a tensor stays f32 where a
reader would make much of a small difference (an exponential, a comparison), where it is an input or output
of the model, or where a kernel of its own makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from compiler.core.types import F32, DType
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.edit import Editor
from compiler.graph.extents import undefined_after
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.op import PIECES, Kind
from compiler.graph.ops.factors import FACTORS

_PRODUCTS = frozenset({"Conv", "MatMul"})

IMAGE_CHANNELS = 8
"""A convolution of fewer is one of an image."""

_MOVERS = frozenset({
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Slice", "Concat", "Expand",
    "Tile", "ChannelShuffle", "Repeat", "MaxPool",
})  # fmt: skip
"""Their results are elements of their operands, so that rounding before them is rounding behind them."""

_TOLERANT = frozenset({
    "Add", "Sub", "Mul", "Sum", "Mean", "Max", "Min", "Neg", "Abs", "Clip", "Relu", "LeakyRelu", "PRelu",
    "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Swish", "Mish", "Gelu", "Tanh", "Erf",
    "Softplus", "Softsign", "ReduceSum", "ReduceMax", "ReduceMin", "SumPool", "Standardize", "LRN",
})  # fmt: skip
"""What makes no more of a small difference of an operand than that operand's scale."""


def lower_precision(kind: DType, *, images: bool = False) -> Callable[[Graph], Graph]:
    """The pass for factors of this type; `images`: of convolutions of images, too."""
    return lambda graph: _lowered(graph, kind, 1 if images else IMAGE_CHANNELS)


def _lowered(graph: Graph, kind: DType, channels: int) -> Graph:
    products = frozenset(item for item in graph.nodes if _is_product(graph, item, kind, channels))
    if not products:
        return graph
    return _Lowering(graph, kind, products).run()


def _is_product(graph: Graph, item: Node, kind: DType, channels: int) -> bool:
    """Whether a node multiplies factors of f32, those known among which the type can hold.

    channels: of a convolution at least.
    """
    if item.op.name not in _PRODUCTS or any(value.type.dtype != F32 for value in item.inputs):
        return False
    if item.op.name == "Conv" and item.inputs[0].type.shape[1] < channels:
        return False
    known = (graph.constants.get(value) for value in item.inputs[:2])
    return all(array is None or _holds(array, kind) for array in known)


def _holds(array: Array, kind: DType) -> bool:
    with np.errstate(over="ignore"):
        rounded = array.astype(to_numpy(kind)).astype(np.float32)
    return bool(np.all(np.isfinite(rounded) | ~np.isfinite(array)))


def _stored_narrow(graph: Graph, products: frozenset[Node]) -> set[Value]:
    """The tensors that are to lie in memory as products read them."""
    wanted: set[Value] = set()
    found: set[Value] = set()
    for item in reversed(graph.nodes):  # all readers of a tensor come before what makes it
        if item in products:
            wanted.update(item.inputs[:2])
        for value in item.outputs:
            if value in wanted and _may_be_narrow(graph, item, products):
                found.add(value)
                wanted.update(item.inputs if item.op.name in _MOVERS else ())
    for item in graph.nodes:  # what moves such tensors alone makes such ones
        moves = item.op.name in _MOVERS and all(value in found for value in item.inputs)
        if moves and not graph.output_set.intersection(item.outputs):
            found.update(item.outputs)
    return found


def _may_be_narrow(graph: Graph, item: Node, products: frozenset[Node]) -> bool:
    """Whether the result of a node may be rounded for all of its readers, by the kernel that makes it."""
    value, op = item.output, item.op
    apart = op.alone or len(item.outputs) > 1 or (PIECES in op.forms and op.name not in _MOVERS)
    if value.type.dtype != F32 or value in graph.output_set or apart:
        return False
    if op.kind is Kind.VIEW and graph.producer(item.inputs[0]) is None:
        return False
    return all(_takes_narrow(reader, products) for reader in graph.users(value))


def _takes_narrow(reader: Node, products: frozenset[Node]) -> bool:
    if reader in products or reader.op.name in _MOVERS:
        return True
    inlines = reader.op.kind is not Kind.REDUCTION or reader.op.reads_once(reader.info)
    return reader.op.name in _TOLERANT and inlines


class _Lowering:
    """The graph as it is written anew."""

    def __init__(self, graph: Graph, kind: DType, products: frozenset[Node]) -> None:
        self.graph, self.kind, self.products = graph, kind, products
        self.narrow = _stored_narrow(graph, products)
        self.editor = Editor(graph)
        self.low: dict[Value, Value] = {}

    def run(self) -> Graph:
        """Write all nodes."""
        for item in self.graph.nodes:
            self.editor.origin = item.origin
            if item.op.name in _MOVERS and item.output in self.narrow:
                inputs = tuple(self.rounded(value) for value in item.inputs)
                made = self.editor.emit_all(item.op, inputs, item.attrs)
                self.low[item.output] = self.editor.rename(made[0], item.output.name)
                continue
            self.write(item)
            if item.output in self.narrow:
                self.low[item.output] = self.editor.emit("Cast", item.output, to=self.kind)
        graph = self.graph.replace(nodes=self.editor.nodes, constants=self.editor.constants)
        kept = {value: ends for value, ends in self.graph.undefined.items() if value in graph.producers}
        undefined = {**kept, **undefined_after(self.graph, self.low, graph)}
        return replace(graph, folded=self.editor.folded, undefined=undefined)

    def write(self, item: Node) -> None:
        """The node with factors to round, or with operands as wide as they were."""
        if item not in self.products:
            wide = {value: self.widened(value) for value in dict.fromkeys(item.inputs)}
            self.append(item, tuple(wide[value] for value in item.inputs), item.attrs)
            return
        factors = tuple(self.factor(value) for value in item.inputs[:2])
        rest = tuple(self.widened(value) for value in item.inputs[2:])
        self.append(item, (*factors, *rest), item.attrs.with_(**{FACTORS: self.kind}))

    def append(self, item: Node, inputs: tuple[Value, ...], attrs: Attrs) -> None:
        self.editor.append(Node(item.op, inputs, item.outputs, attrs, item.origin))

    def factor(self, value: Value) -> Value:
        """A factor as it lies in memory; one that stays f32 is rounded where it is read."""
        return self.rounded(value) if value in self.graph.constants else self.low.get(value, value)

    def rounded(self, value: Value) -> Value:
        if value not in self.low:
            self.low[value] = self.editor.emit("Cast", value, to=self.kind)
        return self.low[value]

    def widened(self, value: Value) -> Value:
        """What stands for a tensor where f32 is read, for one reader alone, which computes it in place."""
        narrow = value in self.narrow
        return self.editor.emit("Cast", self.low[value], to=F32) if narrow else value
