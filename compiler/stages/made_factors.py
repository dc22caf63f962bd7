"""Whether one launch for what makes an image and the convolution of it pays on a target."""

from __future__ import annotations

import math
from itertools import product as combinations

from compiler.core.target import TargetFacts
from compiler.core.types import F32
from compiler.graph.fuse import Group
from compiler.graph.fuse_factors import is_pointwise
from compiler.graph.ir import Node
from compiler.graph.ops.factors import is_f32
from compiler.graph.ops.windows import windows_of
from compiler.schedule.rules.threads.made_factor import OPERAND, cycles_saved, windows_saved
from compiler.schedule.rules.threads.made_tile import ChainReads, WindowReads
from compiler.schedule.rules.threads.matrix import units_for_types
from compiler.schedule.rules.threads.tile import GemmProblem

_IMAGE = 4
"""Axes of an image: samples, channels, lines and places."""


def pays(first: Group, product: Node, facts: TargetFacts) -> bool:
    """Whether a target takes less time for both at once by estimate: convolutions of images of f32.

    Windows never where nothing copies weights by itself. There AMD's compiler makes a branch of each load
    under a condition, which waits for it: predicted are 15 us where two launches took 2.8.
    """
    nodes = (*first.nodes, product)
    kinds = {value.type.dtype for node in nodes for value in (*node.inputs, node.output)}
    image, anchors = first.outputs[0], [node for node in (first.anchor, product) if node is not None]
    if image.type.rank != _IMAGE or kinds != {F32} or not all(is_f32(node.info) for node in anchors):
        return False
    reads = _chain(first) if first.anchor is None else _windows(first.anchor)
    if isinstance(reads, ChainReads) and not is_pointwise(product):
        return windows_saved(image.type.size, product.output.type.shape[1], reads, facts) > 0
    groups, (samples, rows, *places) = product.attrs.integer("group"), product.output.type.shape
    terms = image.type.shape[1] // groups
    columns = samples * places[0] * places[1]
    problem = GemmProblem(groups, rows // groups, columns, terms, terms, 1, plain=True)
    return cycles_saved(problem, reads, units_for_types(F32, F32, facts), facts) > 0


def _chain(group: Group) -> ChainReads:
    """What operators read that go element by element: of each pixel, or of each channel."""
    made = group.outputs[0].type
    images = sum(value.type.shape[-2:] == made.shape[-2:] for value in group.inputs)
    operations = sum(node.op.flops(node.info) for node in group.nodes) / made.size
    return ChainReads(images, math.ceil(operations) + OPERAND * (len(group.inputs) - images))


def _windows(first: Node) -> WindowReads:
    """Where the windows of a convolution of images read, row-major."""
    windows, width = windows_of(first.attrs), first.inputs[0].type.shape[-1]
    steps = (windows.dilations[0] * width, windows.dilations[1])
    taps = combinations(*map(range, windows.kernel))
    places = sorted(down * steps[0] + across * steps[1] for down, across in taps)
    return WindowReads(tuple(places), windows.strides[0] * width, first.output.type.shape[2])
