"""What conversions of control flow and sequences are given: a node with its items, bodies to import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx

from compiler.frontend.attributes import Given
from compiler.frontend.scope import Item, item_text
from compiler.graph.dtypes import to_numpy
from compiler.graph.edit import Editor
from compiler.graph.ir import TensorType, Value
from compiler.graph.op import InvalidError, UnsupportedError
from compiler.graph.ops.movement import emit_rows


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A subgraph whose nodes can be imported any number of times: they are in order, its constants loaded.

    used: names that something in it reads.
    """

    graph: onnx.GraphProto
    nodes: Sequence[onnx.NodeProto]
    used: frozenset[str]
    constants: Mapping[str, Value]


class Importing(Protocol):
    """The import under way, as far as conversions need it."""

    @property
    def editor(self) -> Editor:
        """Where nodes are added."""
        ...

    def open_subgraph(self, graph: onnx.GraphProto) -> Subgraph:
        """A subgraph of the node that is converted, made ready."""
        ...

    def import_subgraph(
        self, body: Subgraph, inputs: Sequence[Item], only_where: Value | None = None
    ) -> tuple[Item, ...] | None:
        """What a subgraph makes of these inputs; None where a node in it was refused.

        only_where: a scalar that holds where that counts, if data decides it. Raises BadInputError where the
        graph has become too large.
        """
        ...

    def check(self, agrees: Value, why: str) -> None:
        """Let a run fail with `why` where an i32 is 0, and what is imported now counts."""
        ...

    def expect(self, body: Subgraph, times: int) -> None:
        """Raise BadInputError where importing a body so often would make too many nodes."""
        ...


@dataclass(frozen=True, slots=True)
class ItemNode:
    """A node as the model has it, with what its inputs stand for (None: left out).

    declared: what the model says of the types of its outputs, None where it does not.
    """

    proto: onnx.NodeProto
    opset: int
    attrs: Given
    inputs: tuple[Item | None, ...]
    declared: tuple[TensorType | None, ...] = ()

    def has(self, index: int) -> bool:
        """Whether input `index` is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def item(self, index: int) -> Item:
        """Input `index`; raises InvalidError where it is left out."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise InvalidError(f"input {index} is missing")
        return found

    def tensor(self, index: int) -> Value:
        """Input `index`, which has to be a tensor."""
        found = self.item(index)
        if not isinstance(found, Value):
            raise InvalidError(f"its input {index} is {item_text(found)}, not a tensor")
        return found

    def sequence(self, index: int) -> tuple[Value, ...]:
        """Input `index`, which has to be a sequence."""
        found = self.item(index)
        if not isinstance(found, tuple):
            raise InvalidError(f"its input {index} is {item_text(found)}, not a sequence")
        return found

    def integer(self, name: str, default: int) -> int:
        """The integer attribute `name`."""
        found = self.attrs.get(name, default)
        if not isinstance(found, int):
            raise InvalidError(f"attribute {name} is no integer")
        return found

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        """The integers of attribute `name`, `count` of them; zeros where it is left out."""
        found = self.attrs.get(name, (0,) * count)
        whole = isinstance(found, tuple) and all(isinstance(one, int) for one in found)
        if not isinstance(found, tuple) or not whole or len(found) != count:
            raise InvalidError(f"attribute {name} has to be {count} integers")
        return tuple(int(one) for one in found)


Convert = Callable[[Importing, ItemNode], tuple[Item, ...] | None]
"""What a node makes; None where a node in one of its subgraphs was refused."""


def select(editor: Editor, condition: Value, yes: Item, no: Item) -> Item:
    """`yes` where a scalar condition holds when the model runs, else `no`.

    Raises UnsupportedError where they are not of the same type.
    """
    if yes == no:
        return yes
    if isinstance(yes, Value) and isinstance(no, Value) and yes.type == no.type:
        return editor.emit("Where", condition, yes, no)
    if isinstance(yes, tuple) and isinstance(no, tuple) and len(yes) == len(no):
        picked = (select(editor, condition, a, b) for a, b in zip(yes, no, strict=True))
        return tuple(item for item in picked if isinstance(item, Value))
    raise UnsupportedError(
        f"whether it makes {item_text(yes)} or {item_text(no)} is known only when the model runs; if a model "
        f"input decides it, give --bind"
    )


def scalar(editor: Editor, value: Value, what: str) -> Value:
    """A tensor of one element as one without dimensions; raises InvalidError for any other."""
    if value.type.size != 1:
        raise InvalidError(f"its {what} is {value.type}, expected one element")
    return value if not value.type.rank else editor.emit("Reshape", value, shape=())


def known_scalar(editor: Editor, value: Value, what: str) -> bool | int | None:
    """The one element of a tensor of integers or truth values where it is known."""
    kind = value.type
    if kind.size != 1 or not (kind.dtype.is_int or kind.dtype.is_bool):
        raise InvalidError(f"its {what} is {kind}, expected one integer or truth value")
    array = editor.known(value)
    found: bool | int | None = None if array is None else array.item()
    return found


def to_front(editor: Editor, value: Value, axis: int) -> Value:
    """A tensor with one of its axes as the first."""
    others = (at for at in range(value.type.rank) if at != axis)
    return value if axis == 0 else editor.emit("Transpose", value, perm=(axis, *others))


def take(editor: Editor, value: Value, at: int) -> Value:
    """Element `at` along the first axis, without the axis."""
    row = emit_rows(editor, value, at, 1)
    return editor.emit("Reshape", row, shape=value.type.shape[1:])


def stack(editor: Editor, values: Sequence[Value], axis: int) -> Value:
    """Tensors of one type side by side along a new axis; raises InvalidError where types differ."""
    kinds = {value.type for value in values}
    if len(kinds) != 1:
        raise InvalidError(f"tensors of types {', '.join(sorted(map(str, kinds)))} cannot be stacked")
    rows = [editor.emit("Unsqueeze", value, axes=(axis,)) for value in values]
    return rows[0] if len(rows) == 1 else editor.emit("Concat", *rows, axis=axis)


def integer_constant(editor: Editor, value: int, shape: tuple[int, ...] = ()) -> Value:
    """A constant i64."""
    return editor.constant(np.full(shape, value, np.int64))


def no_rows(editor: Editor, item: Item, axis: int) -> Value:
    """What is collected of an output in no round."""
    if not isinstance(item, Value):
        raise InvalidError(f"an output that it collects is {item_text(item)}, not a tensor")
    shape = list(item.type.shape)
    shape.insert(axis, 0)
    return editor.constant(np.zeros(shape, to_numpy(item.type.dtype)))
