"""A depthwise convolution and the 1 x 1 convolution that alone reads it as one kernel.

For blocks of threads: a launch less, and the tensor between the two needs no memory. What follows the first
one element by element (a bias, a clip) goes along, as its inputs are known. Elsewhere: depthwise separable
convolutions.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.join_groups import GroupIndex, group_index, join_groups
from compiler.graph.ops.windows import windows_of

Pays = Callable[[Node, Node], bool]
"""Whether one kernel for a depthwise convolution and its 1 x 1 convolution takes less time than two."""


def fuse_depthwise(fused: FusedGraph, pays: Pays) -> FusedGraph:
    """Join the groups of each pair for which it pays."""
    index = group_index(fused)
    return join_groups(fused, [_pair(group, index, pays) for group in fused.groups])


def _pair(group: Group, index: GroupIndex, pays: Pays) -> list[Group]:
    """The group of a depthwise convolution and `group`, the 1 x 1 convolution that reads it; else none."""
    product = group.anchor
    first = None if product is None else index.alone(_image(product.inputs[0], group))
    if product is None or first is None or first.anchor is None or not is_depthwise(first.anchor):
        return []
    fits = _is_pointwise(product, first.anchor) and _reads_one_image(first, index.graph)
    return [first, group] if fits and pays(first.anchor, product) else []


def _image(value: Value, group: Group) -> Value:
    """What an operand is, but for a shuffle of channels that its group does on the way."""
    for node in group.nodes:
        if node.output == value and node.op.inline is not None and node.attrs.integer("axis", 0) == 1:
            return node.inputs[0] if node.inputs[0].type == value.type else value
    return value


def is_depthwise(node: Node) -> bool:
    """Whether a node is a convolution of each channel by itself."""
    return (
        "depthwise" in node.op.forms_for(node.info)
        and node.inputs[0].type.shape[1] == node.output.type.shape[1]
    )


def _is_pointwise(node: Node, first: Node) -> bool:
    """Whether a node is such a convolution as another one, of several channels at one place."""
    if node.op is not first.op or is_depthwise(node):
        return False
    windows = windows_of(node.attrs)
    one = (1,) * len(windows.kernel)
    return windows.kernel == windows.strides == one and not windows.padded


def _reads_one_image(group: Group, graph: Graph) -> bool:
    """Whether all that a group reads beside one tensor is known."""
    return sum(value not in graph.constants for value in group.inputs) == 1
