"""Horizontal fusion: sums of products over one tensor with several known factors become one, read in slices.

Queries, keys and values of attention, say, or the 1 x 1 convolutions in front of parallel branches: one
launch in place of three, and as many blocks at once. What is computed from each result element by element
goes along where it is the same for all, and so do vectors that are added. Results that something else is
computed from as they are made keep kernels of their own: that would need one more. (TVM:
CombineParallelDense, CombineParallelConv2D.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.graph.edit import Editor, GraphRewrite, Rule
from compiler.graph.ir import Graph, Node, Value

_READ_IN_PARTS = frozenset({"Reshape", "Transpose", "Slice", "MatMul", "Conv"})
"""What reads a slice by index arithmetic, in a kernel that there is anyway."""

_RESULTS = {"MatMul": (-1, 1), "Conv": (1, 0)}
"""Axes of the result, and of the known factor, along which columns (output channels) lie."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """A sum of products by known factors, and what alone reads it, element by element, in order."""

    product: Node
    after: tuple[Node, ...]

    @property
    def result(self) -> Value:
        return (self.product, *self.after)[-1].output

    @property
    def key(self) -> Hashable:
        """What chains have in common that become one."""
        product = self.product
        kernel = product.inputs[1].type.shape[2:]
        own = (product.op.name, product.attrs, product.inputs[0], len(product.inputs), kernel)
        return own, tuple((item.op.name, item.attrs, len(item.inputs)) for item in self.after)


def _merges_products(graph: Graph) -> Rule:
    """A rule that knows which products of a graph go together."""
    groups = {chains[0].product.output: chains for chains in _groups(graph)}
    parts: dict[Value, Value] = {}

    def step(editor: Editor, item: Node) -> tuple[Value, ...] | None:
        if item.output in groups:
            parts.update(_merged(editor, item.inputs[0], groups[item.output]))
        made = parts.get(item.output)
        return None if made is None else (made,)

    return step


def _groups(graph: Graph) -> list[list[_Chain]]:
    """Chains that have everything in common but their known factors, and what is added."""
    found: defaultdict[Hashable, list[_Chain]] = defaultdict(list)
    for item in graph.nodes:
        if item.op.name in _RESULTS and _is_by_known(graph, item):
            chain = _Chain(item, tuple(_after(graph, item)))
            if _is_read_in_parts(graph, chain.result):
                found[chain.key].append(chain)
    return [chains for chains in found.values() if len(chains) > 1]


def _is_by_known(graph: Graph, item: Node) -> bool:
    source, *factors = item.inputs
    if source in graph.constants or any(value not in graph.constants for value in factors):
        return False
    if item.op.name == "Conv":
        return item.attrs.integer("group") == 1
    return source.type.rank == factors[0].type.rank == 2


def _after(graph: Graph, product: Node) -> Iterator[Node]:
    """What alone reads a product and is computed of its elements, or of those and a vector along them."""
    last = product
    while last.output not in graph.output_set:
        users = graph.users(last.output)
        if len(users) != 1 or not _is_alike(graph, users[0], last.output, product):
            return
        (last,) = users
        yield last


def _is_alike(graph: Graph, item: Node, source: Value, product: Node) -> bool:
    """Whether a node does the same with all columns, but for what it adds to each."""
    if not item.op.elementwise or item.output.type != source.type or item.inputs[0] != source:
        return False
    if len(item.inputs) == 1:
        return True
    axis = _RESULTS[product.op.name][0] % source.type.rank
    vector = item.inputs[1].type
    shape = (1,) * (source.type.rank - vector.rank) + vector.shape
    along = shape[axis] == vector.size == source.type.shape[axis]
    return len(item.inputs) == 2 and item.op.name == "Add" and item.inputs[1] in graph.constants and along


def _is_read_in_parts(graph: Graph, value: Value) -> bool:
    """Whether nothing is computed of a tensor where it is made, or where it becomes part of another one."""
    users = graph.users(value)
    return value not in graph.output_set and all(one.op.name in _READ_IN_PARTS for one in users)


def _merged(editor: Editor, source: Value, chains: Sequence[_Chain]) -> Mapping[Value, Value]:
    """What stands for each result: its columns of the one product."""
    axis, own = _RESULTS[chains[0].product.op.name]
    rank = chains[0].result.type.rank
    axis %= rank
    _, factor, *bias = zip(*(one.product.inputs for one in chains), strict=True)
    known = [_side_by_side(editor, factor, own), *(_side_by_side(editor, one, 0) for one in bias)]
    made = _one_for_all(editor, [one.product for one in chains], (source, *known))
    for items in zip(*(one.after for one in chains), strict=True):
        _, *added = zip(*(one.inputs for one in items), strict=True)
        vectors = [_side_by_side(editor, one, axis, rank) for one in added]
        made = _one_for_all(editor, items, (made, *vectors))
    results, begin = {}, 0
    for one in chains:
        shape = one.result.type.shape
        starts = tuple(begin if n == axis else 0 for n in range(rank))
        results[one.result] = editor.emit("Slice", made, begin=starts, step=(1,) * rank, size=shape)
        begin += shape[axis]
    return results


def _side_by_side(editor: Editor, values: Sequence[Value], axis: int, rank: int = 0) -> Value:
    """Known tensors, each as one of so many axes at least, one behind the other along one of them."""
    known = [array for array in map(editor.known, values) if array is not None]
    arrays = [array.reshape((1,) * (rank - array.ndim) + array.shape) for array in known]
    return editor.constant(np.concatenate(arrays, axis=axis))


def _one_for_all(editor: Editor, items: Sequence[Node], inputs: Sequence[Value]) -> Value:
    """The node that does what all of these do."""
    editor.origin = tuple(dict.fromkeys(name for one in items for name in one.origin))
    return editor.emit_all(items[0].op, inputs, items[0].attrs)[0]


merge_products = GraphRewrite(_merges_products)
"""Merges products of one tensor."""
