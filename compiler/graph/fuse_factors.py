"""A convolution and what makes its image for it alone as one kernel.

For blocks of threads: a launch less, and the tensor between the two needs no memory. The image of a 1 x 1
convolution may be made by a depthwise one, whose other inputs are known, with what follows it element by
element (a bias, a clip): elsewhere a depthwise separable convolution. Or it is a chain, made element by
element of what may have other readers: by a gate of each channel, a normalisation in front of a convolution,
a sum. Then windows may be of 3 x 3, too.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.join_groups import GroupIndex, group_index, join_groups
from compiler.graph.ops.windows import windows_of

Pays = Callable[[Group, Node], bool]
"""Whether one kernel for what makes an image and the convolution of it takes less time than two."""

_WINDOW = 3
"""Places along a side of the largest windows whose elements chains may be computed for."""


def fuse_factors(fused: FusedGraph, pays: Pays) -> FusedGraph:
    """Join the groups of each pair for which it pays."""
    index = group_index(fused)
    return join_groups(fused, [_pair(group, index, pays) for group in fused.groups])


def _pair(group: Group, index: GroupIndex, pays: Pays) -> list[Group]:
    """What makes the image of `group`, a convolution, and that group; else none."""
    product = group.anchor
    if product is None or not _has_small_windows(product):
        return []
    first = index.alone(_image(product.inputs[0], group))
    if first is None:
        return []
    fits = is_chain(first) or (_is_window(first, index.graph) and is_pointwise(product))
    return [first, group] if fits and pays(first, product) else []


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
    """Whether a node goes element by element, and all its readers are convolutions that may make it."""
    readers = graph.users(node.output)
    return node.op.elementwise and bool(readers) and all(map(_has_small_windows, readers))


def is_depthwise(node: Node) -> bool:
    """Whether a node is a convolution of each channel by itself."""
    return (
        "depthwise" in node.op.forms_for(node.info)
        and node.inputs[0].type.shape[1] == node.output.type.shape[1]
    )


def is_pointwise(node: Node) -> bool:
    """Whether a convolution of several channels reads one place."""
    windows = windows_of(node.attrs)
    return set(windows.kernel) == {1} and not windows.padded


def _has_small_windows(node: Node) -> bool:
    """Whether a node is a convolution of several channels at one place, or of 3 x 3 around each."""
    if "depthwise" not in node.op.forms or is_depthwise(node):
        return False
    windows = windows_of(node.attrs)
    whole = set(windows.strides) == set(windows.dilations) == {1}
    around = set(windows.kernel) == {_WINDOW} and node.attrs.integer("group") == 1
    return whole and (around or is_pointwise(node))
