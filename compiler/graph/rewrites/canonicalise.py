"""Canonicalisation and peephole rewrites: few operators, written one way.

The records' expansions turn derived operators into simpler ones (Gemm, normalisations, averages, Resize,
...). Here are the forms that concern several records: constants stand second, subtraction and division of
constants are addition and multiplication, and neutral elements vanish.
"""

from __future__ import annotations

import numpy as np

from compiler.graph.dtypes import Array
from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value
from compiler.graph.rewrites.fold_constants import folded_node

_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min"})
_NEUTRAL = {"Add": 0, "Mul": 1}


@rewriting(expand=True)
def canonicalise(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Bring all nodes to canonical form."""
    folded = folded_node(editor, item)
    if folded is not None:
        return folded
    expanded = editor.expanded(item)
    return _arithmetic(editor, item) if expanded is None else expanded


def _arithmetic(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    if not item.op.elementwise or len(item.inputs) != 2:
        return None
    name, (a, b) = item.op.name, item.inputs
    swapped = name in _COMMUTATIVE and editor.known(a) is not None
    if swapped:
        a, b = b, a
    known = editor.known(b)
    if known is None:
        return None
    if name in _NEUTRAL and a.type == item.output.type and bool((known == _NEUTRAL[name]).all()):
        return (a,)
    if swapped:
        return (editor.emit(name, a, b),)
    if not b.type.dtype.is_float:
        return None
    if name == "Sub":
        return (editor.emit("Add", a, editor.constant(-known)),)
    if name == "Div" and bool((known != 0).all()):
        return (editor.emit("Mul", a, editor.constant(_reciprocal(known))),)
    return None


def _reciprocal(array: Array) -> Array:
    """1 / array, rounded once; all zero strides stay so (a constant of one element, broadcast)."""
    if array.ndim and not any(array.strides):
        return np.broadcast_to(_reciprocal(array[(0,) * array.ndim][...]), array.shape)
    return np.asarray(1 / array.astype(np.float64)).astype(array.dtype)
