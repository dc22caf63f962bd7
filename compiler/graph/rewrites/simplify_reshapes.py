"""Peephole rewrites and code motion: fewer reshapes, out of the way of fusion.

Reshapes in a row become one. A reshape goes below elementwise operators and row-wise normalisation, so that
these fuse with whatever made the tensor, until it meets another reshape or an operator that needs the shape.
A reshape, swap and reshape back that only reorders one axis becomes `ChannelShuffle`.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value

Shape = Sequence[int]


@rewriting(expand=True)
def simplify_reshapes(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Merge and sink reshapes."""
    if item.op.name == "Reshape":
        return _merge(editor, item) or _shuffle(editor, item)
    if item.op.elementwise:
        return _sink(editor, item)
    if item.op.name in ("Standardize", "Softmax", "LogSoftmax"):
        return _sink_rows(editor, item)
    return None


def _merge(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    if editor.producer(item.inputs[0], "Reshape") is None:
        return None
    return (emit_reshape(editor, item.inputs[0], item.output.type.shape),)


def emit_reshape(editor: Editor, value: Value, shape: Shape) -> Value:
    """`value` under another shape, read from where its own reshape reads."""
    inner = editor.producer(value, "Reshape")
    return editor.emit("Reshape", value if inner is None else inner.inputs[0], shape=tuple(shape))


def _sink(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    shape = item.output.type.shape
    makers = [editor.producer(value, "Reshape") for value in item.inputs]
    sources = [m.inputs[0] for m in makers if m is not None and m.output.type.shape == shape]
    if not sources:
        return None
    target = sources[0].type.shape
    operands = [_reshaped(editor, value, shape, target) for value in item.inputs]
    if any(value is None for value in operands):
        return None
    made = editor.emit_all(item.op, [value for value in operands if value is not None], item.attrs)
    return (editor.emit("Reshape", made[0], shape=shape),)


def _reshaped(editor: Editor, value: Value, shape: Shape, target: Shape) -> Value | None:
    """An operand as it meets elements of shape `target` instead of `shape`; None where it cannot."""
    if value.type.size == 1:
        return value if value.type.rank <= len(target) else emit_reshape(editor, value, ())
    maker = editor.producer(value, "Reshape")
    if maker is not None and maker.inputs[0].type.shape == target:
        return maker.inputs[0]
    if value.type.shape == tuple(shape):
        free = editor.known(value) is not None or editor.producer(value) is None or editor.uses[value] > 1
        return emit_reshape(editor, value, target) if free else None
    same = _common_tail(shape, target)
    padded = (1,) * (len(shape) - value.type.rank) + value.type.shape
    if any(extent != 1 for extent in padded[: len(shape) - same]):
        return None
    return emit_reshape(editor, value, padded[len(shape) - same :])


def _common_tail(a: Shape, b: Shape) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[-1 - count] == b[-1 - count]:
        count += 1
    return count


def _sink_rows(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Rows that keep their extents under the reshape are the same rows."""
    maker = editor.producer(item.inputs[0], "Reshape")
    if maker is None or (item.op.name != "Standardize" and item.attrs.flag("flatten")):
        return None
    source, shape = maker.inputs[0], item.output.type.shape
    axis = item.attrs.integer("axis")
    inner = len(shape) - axis
    if _common_tail(shape, source.type.shape) < inner:
        return None
    (made,) = editor.emit_all(item.op, (source,), item.attrs.with_(axis=source.type.rank - inner))
    return (editor.emit("Reshape", made, shape=shape),)


def _shuffle(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """(..., g * m, ...) -> (..., g, m, ...) -> (..., m, g, ...) -> (..., m * g, ...)."""
    swap = editor.producer(item.inputs[0], "Transpose")
    apart = editor.producer(swap.inputs[0], "Reshape") if swap is not None else None
    if swap is None or apart is None or apart.inputs[0].type != item.output.type:
        return None
    whole, parts, perm = item.output.type.shape, apart.output.type.shape, swap.attrs.integers("perm")
    for axis, extent in enumerate(whole):
        swapped = (*range(axis), axis + 1, axis, *range(axis + 2, len(parts)))
        if perm != swapped:
            continue
        groups, members = parts[axis], parts[axis + 1]
        if extent == groups * members and parts == (*whole[:axis], groups, members, *whole[axis + 1 :]):
            return (editor.emit("ChannelShuffle", apart.inputs[0], axis=axis, groups=groups),)
    return None
