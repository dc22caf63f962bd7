"""A 1 x 1 convolution and what makes its image for it alone as one kernel.

For blocks of threads: a launch less, and the tensor between the two needs no memory. The image is made by a
depthwise convolution, whose other inputs are known, with what follows it element by element (a bias, a clip);
or element by element of what may have other readers: by a gate of each channel, a normalisation in front of a
convolution, a sum. Elsewhere the first are depthwise separable convolutions.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.join_groups import GroupIndex, group_index, join_groups
from compiler.graph.ops.windows import windows_of

Pays = Callable[[Group, Node], bool]
"""Whether one kernel for what makes an image and the 1 x 1 convolution of it takes less time than two."""


def fuse_factors(fused: FusedGraph, pays: Pays) -> FusedGraph:
    """Join the groups of each pair for which it pays."""
    index = group_index(fused)
    return join_groups(fused, [_pair(group, index, pays) for group in fused.groups])


def _pair(group: Group, index: GroupIndex, pays: Pays) -> list[Group]:
    """What makes the image of `group`, a 1 x 1 convolution, and that group; else none."""
    product = group.anchor
    if product is None or not _is_pointwise(product):
        return []
    first = index.alone(_image(product.inputs[0], group))
    fits = first is not None and (is_chain(first) or _is_window(first, index.graph))
    return [first, group] if first is not None and fits and pays(first, product) else []


def _image(value: Value, group: Group) -> Value:
    """What an operand is, but for a shuffle of channels that its group does on the way."""
    for node in group.nodes:
        if node.output == value and node.op.inline is not None and node.attrs.integer("axis", 0) == 1:
            return node.inputs[0] if node.inputs[0].type == value.type else value
    return value


def is_chain(group: Group) -> bool:
    """Whether a group makes each element of its result of elements, and adds nothing up."""
    return group.anchor is None and all(node.op.elementwise for node in group.nodes)


def _is_window(group: Group, graph: Graph) -> bool:
    """Whether a group is a depthwise convolution, all of which is known but its image."""
    known = sum(value not in graph.constants for value in group.inputs) == 1
    return known and group.anchor is not None and is_depthwise(group.anchor)


def makes_image(node: Node, graph: Graph) -> bool:
    """Whether a node is such an operator, and all its readers are 1 x 1 convolutions."""
    readers = graph.users(node.output)
    return node.op.elementwise and bool(readers) and all(_is_pointwise(user) for user in readers)


def is_depthwise(node: Node) -> bool:
    """Whether a node is a convolution of each channel by itself."""
    return (
        "depthwise" in node.op.forms_for(node.info)
        and node.inputs[0].type.shape[1] == node.output.type.shape[1]
    )


def _is_pointwise(node: Node) -> bool:
    """Whether a node is a convolution of several channels at one place."""
    if "depthwise" not in node.op.forms or is_depthwise(node):
        return False
    windows = windows_of(node.attrs)
    one = (1,) * len(windows.kernel)
    return windows.kernel == windows.strides == one and not windows.padded
