"""The graph: tensors (`Value`), operators (`Node`) and a `Graph` of them.

Everything here is immutable. A pass is a pure function `Graph -> Graph`. Values are identified by
number alone; names are carried for reports and never decide anything. Weights and other known tensors are
`Graph.constants`: numpy arrays keyed by value.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from compiler.core.diagnostics import InternalError
from compiler.core.types import DType
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, from_numpy

if TYPE_CHECKING:
    from compiler.graph.op import Op

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor; all extents are known."""

    dtype: DType
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of a dense tensor."""
        return (self.size * self.dtype.bits + 7) // 8

    def with_shape(self, shape: Sequence[int]) -> TensorType:
        """The same element type with another shape."""
        return TensorType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape with another element type."""
        return TensorType(dtype, self.shape)


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor of a graph; `id` is its identity, `name` what the model called it (for reports)."""

    id: int
    type: TensorType = field(compare=False)
    name: str = field(default="", compare=False)

    def __hash__(self) -> int:
        return self.id

    def __str__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator applied to values; `origin` names the ONNX nodes that it came from."""

    op: Op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attrs: Attrs
    origin: tuple[str, ...] = ()

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    @property
    def info(self) -> NodeInfo:
        """What forms and estimates see of this node."""
        return NodeInfo(self.attrs, tuple(v.type for v in self.inputs), tuple(v.type for v in self.outputs))


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node without its place in a graph: attributes and types."""

    attrs: Attrs
    in_types: tuple[TensorType, ...]
    out_types: tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A free batch dimension: what the model calls it, and its largest extent."""

    name: str
    largest: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A dimension whose extent a run decides: what the model calls it, its least and largest extent.

    Extents are multiples of the step. counted: the extent is how much the run finds, which its inputs do not
    say by their shapes.
    """

    name: str
    minimum: int
    maximum: int
    step: int = 1
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of an axis a run has: (offset + the sum of each factor times its symbol) // divisor."""

    factors: tuple[int, ...]
    offset: int = 0
    divisor: int = 1

    def of(self, symbols: Sequence[int]) -> int:
        """The extent for these values of the symbols."""
        return (self.offset + sum(f * n for f, n in zip(self.factors, symbols, strict=True))) // self.divisor


@dataclass(frozen=True)
class Graph:
    """Operators in topological order between inputs and outputs.

    `input_names` and `output_names` are the model's names, in order; two outputs may be the same value.
    With a `batch` everything but constants is of one sample; the model does the same with each of them.
    declared: types of inputs and outputs as the model has them, where they lie in memory as other ones.

    With `symbols` types say the largest extents, by which tensors lie in memory. extents: of each input and
    output that varies, how much of each axis a run has (None: all of it); what is beyond has no meaning. The
    last `sizes` inputs are not the caller's: each is one i64, the value of the symbol of its number. The
    symbols behind those are counted: of each there is an output behind the model's results, one i64.
    undefined: the same of tensors that nodes make, but for axes along which something is known of what is
    beyond.

    folded: what made constants of constants, as long as these are all there.

    The last `checks` outputs are no results of the model: each is one i32 that is 0 where the inputs ask for
    something that was not compiled, and its name is what the user is told then.

    labels: the strings that the elements of an output are the numbers of, by its name.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    batch: Batch | None = None
    checks: int = 0
    symbols: tuple[Symbol, ...] = ()
    extents: Mapping[Value, tuple[Extent | None, ...]] = field(default_factory=dict)
    undefined: Mapping[Value, tuple[Extent | None, ...]] = field(default_factory=dict)
    sizes: int = 0
    declared: tuple[tuple[TensorType, ...], tuple[TensorType, ...]] | None = None
    folded: Mapping[Value, Node] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def results(self) -> tuple[Value, ...]:
        """The outputs of the model."""
        return self.outputs[: len(self.outputs) - self.checks - self.counts]

    @property
    def counts(self) -> int:
        """How many symbols are counted; as many outputs say what they are."""
        return sum(symbol.counted for symbol in self.symbols)

    @property
    def operands(self) -> tuple[Value, ...]:
        """The inputs that a caller gives."""
        return self.inputs[: len(self.inputs) - self.sizes]

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        """Types of the inputs as the model declares them."""
        return self.declared[0] if self.declared else tuple(value.type for value in self.inputs)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """Types of the outputs as the model declares them."""
        return self.declared[1] if self.declared else tuple(value.type for value in self.outputs)

    @cached_property
    def producers(self) -> Mapping[Value, Node]:
        """The node that makes each value; inputs and constants have none."""
        return {value: item for item in self.nodes for value in item.outputs}

    @cached_property
    def consumers(self) -> Mapping[Value, tuple[Node, ...]]:
        """The nodes that read each value, in order, each once."""
        found: dict[Value, list[Node]] = {}
        for item in self.nodes:
            for value in dict.fromkeys(item.inputs):
                found.setdefault(value, []).append(item)
        return {value: tuple(items) for value, items in found.items()}

    @cached_property
    def output_set(self) -> frozenset[Value]:
        """The values that leave the graph."""
        return frozenset(self.outputs)

    def producer(self, value: Value) -> Node | None:
        """The node that makes `value`, or None for inputs and constants."""
        return self.producers.get(value)

    def users(self, value: Value) -> tuple[Node, ...]:
        """The nodes that read `value`."""
        return self.consumers.get(value, ())

    @property
    def next_id(self) -> int:
        """An identity that no value has, nor any higher one."""
        values = (*self.inputs, *self.constants, *self.producers)
        return 1 + max((value.id for value in values), default=-1)

    def replace(
        self,
        *,
        nodes: Sequence[Node] | None = None,
        outputs: Sequence[Value] | None = None,
        constants: Mapping[Value, Array] | None = None,
        inputs: Sequence[Value] | None = None,
        declared: tuple[tuple[TensorType, ...], tuple[TensorType, ...]] | None = None,
    ) -> Graph:
        """A copy with some fields changed; inputs and outputs in the place of others have their extents."""
        pairs = (*_places(self.inputs, inputs), *_places(self.outputs, outputs))
        extents = {new: self.extents[old] for old, new in pairs if old in self.extents}
        return replace(
            self,
            extents={**extents, **self.extents} if extents else self.extents,
            inputs=self.inputs if inputs is None else tuple(inputs),
            declared=declared or self.declared,
            nodes=self.nodes if nodes is None else tuple(nodes),
            outputs=self.outputs if outputs is None else tuple(outputs),
            constants=self.constants if constants is None else constants,
        )

    @property
    def flops(self) -> int:
        """Floating-point operations of one run, by the records' estimates."""
        return sum(item.op.flops(item.info) for item in self.nodes)

    def __str__(self) -> str:
        return "\n".join(_text_lines(self)) + "\n"


def _places(before: Sequence[Value], after: Sequence[Value] | None) -> list[tuple[Value, Value]]:
    """Which tensor is where another one was; packed ones are another tensor altogether."""
    pairs = zip(before, after or (), strict=False)
    return [(old, new) for old, new in pairs if old != new and old.type.shape == new.type.shape]


# ---------------------------------------------------------------- text form


def _text_lines(graph: Graph) -> Iterator[str]:
    """The readable dump, one line per value or node; deterministic."""
    yield "graph" + (f"  # one of 1..{graph.batch.largest} samples" if graph.batch else "")
    for value, name in zip(graph.inputs, graph.input_names, strict=True):
        yield f"  input  {value}: {value.type}  # {json.dumps(name)}"
    for value, array in graph.constants.items():
        yield f"  const  {value}: {value.type} = {_constant_text(array)}{_comment(value.name)}"
    for item in graph.nodes:
        yield f"  {_node_text(item)}"
    for value, name in zip(graph.outputs, graph.output_names, strict=True):
        yield f"  output {value}  # {json.dumps(name)}"


def _node_text(item: Node) -> str:
    made = ", ".join(f"{value}: {value.type}" for value in item.outputs)
    read = ", ".join(map(str, item.inputs))
    attrs = "".join(f" {name}={_attr_text(item.attrs[name])}" for name in item.attrs)
    return f"{made} = {item.op.name}({read}){attrs}{_comment(', '.join(item.origin))}"


def _attr_text(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(str, value))}]"
    return str(value)


def _constant_text(array: Array) -> str:
    if array.size <= 8:
        return str(array.tolist()).replace(" ", "")
    if array.strides and not any(array.strides):
        return f"full({array.flat[0]})"
    return f"sha256:{hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]}"


def _comment(text: str) -> str:
    return f"  # {json.dumps(text)}" if text else ""


# ---------------------------------------------------------------- verification


def verify(graph: Graph) -> None:
    """Check that a graph is well formed: defined before use, defined once, types as the records infer.

    Raises InternalError: a broken graph is a defect of a pass, not of the model.
    """
    defined = _verify_sources(graph)
    for item in graph.nodes:
        _verify_node(item, defined)
    missing = [str(value) for value in graph.outputs if value not in defined]
    if missing:
        raise InternalError(f"graph outputs are never computed: {', '.join(missing)}")


def _verify_sources(graph: Graph) -> set[Value]:
    defined: set[Value] = set()
    if len(graph.inputs) != len(graph.input_names) or len(graph.outputs) != len(graph.output_names):
        raise InternalError("graph inputs or outputs and their names differ in number")
    for value in (*graph.inputs, *graph.constants):
        if value in defined:
            raise InternalError(f"{value} is defined twice")
        defined.add(value)
    for value, array in graph.constants.items():
        if array.shape != value.type.shape or from_numpy(array.dtype) != value.type.dtype:
            raise InternalError(
                f"constant {value} is {value.type} but holds {array.dtype}{list(array.shape)}"
            )
    return defined


def _verify_node(item: Node, defined: set[Value]) -> None:
    where = _node_text(item)
    for value in item.inputs:
        if value not in defined:
            raise InternalError(f"{value} is used before it is computed", where=where)
    expected = item.op.infer(tuple(value.type for value in item.inputs), item.attrs)
    got = tuple(value.type for value in item.outputs)
    if expected != got:
        raise InternalError(
            f"{item.op.name} makes {', '.join(map(str, expected))}, not {', '.join(map(str, got))}",
            where=where,
        )
    for value in item.outputs:
        if value in defined:
            raise InternalError(f"{value} is defined twice", where=where)
        defined.add(value)
