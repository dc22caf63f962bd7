"""Idiom recognition: layer normalisation that an exporter has spelt out.

    d = x - mean(x);  d / sqrt(mean(d * d) + epsilon)

over the trailing axes becomes `Standardize(x)`.
"""

from __future__ import annotations

import numpy as np

from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value


@rewriting()
def recognise_norms(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Replace spelt-out normalisation by Standardize."""
    centred, spread = _quotient(editor, item)
    difference = editor.producer(centred, "Sub") if centred is not None else None
    root = editor.producer(spread, "Sqrt") if spread is not None else None
    if difference is None or root is None:
        return None
    source = difference.inputs[0]
    axes = _mean_axes(editor, difference.inputs[1], source)
    variance, epsilon = _plus_constant(editor, root.inputs[0])
    if axes is None or variance is None:
        return None
    mean = editor.producer(variance, "ReduceMean")
    if mean is None or mean.attrs.integers("axes") != axes or not mean.attrs.flag("keepdims"):
        return None
    if not _is_square(editor, mean.inputs[0], difference):
        return None
    return (editor.emit("Standardize", source, axis=axes[0], epsilon=epsilon),)


def _quotient(editor: Editor, item: Node) -> tuple[Value | None, Value | None]:
    """Numerator and denominator of `a / b` or `a * (1 / b)`."""
    if item.op.name == "Div":
        return item.inputs[0], item.inputs[1]
    if item.op.name == "Mul":
        inverse = editor.producer(item.inputs[1], "Reciprocal")
        return (item.inputs[0], inverse.inputs[0]) if inverse is not None else (None, None)
    return None, None


def _mean_axes(editor: Editor, value: Value, source: Value) -> tuple[int, ...] | None:
    """The axes of `mean(source)` when these are the last ones and stay as extent 1."""
    mean, rank = editor.producer(value, "ReduceMean"), source.type.rank
    if mean is None or mean.inputs[0] != source or not mean.attrs.flag("keepdims"):
        return None
    axes = mean.attrs.integers("axes")
    return axes if axes and axes == tuple(range(axes[0], rank)) else None


def _plus_constant(editor: Editor, value: Value) -> tuple[Value | None, float]:
    total = editor.producer(value, "Add")
    if total is None:
        return None, 0.0
    for operand, other in (total.inputs, total.inputs[::-1]):
        known = editor.known(other)
        if known is not None and known.size == 1:
            return operand, float(np.reshape(known, ()))
    return None, 0.0


def _is_square(editor: Editor, value: Value, difference: Node) -> bool:
    maker = editor.producer(value)
    if maker is None:
        return False
    if maker.op.name == "Pow":
        known = editor.known(maker.inputs[1])
        if known is None or known.size != 1 or float(np.reshape(known, ())) != 2:
            return False
    elif maker.op.name != "Mul" or maker.inputs[0] != maker.inputs[1]:
        return False
    base = editor.producer(maker.inputs[0], "Sub")
    return base is not None and base.inputs == difference.inputs
