"""Whether one launch for a depthwise convolution and the 1 x 1 convolution behind it pays on a target."""

from __future__ import annotations

from itertools import product as combinations

from compiler.core.target import TargetFacts
from compiler.core.types import F32
from compiler.graph.ir import Node
from compiler.graph.ops.factors import is_f32
from compiler.graph.ops.windows import windows_of
from compiler.schedule.rules.threads.depthwise import cycles_saved
from compiler.schedule.rules.threads.made_tile import WindowReads
from compiler.schedule.rules.threads.matrix import units_for_types
from compiler.schedule.rules.threads.tile import GemmProblem, copies

_IMAGE = 4
"""Axes of an image: samples, channels, lines and places."""


def pays(first: Node, product: Node, facts: TargetFacts) -> bool:
    """Whether a target takes less time for both at once by estimate: convolutions of images of f32.

    Never where nothing copies weights by itself. There AMD's compiler makes a branch of each load under a
    condition, which waits for it: predicted are 15 us where two launches took 2.8.
    """
    if not copies(facts):
        return False
    kinds = {value.type.dtype for node in (first, product) for value in (*node.inputs, node.output)}
    if first.output.type.rank != _IMAGE or kinds != {F32} or not all(map(is_f32, (first.info, product.info))):
        return False
    groups, (samples, rows, *image) = product.attrs.integer("group"), product.output.type.shape
    terms = first.output.type.shape[1] // groups
    columns = samples * image[0] * image[1]
    problem = GemmProblem(groups, rows // groups, columns, terms, terms, 1, plain=True)
    return cycles_saved(problem, _windows(first), units_for_types(F32, F32, facts), facts) > 0


def _windows(first: Node) -> WindowReads:
    """Where the windows of a convolution of images read, row-major."""
    windows, width = windows_of(first.attrs), first.inputs[0].type.shape[-1]
    steps = (windows.dilations[0] * width, windows.dilations[1])
    taps = combinations(*map(range, windows.kernel))
    places = sorted(down * steps[0] + across * steps[1] for down, across in taps)
    return WindowReads(tuple(places), windows.strides[0] * width, first.output.type.shape[2])
