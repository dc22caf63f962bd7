"""A depthwise convolution and the 1 x 1 convolution that alone reads it as one kernel.

For blocks of threads: a launch less, and the tensor between the two needs no memory. What follows the first
one element by element (a bias, a clip) goes along, as its inputs are known. (TVM and Relay: -; cuDNN's
runtime fusion; "fused depthwise-pointwise" of mobile GPU libraries.)
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
    if product is None or not _is_pointwise(product):
        return []
    first = index.alone(_image(product.inputs[0], group))
    if first is None or first.anchor is None or not is_depthwise(first.anchor):
        return []
    alone = _reads_one_image(first, index.graph)
    return [first, group] if alone and pays(first.anchor, product) else []


def _image(value: Value, group: Group) -> Value:
    """What an operand is, but for a shuffle of channels that its group does on the way."""
    shuffle = next((node for node in group.nodes if node.output == value), None)
    shuffled = (
        shuffle is not None and shuffle.op.name == "ChannelShuffle" and shuffle.attrs.integer("axis") == 1
    )
    return shuffle.inputs[0] if shuffle is not None and shuffled else value


def _is_pointwise(node: Node) -> bool:
    if node.op.name != "Conv" or node.inputs[1].type.shape[1] == 1:
        return False
    windows = windows_of(node.attrs)
    one = (1,) * len(windows.kernel)
    return windows.kernel == windows.strides == one and not any((*windows.before, *windows.after))


def is_depthwise(node: Node) -> bool:
    """Whether a node is a convolution of each channel by itself."""
    if node.op.name != "Conv":
        return False
    channels = node.output.type.shape[1]
    return node.attrs.integer("group") == channels == node.inputs[0].type.shape[1] > 1


def _reads_one_image(group: Group, graph: Graph) -> bool:
    """Whether all that a group reads beside one tensor is known."""
    return sum(value not in graph.constants for value in group.inputs) == 1
