"""Layouts: how a tensor's logical indices map to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

from compiler.loops.index_map import IndexMap


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of a tensor.

    maps: index maps, applied one after the other; none for row-major. shape: the physical shape.
    lanes: channels (axis 1) per block, 0 for row-major, all of them for channels-last. group: channels per
    channel group when each group is padded to whole blocks of its own, 0 when there is one group.
    """

    maps: tuple[IndexMap, ...]
    shape: tuple[int, ...]
    lanes: int = 0
    group: int = 0

    @property
    def size(self) -> int:
        """Elements of memory, padding included."""
        return prod(self.shape)


def row_major(shape: Sequence[int]) -> Layout:
    """The layout that ONNX means."""
    return Layout((), tuple(shape))


def blocked(shape: Sequence[int], lanes: int, group: int = 0) -> Layout:
    """Channels (axis 1) in blocks of `lanes`, lane innermost.

    >>> blocked((1, 64, 7, 7), 16).maps[0].text
    'a, b, c, d -> a, b // 16, c, d, b % 16'
    """
    rank, batch, space = len(shape), shape[0], tuple(shape[2:])
    blocks = -(-(group or shape[1]) // lanes)
    if not group:
        return Layout((lanes_last(rank, 1, lanes),), (batch, blocks, *space, lanes), lanes)
    maps = (IndexMap.identity(rank).split(1, group), lanes_last(rank + 1, 2, lanes))
    return Layout(maps, (batch, shape[1] // group, blocks, *space, lanes), lanes, group)


def channels_last(shape: Sequence[int]) -> Layout:
    """Channels (axis 1) innermost: NHWC for images.

    >>> channels_last((1, 64, 7, 7)).maps[0].text
    'a, b, c, d -> a, c, d, b'
    """
    order = (0, *range(2, len(shape)), 1)
    return Layout((IndexMap.identity(len(shape)).reordered(order),), tuple(shape[n] for n in order), shape[1])


@cache
def lanes_last(rank: int, axis: int, lanes: int) -> IndexMap:
    """The map that splits an axis into blocks of `lanes` and puts the lane innermost."""
    return IndexMap.identity(rank).split(axis, lanes, to=rank)
