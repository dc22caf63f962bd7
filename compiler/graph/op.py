"""The op record: everything the compiler knows about one operator, in one place.

Importer, interpreter, rewrites, loop generation and tests are generated from these records. A new op is one
record in `graph/ops/<family>.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np

from compiler.core.types import DType
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, from_numpy, widened_array
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.loops.build import Builder
from compiler.loops.ir import Buffer, Expr


class Kind(StrEnum):
    """What an operator does to its elements; decides how it may be fused."""

    VIEW = "view"  # another shape over the same dense elements
    INJECTIVE = "injective"  # each output element from a fixed set of input elements
    REDUCTION = "reduction"  # output elements combine many input elements
    ANCHOR = "anchor"  # a reduction heavy enough that a group is scheduled around it


class Sign(StrEnum):
    """What is known about the sign of the results."""

    UNKNOWN = "unknown"
    NONNEGATIVE = "nonnegative"  # results are never negative
    KEEPS = "keeps"  # results are not negative where all inputs are not


class RefusedError(Exception):
    """Why a node cannot be imported; the importer adds the name of the node."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnsupportedError(RefusedError):
    """The node is legal ONNX, and we do not do it."""


class InvalidError(RefusedError):
    """The node breaks ONNX's rules: shapes or types that do not fit."""


# ---------------------------------------------------------------- how ONNX writes an op


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node as the model has it: raw attributes, inputs (None: left out) and what is known of them.

    declared: what the model says of the types of the outputs, None where it does not.
    place: a number that no other node of the model has.
    """

    attrs: Mapping[str, AttrValue | Array]
    inputs: tuple[Value | None, ...]
    known: tuple[Array | None, ...]
    used_outputs: tuple[bool, ...]
    declared: tuple[TensorType | None, ...] = ()
    place: int = 0

    def has(self, index: int) -> bool:
        """Whether input `index` is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def known_at(self, index: int) -> Array | None:
        """The content of input `index`, when it is given and known."""
        return self.known[index] if index < len(self.known) else None


Types = Sequence[TensorType]
Values = tuple[Value, ...]
Raw = dict[str, AttrValue]
"""Attributes as ONNX writes them."""
Imported = tuple[Values, Raw]
Adapt = Callable[[OnnxNode, Values, Raw], Imported]


@dataclass(frozen=True, slots=True)
class Checked:
    """What an operator makes whose results' shapes are not the operands' alone.

    agrees: an i32 that is 1 where the operands ask for the types that the model declares, else 0; None where
    they always do. count: an i64, how many elements the run finds along one axis of each result, which has
    room for all that there may be (`along`; None: all of it); None where shapes are those of all runs.
    """

    results: Values
    agrees: Value | None = None
    count: Value | None = None
    along: tuple[int | None, ...] = ()


AtRun = Callable[["Emitter", OnnxNode, Attrs], Checked]


@dataclass(frozen=True, slots=True)
class Signature:
    """How ONNX writes the op from opset `since` on, until the record's next signature.

    `attrs`: the attributes that matter, with their defaults (None: no default, left out when not given).
    `known`: inputs whose content must be known at compile time; they become attributes of that name.
    `at_run`: computes the op from other operators where the content of such inputs is not known, and with
    `by_data` always, as extents depend on what operands hold: it gets the node and its attributes.
    `ignored`: attributes that change nothing at inference. `adapt` finishes what a table cannot say: it gets
    the node, the remaining inputs and the attributes, and returns both. `outputs`: how many may be used.
    """

    since: int = 1
    attrs: Mapping[str, AttrValue | None] = field(default_factory=dict)
    known: Mapping[int, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    adapt: Adapt | None = None
    outputs: int = 1
    optional: frozenset[int] = frozenset()
    at_run: AtRun | None = None
    by_data: bool = False


# ---------------------------------------------------------------- the record


class Emitter(Protocol):
    """What an expansion writes to: it adds nodes and constants to the graph under construction."""

    def emit(self, op: str, *inputs: Value, **attrs: AttrValue) -> Value:
        """Add a node and return its first output."""
        ...

    def emit_all(self, op: Op, inputs: Sequence[Value], attrs: Attrs) -> Values:
        """Add a node and return all of its outputs."""
        ...

    def constant(self, array: Array) -> Value:
        """Add a constant."""
        ...

    def known(self, value: Value) -> Array | None:
        """The content of `value` where it is a constant."""
        ...


Infer = Callable[[Types, Attrs], tuple[TensorType, ...]]
Reference = Callable[[Sequence[Array], Attrs], Sequence[Array]]
Build = Callable[[Builder, Sequence[Buffer], NodeInfo], Buffer]
Expand = Callable[[Emitter, Node], Values | None]
Flops = Callable[[NodeInfo], int]
Condition = Callable[[NodeInfo], bool]


PIECES = "pieces"
"""Name of forms that write disjoint parts of their result in several blocks; such operators end a group."""


def _output_size(info: NodeInfo) -> int:
    """One operation per output element."""
    return sum(item.size for item in info.out_types)


def input_size(info: NodeInfo) -> int:
    """One operation per element of the first input."""
    return info.in_types[0].size


def no_flops(info: NodeInfo) -> int:
    """Data movement computes nothing."""
    return 0


def everywhere(info: NodeInfo) -> bool:
    """What holds for every node of an operator."""
    return True


def nowhere(info: NodeInfo) -> bool:
    """What holds for no node of an operator."""
    return False


def where_to_read(info: NodeInfo, reader: Node) -> bool:
    """Index arithmetic, which any loop that reads the result can do in its place."""
    return reader.op.kind is not Kind.VIEW


@dataclass(frozen=True, slots=True)
class Form:
    """One way to compute an operator's one result as loops; `applies` says to which nodes it fits."""

    build: Build
    applies: Condition = everywhere
    wants_blocks: bool = False
    """It pays where operands and results are in whole blocks of channels, and the default form does not."""
    searched: Condition = nowhere
    """Only a search takes it: a compile that knows of none does not even build it. Such forms come last."""
    threads: bool = False
    """Only devices that bind loops to threads have a rule for it. It does not come first."""


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One operator.

    - `name`: its name in the graph and, with `domain`, in ONNX; without `signatures` it is ours alone
      (canonical forms).
    - `infer`: types of the outputs; raises InvalidError or UnsupportedError.
    - `reference`: numpy meaning. Sums in f16 and bf16 run in f32.
    - `forms`: named ways to compute it as loops; the first that applies is the default.
    - `expand`: rewrites the node into simpler ones (canonical form); returns None where it has nothing to do.
    - `flops`: estimate of floating-point operations.
    - `inputs`: least and greatest number of inputs (None: any number).
    """

    name: str
    kind: Kind
    infer: Infer
    reference: Reference
    inputs: tuple[int, int | None] = (1, 1)
    signatures: tuple[Signature, ...] = ()
    domain: str = ""
    forms: Mapping[str, Form] = field(default_factory=dict)
    expand: Expand | None = None
    flops: Flops = _output_size
    sign: Sign | Callable[[Attrs], Sign] = Sign.UNKNOWN
    elementwise: bool = False
    """Output element i reads input elements at i (broadcast) only."""
    channels: bool = False
    """It combines elements over channels or space of (batch, channels, space): worth a layout of its own."""
    keeps_channels: Condition = nowhere
    """Moves or sums elements along space only, or concatenates channels: blocks of channels stay such."""
    fills_channels: Condition = nowhere
    """Makes channels of the last axis of its operand: a block of them is a vector there."""
    inline: Callable[[NodeInfo, Node], bool] | None = None
    """Says where to read only, so that it is repeated in its readers, if this holds for all of them."""
    reads_once: Condition = nowhere
    """Reads each element about once: what makes its operands may be computed in place of them."""
    epilogue: Condition = nowhere
    """May follow an anchor in its kernel, though it is not elementwise."""
    reorders: Condition = nowhere
    """Puts the rows of its operand, as they are, in another order."""
    alone: bool = False
    """A kernel of its own: into memory, or a layout, of its own."""
    begin: Flops = no_flops
    """Of a view: how many elements of its operand's memory lie before its own."""
    concatenates: bool = False
    """Lays its operands side by side along its attribute `axis`, and does nothing else."""
    extends: bool = False
    """Its result begins with its first operand along its attribute `axis`, and may lie in the same memory."""

    selects: bool = False
    """Its elements are those of its second operand where its first holds, else those of its third."""
    multiplies: bool = False
    """Sums products of the rows of its first operand and the columns of its second."""
    weighs: bool = False
    """Makes of each row along its attribute `axis` weights that add up to one."""

    def __repr__(self) -> str:
        return f"<Op {self.name}>"

    def sign_of(self, attrs: Attrs) -> Sign:
        """What is known about the sign of the results with these attributes."""
        return self.sign if isinstance(self.sign, Sign) else self.sign(attrs)

    def forms_for(self, info: NodeInfo) -> dict[str, Form]:
        """The forms that fit a node, the default first."""
        return {name: form for name, form in self.forms.items() if form.applies(info)}

    def signature(self, opset: int) -> Signature | None:
        """The signature in force at `opset`, or None when ONNX did not have the op yet."""
        chosen = None
        for item in self.signatures:
            if item.since <= opset:
                chosen = item
        return chosen


# ---------------------------------------------------------------- helpers that records share


def normal_axis(axis: int, rank: int, extra: int = 0) -> int:
    """`axis` counted from the front; raises InvalidError outside -rank..rank-1 (+ `extra` at the end)."""
    limit = rank + extra
    if not -limit <= axis < max(limit, 1):
        raise InvalidError(f"axis {axis} does not exist in a tensor of rank {rank}")
    return axis + limit if axis < 0 else axis


MOST_AXES = 32
"""Of a tensor: what every numpy can hold, and far more than networks have."""


def normal_axes(axes: Sequence[int], rank: int, extra: int = 0) -> tuple[int, ...]:
    """Axes counted from the front, sorted; raises InvalidError for repeated ones, and more than can be."""
    if len(axes) > MOST_AXES:
        raise InvalidError(f"it names {len(axes):,} axes; a tensor can have {MOST_AXES}")
    found = sorted(normal_axis(axis, rank, extra) for axis in axes)
    if len(set(found)) != len(found):
        raise InvalidError(f"axes {list(axes)} name one axis twice")
    return tuple(found)


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape under numpy's broadcasting rules; raises InvalidError."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for at, extent in enumerate(shape, rank - len(shape)):
            if extent == 1 or extent == result[at]:
                continue
            if result[at] != 1:
                texts = " and ".join(str(list(item)) for item in shapes)
                raise InvalidError(f"shapes {texts} do not broadcast")
            result[at] = extent
    return tuple(result)


def same_dtype(types: Sequence[TensorType]) -> DType:
    """The common element type; raises InvalidError when they differ."""
    first = types[0].dtype
    for item in types[1:]:
        if item.dtype != first:
            raise InvalidError(f"element types {first} and {item.dtype} differ")
    return first


def array_type(array: Array) -> TensorType:
    """The type of a numpy array."""
    return TensorType(from_numpy(array.dtype), array.shape)


def rounded_once(compute: Callable[[Sequence[Array], Attrs], Array]) -> Reference:
    """A reference that computes in the types in which sums are kept; its result has the first operand's."""

    def reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
        found = compute([widened_array(item) for item in arrays], attrs)
        with np.errstate(invalid="ignore"):  # no number becomes some integer
            return (np.asarray(found).astype(arrays[0].dtype, copy=False),)

    return reference


def moved(name: str, place: Callable[[NodeInfo, tuple[Expr, ...]], Iterable[Expr]]) -> Mapping[str, Form]:
    """The form of an operator that only says where to read: the element of its first operand at `place`."""

    def build(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
        out = info.out_types[0]
        return b.compute(name, out.shape, lambda *index: inputs[0][tuple(place(info, index))], out.dtype)

    return {"direct": Form(build)}


def no_change(e: Emitter, item: Node) -> Values | None:
    """The expansion of an operator that does nothing here."""
    return item.inputs[:1] if item.inputs[0].type == item.output.type else None
