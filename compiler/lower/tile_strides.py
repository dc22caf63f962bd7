"""Strides of tiles as numbers: how far the next row is, once memory has its final layout.

Until then a call on an opaque fragment names the address of the next row, which moves with the buffer.
"""

from __future__ import annotations

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.ir import AddressOf, Call, Expr, Func, binary
from compiler.loops.matrix_units.tile_calls import LOADS, STORE
from compiler.loops.simplify import Simplifier
from compiler.loops.walk import with_body


def tile_strides(func: Func) -> Func:
    """Replace the address of the next row by its distance in elements; buffers are flat."""

    def numbered(item: IRNode) -> IRNode | None:
        if not isinstance(item, Call) or item.name not in (*LOADS, STORE):
            return None
        memory = item.args[0 if item.name == STORE else 1]
        if not isinstance(item.args[2], AddressOf):
            return None
        return item.replace(args=(*item.args[:2], _stride(memory, item.args[2])))

    return with_body(func, rewrite_nodes(func.body, numbered))


def _stride(memory: Expr, following: Expr) -> Expr:
    if not isinstance(memory, AddressOf) or not isinstance(following, AddressOf):
        return following
    return Simplifier({}).simplify(binary("sub", following.indices[0], memory.indices[0]))
