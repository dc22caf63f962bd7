"""Batch normalisation folding: multiplications and additions by constants go into convolutions and products.

A BatchNormalization is by now `x * a + b` with known a and b, as is a scale layer after it. Chains of them
become one multiplication and one addition; behind a convolution, these go into its weights and bias.
"""

from __future__ import annotations

import numpy as np

from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value
from compiler.graph.op import InvalidError, broadcast_shape


def _step(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    if item.op.name not in ("Mul", "Add") or not item.output.type.dtype.is_float:
        return None
    source, constant = item.inputs
    known, maker = editor.known(constant), editor.producer(source)
    if known is None or maker is None or editor.uses[source] != 1 or source.type != item.output.type:
        return None
    editor.origin = tuple(dict.fromkeys((*maker.origin, *item.origin)))
    if maker.op.name == "Conv":
        return _into_conv(editor, item, maker, known)
    if maker.op.name == "MatMul":
        return _into_matmul(editor, item, maker, known)
    return _join(editor, item, maker, known)


def _per_axis(known: Array, rank: int, axis: int, extent: int) -> Array | None:
    """A constant that varies along one axis only (or not at all) as a vector along it; else None."""
    shape = (*([1] * (rank - known.ndim)), *known.shape)
    if any(n != 1 for at, n in enumerate(shape) if at != axis) or shape[axis] not in (1, extent):
        return None
    return np.broadcast_to(known.reshape(-1), (extent,))


def _into_conv(editor: Editor, item: Node, conv: Node, known: Array) -> tuple[Value, ...] | None:
    source, weights, *bias = conv.inputs
    filters = editor.known(weights)
    channels = weights.type.shape[0]
    factor = _per_axis(known, item.output.type.rank, 1, channels)
    offset = editor.known(bias[0]) if bias else np.zeros(channels, to_numpy(weights.type.dtype))
    if filters is None or factor is None or offset is None:
        return None
    if item.op.name == "Mul":
        filters = filters * factor.reshape(-1, *([1] * (filters.ndim - 1)))
        weights = editor.constant(filters)
        if not bias:
            return editor.emit_all(conv.op, (source, weights), conv.attrs)
        offset = offset * factor
    else:
        offset = offset + factor
    return editor.emit_all(conv.op, (source, weights, editor.constant(offset)), conv.attrs)


def _into_matmul(editor: Editor, item: Node, product: Node, known: Array) -> tuple[Value, ...] | None:
    left, right = product.inputs
    matrix = editor.known(right)
    if item.op.name != "Mul" or matrix is None or matrix.ndim != 2:
        return None
    factor = _per_axis(known, item.output.type.rank, item.output.type.rank - 1, matrix.shape[1])
    if factor is None:
        return None
    return editor.emit_all(product.op, (left, editor.constant(matrix * factor)), product.attrs)


def _join(editor: Editor, item: Node, maker: Node, known: Array) -> tuple[Value, ...] | None:
    """(x * a) * b = x * ab; (x + a) + b = x + (a + b); (x + a) * b = x * b + ab."""
    if maker.op.name not in ("Mul", "Add") or (item.op.name, maker.op.name) == ("Add", "Mul"):
        return None
    inner, source = editor.known(maker.inputs[1]), maker.inputs[0]
    if inner is None or source.type != item.output.type or not _stays_small(inner, known):
        return None
    _retire(editor, maker)
    if item.op.name == "Add":
        return (editor.emit("Add", source, editor.constant(np.asarray(inner + known))),)
    if maker.op.name == "Mul":
        return (editor.emit("Mul", source, editor.constant(np.asarray(inner * known))),)
    scaled = _scaled(editor, source, known)
    return (editor.emit("Add", scaled, editor.constant(np.asarray(inner * known))),)


def _scaled(editor: Editor, source: Value, known: Array) -> Value:
    """`source * known`, itself folded into what makes `source` where that is possible."""
    product = editor.producer(editor.emit("Mul", source, editor.constant(known)))
    assert product is not None
    folded = _step(editor, product)
    if folded is None:
        return product.output
    _retire(editor, product)
    return folded[0]


def _retire(editor: Editor, item: Node) -> None:
    """A node that nobody reads any more does not count as a reader."""
    for value in set(item.inputs):
        editor.uses[value] -= 1


def _stays_small(a: Array, b: Array) -> bool:
    try:
        size = int(np.prod(broadcast_shape(a.shape, b.shape)))
    except InvalidError:
        return False
    return size <= max(a.size, b.size)


fold_batchnorm = rewriting()(_step)
"""Folds `Mul` and `Add` by constants into what makes their other operand."""
