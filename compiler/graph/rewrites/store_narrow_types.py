"""Element types that are stored only (`DType.is_stored`) become bytes: integers as they are, floats as codes.

Casts become operators on these, what only moves elements moves bytes. Inputs and outputs of the model keep
the type that it declares (`Graph.declared`); those of fewer than 8 bits are packed, as ONNX packs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compiler.core.types import BOOL, F32, F64, I32, DType
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import stored_array, stored_type, to_numpy
from compiler.graph.edit import Editor
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.ops.casting import packed_type

_WHOLE_BYTE = 8


def store_narrow_types(graph: Graph) -> Graph:
    """Replace types that are stored only wherever they occur."""
    values = (*graph.inputs, *graph.constants, *graph.producers, *graph.outputs)
    if not any(value.type.dtype.is_stored for value in values):
        return graph
    editor = Editor(graph)
    moved: dict[Value, Value] = {}
    inputs = tuple(_input(editor, value, moved) for value in graph.inputs)
    for value, array in graph.constants.items():
        if value.type.dtype.is_stored:
            moved[value] = editor.constant(stored_array(array), value.name)
    for item in graph.nodes:
        _node(editor, item, moved)
    outputs = tuple(_output(editor, value, moved) for value in graph.outputs)
    declared = (
        tuple(value.type for value in graph.inputs),
        tuple(value.type for value in graph.outputs),
    )
    return graph.replace(
        nodes=editor.nodes, outputs=outputs, constants=editor.constants, inputs=inputs, declared=declared
    )


def _input(editor: Editor, value: Value, moved: dict[Value, Value]) -> Value:
    kind = value.type
    if not kind.dtype.is_stored:
        return value
    if kind.dtype.bits == _WHOLE_BYTE:
        moved[value] = editor.value(kind.with_dtype(stored_type(kind.dtype)), value.name)
        return moved[value]
    packed = editor.value(packed_type(kind), value.name)
    moved[value] = editor.emit("UnpackBits", packed, of=kind.dtype, shape=kind.shape)
    return packed


def _output(editor: Editor, value: Value, moved: Mapping[Value, Value]) -> Value:
    kind, found = value.type.dtype, moved.get(value, value)
    if not kind.is_stored or kind.bits == _WHOLE_BYTE:
        return found
    editor.origin = ()
    return editor.rename(editor.emit("PackBits", found, of=kind), value.name)


def _node(editor: Editor, item: Node, moved: dict[Value, Value]) -> None:
    inputs = tuple(moved.get(value, value) for value in item.inputs)
    if not any(value.type.dtype.is_stored for value in (*item.inputs, *item.outputs)):
        editor.append(Node(item.op, inputs, item.outputs, item.attrs, item.origin))
        return
    editor.origin = item.origin
    made: Sequence[Value]
    if item.op.name == "Cast":
        made = (_cast(editor, item.inputs[0].type.dtype, inputs[0], item.attrs),)
    elif item.op.name == "BitCast":
        made = (_bit_cast(editor, item.inputs[0].type.dtype, inputs[0], item.attrs.dtype("to")),)
    else:
        made = editor.emit_all(item.op, inputs, _filled(item))
    for old, new in zip(item.outputs, made, strict=True):
        moved[old] = editor.rename(new, old.name)


def _filled(item: Node) -> Attrs:
    """The attributes with the number that fills new elements as it is stored."""
    kind, value = item.output.type.dtype, item.attrs.get("value")
    if not isinstance(value, (int, float)) or not kind.is_stored or kind.is_int:
        return item.attrs
    return item.attrs.with_(value=stored_array(np.asarray(value, to_numpy(kind))).item())


def _cast(editor: Editor, source: DType, value: Value, attrs: Attrs) -> Value:
    to = attrs.dtype("to")
    if source.is_stored and source.is_float:
        value = editor.emit("DecodeFloat", value, of=source)
    if not to.is_stored:
        return value if value.type.dtype == to else editor.emit("Cast", value, **attrs)
    if to.is_int:
        plain = value.type.dtype
        whole = editor.emit("Cast", value, to=I32) if plain.is_float or plain == BOOL else value
        return editor.emit("WrapInteger", whole, to=to)
    how: dict[str, AttrValue] = {
        "saturate": attrs.flag("saturate", default=True),
        "round_mode": attrs.text("round_mode", "up"),
    }
    return editor.emit("EncodeFloat", _as_f32(editor, value, to), to=to, **how)


def _as_f32(editor: Editor, value: Value, to: DType) -> Value:
    """A value in f32, so that rounding it once more to `to` gives what rounding it once does."""
    kind = value.type.dtype
    if kind == F32:
        return value
    if kind.is_int and kind.bits >= F32.bits and to.name == "f8e8m0":  # others are too small for it to matter
        value = editor.emit("Cast", value, to=F64)
    if value.type.dtype == F64:
        return editor.emit("RoundToOdd", value)
    return editor.emit("Cast", value, to=F32)


def _bit_cast(editor: Editor, source: DType, value: Value, to: DType) -> Value:
    if source.bits < _WHOLE_BYTE:
        return editor.emit("WrapInteger", value, to=to)
    stored = stored_type(to)
    return value if value.type.dtype == stored else editor.emit("BitCast", value, to=stored)
