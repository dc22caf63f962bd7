"""Idiom recognition: normalisation that an exporter has spelt out.

    d = x - mean(x);  d / sqrt(mean(d * d) + epsilon)          layer normalisation
    x / sqrt(mean(x * x) + epsilon)                            by the root of the mean square

over the trailing axes become `Standardize(x)`.
"""

from __future__ import annotations

import numpy as np

from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value
from compiler.graph.ops.norm import emit_standardized


@rewriting()
def recognise_norms(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Replace spelt-out normalisation by Standardize."""
    for distance, spread in _quotients(editor, item):
        variance, epsilon = _below_root(editor, spread)
        mean = editor.producer(variance, "ReduceMean") if variance is not None else None
        axes = _trailing_axes(mean, distance) if mean is not None else None
        if mean is None or axes is None or not _is_square(editor, mean.inputs[0], distance):
            continue
        source = _centred(editor, distance, axes)
        centred = source is not None
        source = distance if source is None else source
        return (emit_standardized(editor, source, axes[0], epsilon, centred=centred),)
    return None


def _quotients(editor: Editor, item: Node) -> list[tuple[Value, Value]]:
    """Possible pairs (a, b) of `a / b`, `a * (1 / b)` and `(1 / b) * a`."""
    if item.op.name == "Div":
        return [(item.inputs[0], item.inputs[1])]
    if item.op.name != "Mul":
        return []
    pairs = (item.inputs, item.inputs[::-1])
    return [(a, below) for a, inverse in pairs if (below := _inverted(editor, inverse)) is not None]


def _inverted(editor: Editor, value: Value) -> Value | None:
    """The value that another one is the reciprocal of."""
    maker = editor.producer(value)
    if maker is None:
        return None
    if maker.op.name == "Reciprocal":
        return maker.inputs[0]
    return maker.inputs[1] if maker.op.name == "Div" and _is_number(editor, maker.inputs[0], 1) else None


def _below_root(editor: Editor, value: Value) -> tuple[Value | None, float]:
    """The variance and epsilon of sqrt(variance + epsilon)."""
    root = editor.producer(value, "Sqrt")
    return _plus_constant(editor, root.inputs[0]) if root is not None else (None, 0.0)


def _centred(editor: Editor, distance: Value, axes: tuple[int, ...]) -> Value | None:
    """The tensor whose elements `distance` takes from their mean over the same axes."""
    difference = editor.producer(distance, "Sub")
    mean = editor.producer(difference.inputs[1], "ReduceMean") if difference is not None else None
    if difference is None or mean is None or mean.inputs[0] != difference.inputs[0]:
        return None
    return difference.inputs[0] if _trailing_axes(mean, mean.inputs[0]) == axes else None


def _trailing_axes(mean: Node, source: Value) -> tuple[int, ...] | None:
    """The axes of a mean when these are the last ones of `source` and stay as extent 1."""
    axes = mean.attrs.integers("axes")
    last = axes and axes == tuple(range(axes[0], source.type.rank))
    return axes if last and mean.attrs.flag("keepdims") else None


def _is_number(editor: Editor, value: Value, number: float) -> bool:
    known = editor.known(value)
    return known is not None and known.size == 1 and float(np.reshape(known, ())) == number


def _plus_constant(editor: Editor, value: Value) -> tuple[Value | None, float]:
    total = editor.producer(value, "Add")
    if total is None:
        return None, 0.0
    for operand, other in (total.inputs, total.inputs[::-1]):
        known = editor.known(other)
        if known is not None and known.size == 1:
            return operand, float(np.reshape(known, ()))
    return None, 0.0


def _is_square(editor: Editor, value: Value, base: Value) -> bool:
    """Whether a value is the square of `base`, or of a difference of the same operands."""
    maker = editor.producer(value)
    if maker is None:
        return False
    if maker.op.name == "Pow":
        square = _is_number(editor, maker.inputs[1], 2)
    else:
        square = maker.op.name == "Mul" and maker.inputs[0] == maker.inputs[1]
    return square and (maker.inputs[0] == base or _same_difference(editor, maker.inputs[0], base))


def _same_difference(editor: Editor, a: Value, b: Value) -> bool:
    first, second = editor.producer(a, "Sub"), editor.producer(b, "Sub")
    return first is not None and second is not None and first.inputs == second.inputs
