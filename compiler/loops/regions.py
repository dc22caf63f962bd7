"""What nodes read, write and bind by their declarations; for a block, boxes in terms of its variables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from compiler.core.node import IRNode
from compiler.loops.ir import Buffer, Region, Stmt, Var

N = TypeVar("N", bound=IRNode)


def reads_of(item: IRNode) -> tuple[Region, ...]:
    """The boxes that a node itself reads; what is below it reads on its own."""
    return tuple(_values(item, item.READS, Region)) if item.READS else ()


def writes_of(item: IRNode) -> tuple[Region, ...]:
    """The boxes that a node itself writes."""
    return tuple(_values(item, item.WRITES, Region)) if item.WRITES else ()


def variables_of(item: IRNode) -> tuple[Var, ...]:
    """The variables that exist inside a node."""
    return tuple(_values(item, item.BINDS, Var)) if item.BINDS else ()


def buffers_of(item: IRNode) -> tuple[Buffer, ...]:
    """The buffers that exist inside a node."""
    return tuple(_values(item, item.BINDS, Buffer)) if item.BINDS else ()


def _values(item: IRNode, fields: tuple[str, ...], kind: type[N]) -> Iterator[N]:
    for name in fields:
        value = getattr(item, name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, kind):
                yield one
            elif isinstance(one, IRNode):
                yield from _values(one, one.BINDS, kind)


def buffers_read(root: IRNode) -> set[Buffer]:
    """The buffers that a node, or something in it, reads."""
    return {box.buffer for item in root.walk() for box in reads_of(item)}


def buffers_written(root: IRNode) -> set[Buffer]:
    """The buffers that a node, or something in it, writes."""
    return {box.buffer for item in root.walk() for box in writes_of(item)}


def block_regions(body: Stmt) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """The point accesses of a loop-free block body: (reads, writes).

    Each distinct access is one region of extent 1. A read of what the block itself updates (the
    accumulator of a reduction) is not listed among the reads.
    """
    nodes = list(body.walk())
    writes = dict.fromkeys(box for item in nodes for box in writes_of(item))
    reads = dict.fromkeys(box for item in nodes for box in reads_of(item))
    return tuple(item for item in reads if item not in writes), tuple(writes)
