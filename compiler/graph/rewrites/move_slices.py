"""Code motion: slices before transposes and behind reshapes, where readers make them by index arithmetic.

A transpose of which only slices are read is never made: q, k and v, say, taken from one product. A reshape of
a slice would need memory of its own; a slice of a reshape is a view and index arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value
from compiler.graph.rewrites.simplify_reshapes import emit_reshape


@rewriting(expand=True)
def move_slices(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Move slices towards what reads them."""
    if item.op.name == "Slice":
        return _before_transpose(editor, item)
    return _behind_reshape(editor, item) if item.op.name == "Reshape" else None


@dataclass(frozen=True, slots=True)
class _Range:
    """Of each of `outer` rows of `length` elements those from `begin` on, `size` of them."""

    outer: int
    length: int
    begin: int
    size: int

    def axis(self, shape: Sequence[int], total: int) -> tuple[int, int] | None:
        """(axis of `shape`, elements for each of its steps) that rows of `total` elements begin with."""
        for axis in range(len(shape)):
            inner = math.prod(shape[axis + 1 :])
            fits = math.prod(shape[:axis]) == self.outer and shape[axis] * inner == total
            if fits and inner and not any(n % inner for n in (self.length, self.begin, self.size)):
                return axis, inner
        return None


def _range_of(slicing: Node | None) -> _Range | None:
    """The range that a slice takes; None where it takes more than one, or every other element."""
    if slicing is None or any(step != 1 for step in slicing.attrs.integers("step")):
        return None
    source, made = slicing.inputs[0].type.shape, slicing.output.type.shape
    cut = [axis for axis, (a, b) in enumerate(zip(source, made, strict=True)) if a != b]
    if len(cut) != 1:
        return None
    (axis,) = cut
    inner, begin = math.prod(source[axis + 1 :]), slicing.attrs.integers("begin")[axis]
    return _Range(math.prod(source[:axis]), source[axis] * inner, begin * inner, made[axis] * inner)


def _sliced(editor: Editor, value: Value, axis: int, begin: int, size: int) -> Value:
    shape = value.type.shape
    starts = tuple(begin if n == axis else 0 for n in range(len(shape)))
    sizes = tuple(size if n == axis else extent for n, extent in enumerate(shape))
    return editor.emit("Slice", value, begin=starts, step=(1,) * len(shape), size=sizes)


def _before_transpose(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """A slice of what a transpose makes, seen under another shape or not."""
    view, taken = editor.producer(item.inputs[0], "Reshape"), _range_of(item)
    maker = editor.producer(item.inputs[0] if view is None else view.inputs[0], "Transpose")
    if maker is None or taken is None:
        return None
    found = taken.axis(maker.output.type.shape, taken.length)
    if found is None:
        return None
    (axis, inner), perm = found, maker.attrs.integers("perm")
    part = _sliced(editor, maker.inputs[0], perm[axis], taken.begin // inner, taken.size // inner)
    made = editor.emit("Transpose", part, perm=perm)
    return (editor.emit("Reshape", made, shape=item.output.type.shape),)


def _behind_reshape(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """A view of a slice, where the same range is one of an axis of the view."""
    slicing, shape = editor.producer(item.inputs[0], "Slice"), item.output.type.shape
    taken = _range_of(slicing)
    found = None if taken is None else taken.axis(shape, taken.size)
    if slicing is None or taken is None or found is None:
        return None
    axis, inner = found
    whole = (*shape[:axis], taken.length // inner, *shape[axis + 1 :])
    view = emit_reshape(editor, slicing.inputs[0], whole)
    return (_sliced(editor, view, axis, taken.begin // inner, taken.size // inner),)
