"""A sequence that grows from run to run, as the keys and values that a decoder keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.core.types import INDEX
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import NodeInfo, TensorType
from compiler.graph.op import (
    PIECES,
    Form,
    InvalidError,
    Kind,
    Op,
    Sign,
    Types,
    everywhere,
    no_flops,
    same_dtype,
)
from compiler.graph.ops.elementwise import narrow
from compiler.loops.build import Builder
from compiler.loops.ir import Buffer, Expr, ExprLike, const, maximum, minimum


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    before, new, begin = types
    axis, kind = attrs.integer("axis"), same_dtype(types[:2])
    rest = [(*item.shape[:axis], *item.shape[axis + 1 :]) for item in (before, new)]
    if before.rank != new.rank or rest[0] != rest[1]:
        raise InvalidError(f"{new} cannot be appended to {before} along axis {axis}")
    if begin.dtype.name != "i64" or begin.size != 1:
        raise InvalidError(f"the place of what is appended is {begin}, expected one i64")
    total = before.shape[axis] + new.shape[axis]
    return (TensorType(kind, (*before.shape[:axis], total, *before.shape[axis + 1 :])),)


def _reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """What is behind the end of both is the last of what was before, or 0."""
    (before, new, begin), axis = arrays, attrs.integer("axis")
    made = np.concatenate((before, np.zeros_like(new)), axis)
    first = int(np.clip(begin.reshape(-1)[0], 0, before.shape[axis]))
    place = (slice(None),) * axis + (slice(first, first + new.shape[axis]),)
    made[place] = new
    return (made,)


def _form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """A copy of what was before, then what is new; the outermost loop is the one that ends with the run's."""
    axis, out = info.attrs.integer("axis"), info.out_types[0]
    target = b.local("append", out.shape, out.dtype)
    before, new, begin = inputs
    at = (const(0),) * info.in_types[2].rank
    first = minimum(maximum(narrow(begin[at], INDEX), 0), info.in_types[0].shape[axis])

    def piece(source: Buffer, start: ExprLike) -> Callable[..., tuple[tuple[Expr, ...], Expr]]:
        def at(place: Expr, *others: Expr) -> tuple[tuple[Expr, ...], Expr]:
            around = others[:axis], others[axis:]
            return (*around[0], place + start, *around[1]), source[(*around[0], place, *around[1])]

        return at

    for name, source, kind, start in (
        ("append_before", before, info.in_types[0], 0),
        ("append_new", new, info.in_types[1], first),
    ):
        extents = kind.shape[axis], *kind.shape[:axis], *kind.shape[axis + 1 :]
        b.write(name, target, extents, piece(source, start))
    return target


APPEND = Op(
    "Append", Kind.INJECTIVE, _infer, _reference, (3, 3), forms={PIECES: Form(_form)}, reads_once=everywhere,
    extends=True, flops=no_flops, sign=Sign.UNKNOWN,
)  # fmt: skip
"""What was before, of which a run has so many places along `axis`, and there what is new: `Concat` of parts.

Operands: before, new, and how much of the first a run has, one i64.
"""

OPS = (APPEND,)
