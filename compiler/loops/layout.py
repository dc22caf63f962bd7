"""Layouts: how a tensor's logical indices map to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAMES = "abcdefghij"
"""Names of the dimensions in index maps that the compiler writes itself."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of a tensor.

    map: the index map as text; empty for row-major. shape: the physical shape. lanes: channels (axis 1) per block,
    0 for row-major. group: channels per channel group when each group is padded to whole blocks of its own,
    0 when there is one group.
    """

    map: str
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
    return Layout("", tuple(shape))


def blocked(shape: Sequence[int], lanes: int, group: int = 0) -> Layout:
    """Channels (axis 1) in blocks of `lanes`, lane innermost.

    >>> blocked((1, 64, 7, 7), 16).map
    'a, b, c, d -> a, b // 16, c, d, b % 16'
    """
    text = lane_map(len(shape), 1, lanes, lanes, group)
    per_group = group or shape[1]
    blocks = -(-per_group // lanes)
    outer = (shape[1] // group, blocks) if group else (blocks,)
    return Layout(text, (shape[0], *outer, *shape[2:], lanes), lanes, group)


def split_terms(name: str, width: int, group: int = 0) -> tuple[list[str], str]:
    """Outer terms and inner term of `name` split by `width`, inside channel groups of `group` (0: one group)."""
    if not group:
        return [f"{name} // {width}"], f"{name} % {width}"
    inner = f"({name} % {group})"
    return [f"{name} // {group}", f"{inner} // {width}"], f"{inner} % {width}"


def lane_map(rank: int, axis: int, lanes: int, width: int = 0, group: int = 0) -> str:
    """Index map that splits `axis` into blocks of `width` (default `lanes`), the inner part innermost.

    >>> lane_map(2, 1, 16)
    'a, b -> a, b // 16, b % 16'
    """
    names = list(NAMES[:rank])
    outer, inner = split_terms(names[axis], width or lanes, group)
    target: list[str] = []
    for number, name in enumerate(names):
        target += outer if number == axis else [name]
    return f"{', '.join(names)} -> {', '.join([*target, inner])}"
