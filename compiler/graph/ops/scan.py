"""Sums and products of all elements up to each: CumSum, CumProd.

Attributes: `axis` from the front, `exclusive` (an element is not part of its own result) and `reverse`. A
second operand takes the place of `axis`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.core.types import I64
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, accumulate_type
from compiler.graph.ir import Node, NodeInfo, TensorType
from compiler.graph.op import (
    Build,
    Emitter,
    Form,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Reference,
    Sign,
    Signature,
    Types,
    Values,
    input_size,
    normal_axis,
    rounded_once,
)
from compiler.graph.ops.elementwise import FLOATS, INTS, check_kind, narrow, widen
from compiler.loops.build import Builder, identity_of, region_at
from compiler.loops.ir import Binary, Buffer, Expr, Region, Stmt, Store, Var, const, seq


def _import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    flags: Raw = {name: Attrs(attrs).flag(name) for name in ("exclusive", "reverse")}
    known = node.known_at(1)
    if inputs[1].type.size != 1 or not inputs[1].type.dtype.is_int:
        raise InvalidError(f"its axis is {inputs[1].type}, expected one integer")
    if known is None:
        return inputs, {"axis": 0, **flags}
    return inputs[:1], {"axis": normal_axis(int(known.reshape(-1)[0]), inputs[0].type.rank), **flags}


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    check_kind("a scan", types[0].dtype, FLOATS + INTS)
    return (types[0],)


def _expand(e: Emitter, item: Node) -> Values | None:
    """An axis that is an operand: the scan along each axis, of which it picks one."""
    if len(item.inputs) == 1:
        return None
    source, axis = item.inputs
    rank, number = source.type.rank, e.emit("Cast", e.emit("Reshape", axis, shape=()), to=I64)
    wrapped = e.emit("Add", number, e.constant(np.asarray(rank)))
    front = e.emit("Where", e.emit("Less", number, e.constant(np.asarray(0))), wrapped, number)
    made = e.emit(item.op.name, source, **item.attrs)
    for at in range(1, rank):
        along = e.emit(item.op.name, source, **{**item.attrs, "axis": at})
        made = e.emit("Where", e.emit("Equal", front, e.constant(np.asarray(at))), along, made)
    return (made,)


def _reference(combine: np.ufunc) -> Reference:
    @rounded_once
    def reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
        axis = int(arrays[1].reshape(-1)[0]) if len(arrays) > 1 else attrs.integer("axis")
        rows = np.moveaxis(arrays[0], axis, 0)
        rows = rows[::-1] if attrs.flag("reverse") else rows
        made = np.full_like(rows, combine.identity)
        total = np.full(rows.shape[1:], combine.identity, rows.dtype)
        with np.errstate(all="ignore"):
            for number, row in enumerate(rows):
                after = combine(total, row, dtype=rows.dtype)
                made[number] = total if attrs.flag("exclusive") else after
                total = after
        made = made[::-1] if attrs.flag("reverse") else made
        return np.asarray(np.moveaxis(made, 0, axis))

    return reference


def _form(op: str) -> Build:
    """Each row along the axis in order, its total so far in a register."""

    def form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
        (source,), out, axis = inputs, info.out_types[0], info.attrs.integer("axis")
        exclusive, extent = info.attrs.flag("exclusive"), out.shape[axis]
        target, kind = b.local("scan", out.shape, out.dtype), accumulate_type(out.dtype)
        first = (const(0),)

        def body(*loops: Var) -> Stmt:
            row = loops[: out.rank - 1]

            def scan(total: Buffer) -> Sequence[Stmt]:
                def step(number: Var) -> Stmt:
                    along: Expr = const(extent - 1) - number if info.attrs.flag("reverse") else number
                    place = (*row[:axis], along, *row[axis:])
                    add = Store(total, first, Binary(op, total[first], widen(source[place])))
                    keep = Store(target, place, narrow(total[first], out.dtype))
                    return seq(keep, add) if exclusive else seq(add, keep)

                return Store(total, first, identity_of(op, kind)), b.repeat("place", extent, step)

            return b.with_cell("so_far", kind, scan)

        def touches(*loops: Var) -> tuple[list[Region], list[Region]]:
            whole = (*loops[:axis], None, *loops[axis : out.rank - 1])
            return [region_at(source, *whole)], [region_at(target, *whole)]

        b.perform("scan_row", (*out.shape[:axis], *out.shape[axis + 1 :]) or (1,), body, touches)
        return target

    return form


def _scan(name: str, combine: np.ufunc, op: str, opsets: Sequence[int]) -> Op:
    attrs: Raw = {"exclusive": 0, "reverse": 0}
    return Op(
        name, Kind.REDUCTION, _infer, _reference(combine), (1, 2),
        tuple(Signature(since, attrs, adapt=_import) for since in opsets),
        forms={"direct": Form(_form(op), lambda info: len(info.in_types) == 1)}, expand=_expand,
        flops=input_size, sign=Sign.KEEPS, alone=True,
    )  # fmt: skip


OPS = (_scan("CumSum", np.add, "add", (11, 14)), _scan("CumProd", np.multiply, "mul", (26,)))
