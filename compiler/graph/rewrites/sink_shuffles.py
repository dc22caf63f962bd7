"""Code motion: channel shuffles sink below depthwise convolutions.

A depthwise convolution treats every channel alike, so it may run on the channels in their old order with
its weights reordered instead. The shuffle then feeds the next convolution, which reads its input channels
one by one and can pick them in any order for free.
"""

from __future__ import annotations

import numpy as np

from compiler.graph.dtypes import Array
from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value


@rewriting()
def sink_shuffles(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Swap each ChannelShuffle with the depthwise convolution that alone reads it."""
    if item.op.name != "Conv" or not _is_depthwise(item):
        return None
    shuffle = editor.producer(item.inputs[0], "ChannelShuffle")
    if shuffle is None or editor.uses[item.inputs[0]] != 1 or shuffle.attrs.integer("axis") != 1:
        return None
    arrays = [editor.known(value) for value in item.inputs[1:]]
    known = [array for array in arrays if array is not None]
    if len(known) != len(arrays):
        return None
    channels = item.output.type.shape[1]
    order = shuffle.op.reference([np.arange(channels).reshape(1, channels)], shuffle.attrs)[0].reshape(-1)
    moved = [editor.constant(_scattered(array, order)) for array in known]
    result = editor.emit_all(item.op, (shuffle.inputs[0], *moved), item.attrs)
    return editor.emit_all(shuffle.op, result, shuffle.attrs)


def _is_depthwise(item: Node) -> bool:
    channels = item.inputs[0].type.shape[1]
    return channels == item.output.type.shape[1] == item.attrs.integer("group") > 1


def _scattered(array: Array, order: Array) -> Array:
    """The array whose element `order[i]` is `array[i]`."""
    result = np.empty_like(array)
    result[order] = array
    return result
