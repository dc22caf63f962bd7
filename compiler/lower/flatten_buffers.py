"""Buffer flattening, linear addresses: index = sum of index * stride, plus the buffer's offset.

A buffer without strides is dense and row-major. Aliases keep the memory they share.
"""

from __future__ import annotations

from functools import cache

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.ir import Alloc, Buffer, Expr, Func, Indexed, Ramp, Region, binary, const
from compiler.loops.simplify import simplify_stmt


def flatten_buffers(func: Func) -> Func:
    """Give every buffer one dimension; indices are simplified under the loops around them."""

    @cache
    def flat(buffer: Buffer) -> Buffer:
        return buffer.replace(shape=(span(buffer),), strides=(), offset=None)

    def flatten(item: IRNode) -> IRNode | None:
        if isinstance(item, Indexed):
            return item.replace(buffer=flat(item.buffer), indices=(_flat_index(item.buffer, item.indices),))
        if isinstance(item, Alloc):
            return item.replace(buffer=flat(item.buffer))
        if isinstance(item, Region):  # as a run of elements: only boxes that are contiguous reach this pass
            length: Expr = const(1)
            for extent in item.extent:
                length = binary("mul", length, extent)
            return Region(flat(item.buffer), (_flat_index(item.buffer, item.begin),), (length,))
        return None

    body = simplify_stmt(rewrite_nodes(func.body, flatten))
    return func.replace(body=body, params=tuple(flat(item) for item in func.params))


def _strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """The strides of a buffer in elements."""
    if buffer.strides:
        return buffer.strides
    strides: list[Expr] = []
    step: Expr = const(1)
    for extent in reversed(buffer.shape):
        strides.append(step)
        step = binary("mul", step, extent)
    return tuple(reversed(strides))


def _flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The element number of `buffer[indices]`; a ramp along one dimension stays a ramp."""
    total: Expr = const(0) if buffer.offset is None else buffer.offset
    ramp: tuple[Expr, int] | None = None
    for index, stride in zip(indices, _strides_of(buffer), strict=True):
        if isinstance(index, Ramp) and len(indices) > 1:
            ramp = (binary("mul", index.stride, stride), index.lanes)
            index = index.base
        total = binary("add", total, binary("mul", index, stride))
    return total if ramp is None else Ramp(total, *ramp)


def span(buffer: Buffer) -> Expr:
    """Elements from the first to the last that the buffer can reach, plus its offset."""
    total: Expr = const(1) if buffer.offset is None else binary("add", buffer.offset, 1)
    for extent, stride in zip(buffer.shape, _strides_of(buffer), strict=True):
        total = binary("add", total, binary("mul", binary("sub", extent, 1), stride))
    return total
