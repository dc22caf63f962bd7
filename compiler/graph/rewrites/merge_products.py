"""Horizontal fusion: products of one tensor by several known matrices become one, of which slices are read.

Queries, keys and values of attention, say: one launch in place of three, and as many blocks at once. Vectors
that are added behind the products go along. The products of whatever is computed from the result as it is
made keep kernels of their own, as that would need one more. (TVM: CombineParallelDense.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.edit import Editor, GraphRewrite, Rule
from compiler.graph.ir import Graph, Node, Value

_MOVES = frozenset({"Reshape", "Transpose", "Slice"})


@dataclass(frozen=True, slots=True)
class _Sum:
    """A product by a known matrix, and what is added to its rows: a vector, or nothing."""

    product: Node
    added: Node | None = None

    @property
    def result(self) -> Value:
        return (self.added or self.product).output

    @property
    def columns(self) -> int:
        return self.product.output.type.shape[-1]


def _merges_products(graph: Graph) -> Rule:
    """A rule that knows which products of a graph go together."""
    groups = {sums[0].product.output: sums for sums in _groups(graph)}
    parts: dict[Value, Value] = {}

    def step(editor: Editor, item: Node) -> tuple[Value, ...] | None:
        if item.output in groups:
            parts.update(_merged(editor, item.inputs[0], groups[item.output]))
        made = parts.get(item.output)
        return None if made is None else (made,)

    return step


def _groups(graph: Graph) -> list[list[_Sum]]:
    """Products of one tensor, with the same attributes, that all or none add vectors."""
    found: defaultdict[tuple[Value, Attrs, bool], list[_Sum]] = defaultdict(list)
    for item in graph.nodes:
        if item.op.name == "MatMul" and _is_by_matrix(graph, item):
            one = _with_vector(graph, item)
            if _is_moved(graph, one.result):
                found[item.inputs[0], item.attrs, one.added is not None].append(one)
    return [sums for sums in found.values() if len(sums) > 1]


def _is_by_matrix(graph: Graph, item: Node) -> bool:
    left, right = item.inputs
    return left not in graph.constants and right in graph.constants and left.type.rank == right.type.rank == 2


def _with_vector(graph: Graph, product: Node) -> _Sum:
    """A product, and the addition of a known vector to its rows, where that alone reads it."""
    users = graph.users(product.output)
    if len(users) != 1 or users[0].op.name != "Add" or product.output in graph.output_set:
        return _Sum(product)
    (added,) = users
    source, vector = added.inputs
    alike = source == product.output and added.output.type == source.type
    is_row = vector in graph.constants and vector.type.size == source.type.shape[-1] == vector.type.shape[-1]
    return _Sum(product, added) if alike and is_row else _Sum(product)


def _is_moved(graph: Graph, value: Value) -> bool:
    """Whether a tensor is read in other shapes only: nothing is computed where it is made."""
    users = graph.users(value)
    return value not in graph.output_set and all(one.op.name in _MOVES for one in users)


def _merged(editor: Editor, source: Value, sums: Sequence[_Sum]) -> Mapping[Value, Value]:
    """What stands for each result: its columns of the one product."""
    editor.origin = tuple(dict.fromkeys(name for one in sums for name in one.product.origin))
    first = sums[0]
    made = editor.emit_all(
        first.product.op, (source, _joined(editor, [one.product for one in sums])), first.product.attrs
    )[0]
    added = [one.added for one in sums if one.added is not None]
    if added:
        editor.origin = tuple(dict.fromkeys(name for one in added for name in one.origin))
        made = editor.emit("Add", made, _joined(editor, added))
    results, begin = {}, 0
    for one in sums:
        size = (made.type.shape[0], one.columns)
        results[one.result] = editor.emit("Slice", made, begin=(0, begin), step=(1, 1), size=size)
        begin += one.columns
    return results


def _joined(editor: Editor, readers: Sequence[Node]) -> Value:
    """The known second operands of all, one beside the other."""
    known = [editor.known(one.inputs[1]) for one in readers]
    rows = [np.atleast_2d(array) for array in known if array is not None]
    return editor.constant(np.concatenate(rows, axis=1))


merge_products = GraphRewrite(_merges_products)
"""Merges products of one tensor."""
