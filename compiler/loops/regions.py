"""What a block reads and writes, as boxes in terms of its iteration variables."""

from __future__ import annotations

from compiler.core.node import Node
from compiler.loops.ir import AtomicUpdate, Buffer, Expr, Load, Region, Stmt, Store, const


def block_regions(body: Stmt) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """The point accesses of a loop-free block body: (reads, writes).

    Each distinct access is one region of extent 1. A read of what the block itself updates (the
    accumulator of a reduction) is not listed among the reads.
    """
    reads: dict[Region, None] = {}
    writes: dict[Region, None] = {}
    for item in body.walk():
        access = _access(item)
        if access is not None:
            (writes if isinstance(item, Store | AtomicUpdate) else reads)[access] = None
    return tuple(item for item in reads if item not in writes), tuple(writes)


def _access(item: Node) -> Region | None:
    if not isinstance(item, Load | Store | AtomicUpdate):
        return None
    return point(item.buffer, item.indices)


def point(buffer: Buffer, indices: tuple[Expr, ...]) -> Region:
    """The region of one element."""
    return Region(buffer, indices, tuple(const(1) for _ in indices))
