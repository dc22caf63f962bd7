"""Det: determinants of square matrices, by elimination with the largest pivot of each column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.core.types import INDEX
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, accumulate_type
from compiler.graph.ir import NodeInfo, TensorType
from compiler.graph.op import Form, InvalidError, Kind, Op, Signature, Types, rounded_once
from compiler.graph.ops.elementwise import FLOATS, check_kind, narrow, widen
from compiler.loops.build import Builder, region_at
from compiler.loops.ir import Buffer, Expr, If, Let, Region, Stmt, Store, Var, call, const, seq


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (source,) = types
    check_kind("Det", source.dtype, FLOATS)
    if source.rank < 2 or source.shape[-1] != source.shape[-2]:
        raise InvalidError(f"Det of {source}, which is no square matrix")
    return (source.with_shape(source.shape[:-2]),)


@rounded_once
def _reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    return np.asarray(np.linalg.det(arrays[0].astype(np.float64)))


class _Elimination:
    """The steps on one matrix in a buffer of its own; `at` gives its elements' indices."""

    def __init__(self, b: Builder, matrix: Buffer, before: Sequence[Expr], size: int) -> None:
        self.b, self.matrix, self.before, self.size = b, matrix, tuple(before), size

    def at(self, row: Expr, column: Expr) -> Expr:
        return self.matrix[(*self.before, row, column)]

    def put(self, row: Expr, column: Expr, value: Expr) -> Stmt:
        return Store(self.matrix, (*self.before, row, column), value)

    def column(self, pivot: Buffer, result: Buffer, number: Var) -> Stmt:
        """Bring the largest element of a column to the diagonal and take the column out of later rows."""
        zero = (const(0),)
        chosen = pivot[zero]

        def look(row: Var) -> Stmt:
            larger = _size(self.at(row, number)).gt(_size(self.at(chosen, number)))
            return If(row.gt(number), If(larger, Store(pivot, zero, row)))

        def swap(column: Var) -> Stmt:
            held = Var(self.b.fresh("held"), self.matrix.dtype)
            move = seq(self.put(number, column, self.at(chosen, column)), self.put(chosen, column, held))
            return Let(held, self.at(number, column), move)

        def clear(row: Var) -> Stmt:
            factor = Var(self.b.fresh("factor"), self.matrix.dtype)

            def subtract(column: Var) -> Stmt:
                left = self.at(row, column) - factor * self.at(number, column)
                return If(column.ge(number), self.put(row, column, left))

            divided = Let(
                factor,
                self.at(row, number) / self.at(number, number),
                self.b.repeat("c", self.size, subtract),
            )
            return If(row.gt(number), divided)

        diagonal = self.at(number, number)
        swapped = seq(self.b.repeat("c", self.size, swap), Store(result, zero, -result[zero]))
        return seq(
            Store(pivot, zero, number),
            self.b.repeat("r", self.size, look),
            If(chosen.ne(number), swapped),
            Store(result, zero, result[zero] * diagonal),
            If(diagonal.ne(0.0), self.b.repeat("r", self.size, clear)),
        )


def _size(value: Expr) -> Expr:
    return call("abs", value)


def _form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    (source,), out, size = inputs, info.out_types[0], info.in_types[0].shape[-1]
    kind = accumulate_type(out.dtype)
    target = b.local("determinants", out.shape, out.dtype)
    matrices = b.local("matrices", (*out.shape, size, size), kind)

    def body(*loops: Var) -> Stmt:
        before = loops[: out.rank]
        steps = _Elimination(b, matrices, before, size)

        def run(result: Buffer) -> Sequence[Stmt]:
            zero = (const(0),)

            def columns(pivot: Buffer) -> Sequence[Stmt]:
                return (b.repeat("column", size, lambda number: steps.column(pivot, result, number)),)

            start = Store(result, zero, const(1, kind))
            end = Store(target, before, narrow(result[zero], out.dtype))
            return start, b.with_cell("pivot", INDEX, columns), end

        copied = b.repeat("copy", (size, size), lambda r, c: steps.put(r, c, widen(source[(*before, r, c)])))
        return seq(copied, b.with_cell("product", kind, run))

    def touches(*loops: Var) -> tuple[list[Region], list[Region]]:
        before = loops[: out.rank]
        return [region_at(source, *before)], [region_at(item, *before) for item in (matrices, target)]

    b.perform("eliminate", out.shape or (1,), body, touches)
    return target


DETERMINANT = Op(
    "Det", Kind.REDUCTION, _infer, _reference, (1, 1), (Signature(11), Signature(22)),
    forms={"direct": Form(_form)}, alone=True,
    flops=lambda info: info.in_types[0].size * max(info.in_types[0].shape[-1], 1),
)  # fmt: skip

OPS = (DETERMINANT,)
