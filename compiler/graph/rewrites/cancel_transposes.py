"""Code motion: transposes sink until they meet their opposite.

A transpose goes below elementwise operators, concatenations, pads, softmax and reductions whose operands
are all transposed alike (or constant). Two in a row become one, and one that changes nothing vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value

Perm = tuple[int, ...]


@rewriting(expand=True)
def cancel_transposes(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Sink and cancel transposes."""
    if len(item.outputs) != 1 or not item.inputs:
        return None
    if item.op.name == "Transpose":
        return _compose(editor, item) or editor.expanded(item)
    perm = _common_perm(editor, item)
    if perm is None:
        return None
    if item.op.elementwise:
        operands = [_before(editor, value, perm, item.output.type.rank) for value in item.inputs]
        if any(value is None for value in operands):
            return None
        made = editor.emit_all(item.op, [value for value in operands if value is not None], item.attrs)
        return (editor.emit("Transpose", made[0], perm=perm),)
    return _sink_other(editor, item, perm)


def _compose(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    inner = editor.producer(item.inputs[0], "Transpose")
    if inner is None:
        return None
    first, second = inner.attrs.integers("perm"), item.attrs.integers("perm")
    return (editor.emit("Transpose", inner.inputs[0], perm=tuple(first[axis] for axis in second)),)


def _common_perm(editor: Editor, item: Node) -> Perm | None:
    """The permutation of the operands that are transposed; None when there is none or they differ."""
    found: Perm | None = None
    for value in item.inputs:
        maker = editor.producer(value, "Transpose")
        if maker is None:
            if editor.known(value) is None:
                return None
            continue
        perm = maker.attrs.integers("perm")
        if found not in (None, perm):
            return None
        found = perm
    return found


def _inverse(perm: Sequence[int]) -> Perm:
    return tuple(int(axis) for axis in np.argsort(perm))


def _before(editor: Editor, value: Value, perm: Perm, rank: int) -> Value | None:
    """What an operand was before the transpose; constants are transposed back."""
    maker = editor.producer(value, "Transpose")
    if maker is not None:
        return maker.inputs[0] if value.type.rank == rank else None
    known = editor.known(value)
    assert known is not None
    if known.size == 1:
        return value
    full = known.reshape((1,) * (rank - known.ndim) + known.shape)
    return editor.constant(full.transpose(_inverse(perm)))


def _sink_other(editor: Editor, item: Node, perm: Perm) -> tuple[Value, ...] | None:
    """Operators with axes: the axis is named as it was before the transpose."""
    makers = [editor.producer(value, "Transpose") for value in item.inputs]
    sources = [maker.inputs[0] for maker in makers if maker is not None]
    name, attrs = item.op.name, item.attrs
    if len(sources) != len(item.inputs):
        return None
    if name == "Concat" or (name in ("Softmax", "LogSoftmax") and not attrs.flag("flatten")):
        changed = attrs.with_(axis=perm[attrs.integer("axis")])
    elif name == "Pad":
        order = _inverse(perm)
        moved = {key: tuple(attrs.integers(key)[axis] for axis in order) for key in ("before", "after")}
        changed = attrs.with_(**moved)
    elif name.startswith("Reduce") and attrs.flag("keepdims"):
        changed = attrs.with_(axes=tuple(sorted(perm[axis] for axis in attrs.integers("axes"))))
    else:
        return None
    (made,) = editor.emit_all(item.op, sources, changed)
    return (editor.emit("Transpose", made, perm=perm),)
