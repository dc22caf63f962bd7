"""Buffers become one-dimensional: index = sum of index * stride, plus the buffer's offset.

A buffer without strides is dense and row-major. Aliases keep the memory they share.
"""

from __future__ import annotations

from typing import cast

from compiler.core.node import Node
from compiler.loops.ir import (
    Alloc,
    AsyncCopy,
    Buffer,
    Expr,
    Func,
    Ramp,
    Region,
    Stmt,
    binary,
    const,
)
from compiler.loops.simplify import simplify_stmt
from compiler.lower.compact_buffers import ACCESSES
from compiler.lower.rewriter import Rewriter


def flatten_buffers(func: Func) -> Func:
    """Give every buffer one dimension; indices are simplified under the loops around them."""
    flatten = _Flatten()
    body = simplify_stmt(cast(Stmt, flatten.visit(func.body)))
    params = tuple(flatten.flat(item) for item in func.params)
    return func.replace(body=body, params=params)


class _Flatten(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._flat: dict[Buffer, Buffer] = {}

    def flat(self, buffer: Buffer) -> Buffer:
        """The one-dimensional version of a buffer."""
        done = self._flat.get(buffer)
        if done is None:
            shape = (span(buffer),)
            done = buffer.replace(shape=shape, strides=(), offset=None)
            self._flat[buffer] = done
        return done

    def visit(self, item: Node) -> Node:  # type: ignore[override]  # regions, too
        if isinstance(item, Buffer):
            return item
        done = item.map_children(self.visit)
        if isinstance(done, ACCESSES):
            index = flat_index(done.buffer, done.indices)
            return done.replace(buffer=self.flat(done.buffer), indices=(index,))
        if isinstance(done, Alloc):
            return done.replace(buffer=self.flat(done.buffer))
        if isinstance(done, AsyncCopy):
            return done.replace(target=self._region(done.target), source=self._region(done.source))
        return done

    def _region(self, region: Region) -> Region:
        """A box as a run of elements; only boxes that are contiguous reach this pass."""
        length: Expr = const(1)
        for extent in region.extent:
            length = binary("mul", length, extent)
        begin = flat_index(region.buffer, region.begin)
        return Region(self.flat(region.buffer), (begin,), (length,))


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """The strides of a buffer in elements."""
    if buffer.strides:
        return buffer.strides
    strides: list[Expr] = []
    step: Expr = const(1)
    for extent in reversed(buffer.shape):
        strides.append(step)
        step = binary("mul", step, extent)
    return tuple(reversed(strides))


def flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The element number of `buffer[indices]`; a ramp along one dimension stays a ramp."""
    total: Expr = const(0) if buffer.offset is None else buffer.offset
    ramp: tuple[Expr, int] | None = None
    for index, stride in zip(indices, strides_of(buffer), strict=True):
        if isinstance(index, Ramp) and len(indices) > 1:
            ramp = (binary("mul", index.stride, stride), index.lanes)
            index = index.base
        total = binary("add", total, binary("mul", index, stride))
    return total if ramp is None else Ramp(total, *ramp)


def span(buffer: Buffer) -> Expr:
    """Elements from the first to the last that the buffer can reach, plus its offset."""
    total: Expr = const(1) if buffer.offset is None else binary("add", buffer.offset, 1)
    for extent, stride in zip(buffer.shape, strides_of(buffer), strict=True):
        total = binary("add", total, binary("mul", binary("sub", extent, 1), stride))
    return total
