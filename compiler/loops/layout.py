"""Layouts: how a tensor's logical indices map to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAMES = "abcdefghij"
"""Names of the dimensions in index maps that the compiler writes itself."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of a tensor.

    maps: index maps as text, applied one after the other; none for row-major. shape: the physical shape.
    lanes: channels (axis 1) per block, 0 for row-major. group: channels per channel group when each group is
    padded to whole blocks of its own, 0 when there is one group.
    """

    maps: tuple[str, ...]
    shape: tuple[int, ...]
    lanes: int = 0
    group: int = 0

    @property
    def size(self) -> int:
        """Elements of memory, padding included."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


def row_major(shape: Sequence[int]) -> Layout:
    """The layout that ONNX means."""
    return Layout((), tuple(shape))


def blocked(shape: Sequence[int], lanes: int, group: int = 0) -> Layout:
    """Channels (axis 1) in blocks of `lanes`, lane innermost.

    >>> blocked((1, 64, 7, 7), 16).maps
    ('a, b, c, d -> a, b // 16, c, d, b % 16',)
    """
    rank, batch, space = len(shape), shape[0], tuple(shape[2:])
    blocks = -(-(group or shape[1]) // lanes)
    if not group:
        return Layout((lane_map(rank, 1, lanes),), (batch, blocks, *space, lanes), lanes)
    maps = (split_map(rank, 1, group), lane_map(rank + 1, 2, lanes))
    return Layout(maps, (batch, shape[1] // group, blocks, *space, lanes), lanes, group)


def lane_map(rank: int, axis: int, lanes: int) -> str:
    """Index map that splits `axis` into blocks of `lanes` and puts the lane innermost.

    >>> lane_map(2, 1, 16)
    'a, b -> a, b // 16, b % 16'
    """
    names = list(NAMES[:rank])
    blocks = [f"{name} // {lanes}" if number == axis else name for number, name in enumerate(names)]
    return f"{', '.join(names)} -> {', '.join([*blocks, f'{names[axis]} % {lanes}'])}"


def split_map(rank: int, axis: int, size: int) -> str:
    """Index map that splits `axis` into groups of `size` where it stands.

    >>> split_map(2, 0, 34)
    'a, b -> a // 34, a % 34, b'
    """
    names = list(NAMES[:rank])
    target: list[str] = []
    for number, name in enumerate(names):
        target += [f"{name} // {size}", f"{name} % {size}"] if number == axis else [name]
    return f"{', '.join(names)} -> {', '.join(target)}"
