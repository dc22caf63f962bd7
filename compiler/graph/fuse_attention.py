"""Attention as one kernel: softmax(q k^T ...) v, whatever lies between the product and the softmax.

Three groups become one where nothing else reads what passes between them: the product of two computed
tensors with what follows it (a scale), the softmax with what it reads element by element (a mask), and the
product of its rows with a third tensor. Transposes before and after come along: a kernel reads and writes its
tensors in any order. So every exporter's spelling gives the same group.
"""

from __future__ import annotations

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.join_groups import GroupIndex, group_index, join_groups
from compiler.graph.op import PIECES, Kind

MOST_KEYS = 1 << 14
"""With more keys a few rows of scores no longer stay in a second-level cache."""


def fuse_attention(fused: FusedGraph, *, threads: bool = False, scores: bool = True) -> FusedGraph:
    """Join the groups of each attention into one.

    threads: for blocks of threads, of what they can weigh. Without `scores`, the first product stays out.
    """
    index = group_index(fused)

    def find(group: Group) -> list[Group]:
        whole = _parts(group, index) if scores else []
        if not threads:
            return whole
        rows, keys = _sizes(group, index)
        if rows < _LEAST_ROWS or not keys:
            return []
        return whole or (_weighting(group, index) if keys <= _MOST_WEIGHED else [])

    return join_groups(fused, [find(group) for group in fused.groups])


def _parts(weighting: Group, index: GroupIndex) -> list[Group]:
    """The groups of an attention, of which `weighting` multiplies by the values, in order; else none."""
    softmax = _softmax_of(weighting, index)
    if softmax is None:
        return []
    makers = [index.alone(value) for value in softmax.inputs]
    shape = softmax.outputs[0].type.shape
    scores = [
        made
        for made in makers
        if made is not None and made.outputs[0].type.shape == shape and _is_product(made.anchor, index.graph)
    ]
    if len(scores) != 1:
        return []
    before = [
        part for group in (scores[0], weighting) for value in group.inputs for part in _moved(value, index)
    ]
    return [*before, scores[0], softmax, weighting, *_moved_after(weighting, index)]


def _softmax_of(weighting: Group, index: GroupIndex) -> Group | None:
    """The softmax whose rows a group multiplies, and nothing else reads."""
    if weighting.anchor is None or not _is_product(weighting.anchor, index.graph):
        return None
    softmax = index.alone(weighting.anchor.inputs[0])
    return softmax if softmax is not None and _is_softmax(softmax.anchor) else None


_MOST_WEIGHED, _LEAST_ROWS = 1 << 10, 16
"""Keys of rows that blocks of threads weigh without making them; rows of a tile on matrix units."""


def _weighting(group: Group, index: GroupIndex) -> list[Group]:
    """The softmax and the product of a group that multiplies its rows; else none."""
    softmax = _softmax_of(group, index)
    return [] if softmax is None else [softmax, group]


def _sizes(group: Group, index: GroupIndex) -> tuple[int, int]:
    """Rows of each batch of scores that a group weighs, and keys of each of them; zeros for other groups."""
    softmax = _softmax_of(group, index)
    if softmax is None:
        return 0, 0
    *_, rows, keys = softmax.outputs[0].type.shape
    return rows, keys


def _is_product(anchor: Node | None, graph: Graph) -> bool:
    """Whether a group's anchor is the product of two computed tensors."""
    return anchor is not None and anchor.op.multiplies and anchor.inputs[1] not in graph.constants


def _is_softmax(anchor: Node | None) -> bool:
    if anchor is None or not anchor.op.weighs or anchor.attrs.flag("flatten"):
        return False
    shape = anchor.output.type.shape
    return anchor.attrs.integer("axis") == len(shape) - 1 and shape[-1] <= MOST_KEYS


def _moved(value: Value, index: GroupIndex) -> list[Group]:
    """The groups that compute an operand element by element, or move it; views alone stay outside."""
    found: list[Group] = []
    views: list[Group] = []
    while (group := index.alone(value)) is not None:
        if group.nodes[0].op.kind is Kind.VIEW:
            views.append(group)
        elif _may_precede(group):
            found, views = [*found, *views, group], []
        else:
            break
        computed = [item for item in group.inputs if item not in index.graph.constants]
        if len(computed) != 1:
            break
        (value,) = computed
    return found


def _may_precede(group: Group) -> bool:
    """Whether the elements of a group can be made where they are read."""
    apart = any(node.op.alone or PIECES in node.op.forms or len(node.outputs) > 1 for node in group.nodes)
    return group.kind is Kind.INJECTIVE and not apart


def _moved_after(weighting: Group, index: GroupIndex) -> list[Group]:
    """The group that transposes all but the last axis of the result, if that is all that reads it."""
    result = weighting.outputs[0]
    if index.alone(result) is None:
        return []
    (after,) = index.readers[result]
    order = after.nodes[0].attrs.integers("perm", ())
    rows = len(after.nodes) == 1 and bool(order) and order[-1] == len(order) - 1
    return [after] if rows and after.kind is Kind.INJECTIVE else []
