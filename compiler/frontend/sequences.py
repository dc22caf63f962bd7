"""Sequences and optional values: they exist while a model is imported only, as tuples of tensors.

How long a sequence is, and whether there is an optional value, is known at compile time. A position in a
sequence may depend on data where the tensors that may stand there are of one type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NoReturn

import numpy as np

from compiler.frontend.attributes import graph_attribute
from compiler.frontend.item_node import (
    Convert,
    Importing,
    ItemNode,
    integer_constant,
    known_scalar,
    scalar,
    select,
    stack,
)
from compiler.frontend.scope import Item, Nothing
from compiler.graph.edit import Editor
from compiler.graph.ir import Value
from compiler.graph.op import InvalidError, UnsupportedError, normal_axis, same_dtype

Made = tuple[Item, ...] | None


def _construct(importing: Importing, node: ItemNode) -> Made:
    return (_checked([node.tensor(at) for at in range(len(node.inputs))]),)


def _checked(tensors: Sequence[Value]) -> tuple[Value, ...]:
    """A sequence; raises InvalidError where element types differ."""
    if tensors:
        same_dtype([value.type for value in tensors])
    return tuple(tensors)


def _empty(importing: Importing, node: ItemNode) -> Made:
    return ((),)


def _length(importing: Importing, node: ItemNode) -> Made:
    return (integer_constant(importing.editor, len(node.sequence(0))),)


def _at(importing: Importing, node: ItemNode) -> Made:
    sequence, editor = node.sequence(0), importing.editor
    place = _place(editor, node, 1, len(sequence), len(sequence) - 1)
    if isinstance(place, int):
        return (sequence[place],)
    chosen: Item = sequence[-1]
    if len({value.type for value in sequence}) == 1:
        return (editor.emit("Gather", stack(editor, sequence, 0), place, axis=0),)
    for at, value in enumerate(sequence[:-1]):
        chosen = select(editor, _compared(editor, "Equal", place, at), value, chosen)
    return (chosen,)


def _insert(importing: Importing, node: ItemNode) -> Made:
    sequence, tensor, editor = node.sequence(0), node.tensor(1), importing.editor
    if not node.has(2):
        return (_checked((*sequence, tensor)),)
    place = _place(editor, node, 2, len(sequence), len(sequence))
    if isinstance(place, int):
        return (_checked((*sequence[:place], tensor, *sequence[place:])),)
    # Before the place the sequence as it was, behind it one further on.
    found = [
        select(editor, _compared(editor, "Less", place, at), before, tensor)
        for at, before in enumerate((tensor, *sequence))
    ]
    shifted = [
        select(editor, _compared(editor, "Greater", place, at), value, item)
        for at, (value, item) in enumerate(zip(sequence, found, strict=False))
    ]
    return (_tensors((*shifted, found[-1])),)


def _erase(importing: Importing, node: ItemNode) -> Made:
    sequence, editor = node.sequence(0), importing.editor
    if not sequence:
        _refuse_place(0)
    if not node.has(1):
        return (sequence[:-1],)
    place = _place(editor, node, 1, len(sequence), len(sequence) - 1)
    if isinstance(place, int):
        return ((*sequence[:place], *sequence[place + 1 :]),)
    kept = (
        select(editor, _compared(editor, "Greater", place, at), here, following)
        for at, (here, following) in enumerate(pairwise(sequence))
    )
    return (_tensors(tuple(kept)),)


def _tensors(items: Sequence[Item]) -> tuple[Value, ...]:
    return tuple(item for item in items if isinstance(item, Value))


def _compared(editor: Editor, op: str, place: Value, at: int) -> Value:
    """Whether a position that depends on data is equal to, less or greater than another one."""
    return editor.emit(op, place, editor.constant(np.asarray(at, np.int64)))


def _place(editor: Editor, node: ItemNode, index: int, length: int, last: int) -> int | Value:
    """Input `index`, a position counted from the front; a scalar of i64 where it depends on data.

    Raises InvalidError for a position outside of -length..last.
    """
    value = node.tensor(index)
    known = known_scalar(editor, value, "position")
    if known is not None:
        if not -length <= known <= last:
            _refuse_place(length, int(known))
        return int(known) + (length if known < 0 else 0)
    if last < 0:
        _refuse_place(length)
    place = editor.emit("Cast", scalar(editor, value, "position"), to=integer_constant(editor, 0).type.dtype)
    counted = editor.emit("Add", place, integer_constant(editor, length))
    return editor.emit("Where", _compared(editor, "Less", place, 0), counted, place)


def _refuse_place(length: int, place: int | None = None) -> NoReturn:
    where = "" if place is None else f" {place}"
    raise InvalidError(f"a sequence of {length} tensors has no position{where}")


def _split(importing: Importing, node: ItemNode) -> Made:
    value, editor = node.tensor(0), importing.editor
    axis = normal_axis(node.integer("axis", 0), value.type.rank)
    extent = value.type.shape[axis]
    sizes = _sizes(editor, node, extent)
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise InvalidError(f"split {sizes} does not add up to extent {extent}")
    parts, first = [], 0
    for size in sizes:
        begin = tuple(first if at == axis else 0 for at in range(value.type.rank))
        shape = tuple(size if at == axis else one for at, one in enumerate(value.type.shape))
        parts.append(editor.emit("Slice", value, begin=begin, step=(1,) * len(shape), size=shape))
        first += size
    if not node.has(1) and not node.integer("keepdims", 1):
        parts = [editor.emit("Squeeze", part, axes=(axis,)) for part in parts]
    return (tuple(parts),)


def _sizes(editor: Editor, node: ItemNode, extent: int) -> list[int]:
    """Extents of the parts."""
    if not node.has(1):
        return [1] * extent
    known = editor.known(node.tensor(1))
    if known is None:
        raise UnsupportedError(
            "its split is known only when the model runs; if a model input carries it, give --bind"
        )
    if known.ndim:
        return [int(size) for size in known.reshape(-1)]
    size = int(known)
    if size < 1:
        raise InvalidError(f"split {size} is not positive")
    return [min(size, extent - first) for first in range(0, extent, size)]


def _concat(importing: Importing, node: ItemNode) -> Made:
    sequence, editor = node.sequence(0), importing.editor
    if not sequence:
        raise InvalidError("it concatenates an empty sequence")
    is_new = bool(node.integer("new_axis", 0))
    axis = normal_axis(node.integer("axis", 0), sequence[0].type.rank, int(is_new))
    if is_new:
        return (stack(editor, sequence, axis),)
    return (sequence[0] if len(sequence) == 1 else editor.emit("Concat", *sequence, axis=axis),)


def _map(importing: Importing, node: ItemNode) -> Made:
    body = importing.open_subgraph(graph_attribute(node.proto, "body"))
    length = len(node.sequence(0))
    inputs = [node.item(at) for at in range(len(node.inputs))]
    if any(isinstance(item, tuple) and len(item) != length for item in inputs):
        raise InvalidError("its sequences differ in length")
    importing.expect(body, length)
    rows: list[list[Value]] = [[] for _ in body.graph.output]
    for at in range(length):
        made = importing.import_subgraph(
            body, [item[at] if isinstance(item, tuple) else item for item in inputs]
        )
        if made is None:
            return None
        for row, item in zip(rows, made, strict=True):
            if not isinstance(item, Value):
                raise InvalidError("its body makes something else than tensors")
            row.append(item)
    return tuple(map(_checked, rows))


# ---------------------------------------------------------------- optional values


def _optional(importing: Importing, node: ItemNode) -> Made:
    return (node.item(0) if node.has(0) else Nothing(),)


def _has_element(importing: Importing, node: ItemNode) -> Made:
    there = node.has(0) and not isinstance(node.item(0), Nothing)
    return (importing.editor.constant(np.asarray(there)),)


def _get_element(importing: Importing, node: ItemNode) -> Made:
    if isinstance(node.item(0), Nothing):
        raise InvalidError("it reads an optional value that is empty")
    return (node.item(0),)


def _identity(importing: Importing, node: ItemNode) -> Made:
    return (node.item(0),)


SEQUENCES: Mapping[str, Convert] = MappingProxyType(
    {
        "SequenceConstruct": _construct,
        "SequenceEmpty": _empty,
        "SequenceInsert": _insert,
        "SequenceErase": _erase,
        "SequenceAt": _at,
        "SequenceLength": _length,
        "SplitToSequence": _split,
        "ConcatFromSequence": _concat,
        "SequenceMap": _map,
        "Optional": _optional,
        "OptionalHasElement": _has_element,
        "OptionalGetElement": _get_element,
    }
)

ON_ANY_ITEM: Mapping[str, Convert] = MappingProxyType({"Identity": _identity})
"""Operators on tensors that do the same with sequences and optional values."""
