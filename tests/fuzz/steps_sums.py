"""Steps: reductions, products, normalisations along axes, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.fuzz.grow import (
    F16,
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    MOST_ELEMENTS,
    Pool,
    Step,
    Tensor,
    code,
    is_float,
    is_number,
)

_REDUCTIONS = (
    "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip
_FACTORS = 8


def one_sided(g: Pool, x: Tensor) -> Tensor:
    """Sometimes values of one sign, so that what a search for the extreme begins with would show."""
    if g.chance(0.5) or not (g.takes("Neg", x.dtype) and g.takes("Sub", x.dtype)):
        return x
    least = g.constant(np.asarray(1).astype(x.dtype))
    below = g.add("Sub", [g.add("Neg", [g.add("Abs", [x], x.shape, x)], x.shape, x), least], x.shape, x)
    return below if g.chance(0.7) else g.add("Neg", [below], x.shape, x)


def reduce(g: Pool) -> None:
    x = g.find(lambda one: is_number(one) and one.rank > g.first and one.size > 0)
    if x is None:
        return
    op = g.pick(*_REDUCTIONS)
    if not g.takes(op, x.dtype) or (not is_float(x) and op not in ("ReduceMax", "ReduceMin", "ReduceSum")):
        return
    if is_float(x):
        x = g.within(x, 8.0)
    if op == "ReduceLogSum":
        x = g.positive(x)
    elif op in ("ReduceMax", "ReduceMin"):
        x = one_sided(g, x)
    axes = sorted({g.axis(x) for _ in range(g.integer(1, 3))})
    count = math.prod(x.shape[axis] for axis in axes)
    _along(g, op, x, axes, 64.0 * count if op == "ReduceSumSquare" else x.limit * count)


def _along(g: Pool, op: str, x: Tensor, axes: Sequence[int], limit: float) -> None:
    keep = g.integer(0, 1)
    shape = tuple(1 if at in axes else n for at, n in enumerate(x.shape) if keep or at not in axes)
    signed = [g.signed(axis, x.rank) for axis in axes]
    if g.since(13 if op == "ReduceSum" else 18):
        g.add(op, [x, g.numbers(*signed)], shape, x, limit=limit, keepdims=keep)
    else:
        g.add(op, [x], shape, x, limit=limit, axes=signed, keepdims=keep)


def product(g: Pool) -> None:
    """Of few numbers, which stays away from 0 and from the infinite."""
    x = g.found("ReduceProd", lambda one: is_float(one) and one.rank > g.first and one.size > 0)
    if x is None:
        return
    axis = min(range(g.first, x.rank), key=lambda at: x.shape[at])
    if x.shape[axis] <= _FACTORS:
        _along(g, "ReduceProd", g.within(x, 2.0), [axis], 2.0**_FACTORS)


def below_zero(g: Pool) -> None:
    """The largest of integers that are all negative, which no search may begin with 0."""
    x = g.find(lambda one: is_number(one) and one.rank > g.first and one.size > 0)
    kind = g.pick(I32, I64)
    if x is None or not (g.takes("ReduceMax", kind) and g.takes("Neg", kind) and g.takes("Abs", x.dtype)):
        return
    size = g.add("Abs", [g.within(x, 100.0) if is_float(x) else x], x.shape, x)
    y = size if x.dtype == kind else g.add("Cast", [size], x.shape, x, dtype=kind, to=code(kind))
    least = g.constant(np.asarray(-1, kind))
    below = g.add("Add", [g.add("Neg", [y], y.shape, y), least], y.shape, y)
    _along(g, "ReduceMax", below, [g.axis(x)], below.limit)


def arg(g: Pool) -> None:
    x = g.find(lambda one: is_number(one) and one.rank > g.first and 0 not in one.shape)
    if x is None:
        return
    op, axis, keep = g.pick("ArgMax", "ArgMin"), g.axis(x), g.integer(0, 1)
    attrs = {"select_last_index": g.integer(0, 1)} if g.since(12) else {}
    shape = tuple(1 if at == axis else n for at, n in enumerate(x.shape) if keep or at != axis)
    if g.takes(op, x.dtype):
        x = one_sided(g, x)
        g.add(op, [x], shape, x, dtype=I64, limit=x.shape[axis], axis=axis, keepdims=keep, **attrs)


def cumulate(g: Pool) -> None:
    x = g.found("CumSum", lambda one: one.rank > g.first and one.size > 0)
    if x is None or not g.since(11):
        return
    axis, flags = g.axis(x), {"exclusive": g.integer(0, 1), "reverse": g.integer(0, 1)}
    x = g.within(x, 8.0) if is_float(x) else x
    at = g.constant(np.asarray(g.signed(axis, x.rank), g.pick(I32, I64)))
    g.add("CumSum", [x, at], x.shape, x, limit=x.limit * x.shape[axis], **flags)


def rows(g: Pool) -> None:
    """Softmax and normalisations of rows."""
    x = g.find(lambda one: is_float(one) and one.rank > g.first and one.size > 0)
    if x is None:
        return
    op = g.pick(
        "Softmax",
        "Softmax",
        "LogSoftmax",
        "LayerNormalization",
        "RMSNormalization",
        "LpNormalization",
        "Hardmax",
    )
    if not g.takes(op, x.dtype):
        return
    x, axis = g.within(x, 30.0), g.axis(x)
    if op.endswith("Softmax") or op == "Softmax" or op == "Hardmax":
        g.add(op, [x], x.shape, x, limit=60.0 if op == "LogSoftmax" else 1.0, axis=axis)
        return
    if op == "LpNormalization":
        if x.shape[axis] > 1:
            g.add(op, [g.positive(x)], x.shape, x, limit=1.0, axis=axis, p=g.integer(1, 2))
        return
    inner = x.shape[axis:]
    operands: list[str | Tensor] = [x, g.weights(x.dtype, *inner)]
    if op == "LayerNormalization" and g.chance(0.7):
        operands.append(g.weights(x.dtype, *inner))
    if math.prod(inner) > 1:
        g.add(op, operands, x.shape, x, limit=80.0, axis=axis, epsilon=0.125)


def _is_matrix(g: Pool, x: Tensor) -> bool:
    return x.rank >= 2 and 0 not in x.shape and x.shape[-1] <= 400 and (not g.profile.free or x.rank > 2)


def matmul(g: Pool) -> None:
    x = g.found("MatMul", lambda one: one.rank >= 2 and 0 not in one.shape and one.shape[-1] <= 400)
    if x is None:
        return
    x = g.within(x, 8.0) if is_float(x) else x
    inner, outer = x.shape[-1], g.dim()
    scale = inner**-0.5
    other = g.find(lambda one: one.dtype == x.dtype and one.shape == x.shape) if _is_matrix(g, x) else None
    if other is not None and g.chance(0.4):
        other = g.within(other, 8.0) if is_float(x) else other
        perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        turned = g.add("Transpose", [other], [x.shape[axis] for axis in perm], x, perm=perm)
        g.add("MatMul", [x, turned], (*x.shape[:-1], x.shape[-2]), x, limit=64.0 * inner)
        return
    if math.prod(x.shape[:-1]) * outer > MOST_ELEMENTS:
        return
    limit = x.limit * inner
    if g.chance(0.2):
        g.add("MatMul", [x, g.weights(x.dtype, inner, scale=scale)], x.shape[:-1], x, limit=limit)
        return
    batched = x.shape[g.first : -2] if x.rank > 2 and not g.profile.free and g.chance(0.3) else ()
    weights = g.weights(x.dtype, *batched, inner, outer, scale=scale)
    g.add("MatMul", [x, weights], (*x.shape[:-1], outer), x, limit=limit)


def matrix(g: Pool, least: int = 1) -> Tensor | None:
    """Floats of rank 2 with at least so many columns, made where there is none."""
    found = g.find(
        lambda one: (
            one.dtype in FLOATS and one.rank == 2 and least <= one.shape[-1] <= 400 and one.shape[0] > 0
        )
    )
    if found is not None:
        return found
    x = g.find(
        lambda one: (
            one.dtype in FLOATS and one.rank > 2 and 0 < math.prod(one.shape[1:]) <= 400 and one.shape[0] > 0
        )
    )
    if x is None or math.prod(x.shape[1:]) < least:
        return None
    return g.add("Flatten", [x], (x.shape[0], math.prod(x.shape[1:])), x, axis=1)


def gemm(g: Pool) -> None:
    x = matrix(g)
    if x is None or not g.takes("Gemm", x.dtype):
        return
    x = g.within(x, 8.0)
    flip = 0 if g.profile.free else int(g.chance(0.2))
    turned, outer = g.integer(0, 1), g.dim()
    count, inner = (x.shape[1], x.shape[0]) if flip else x.shape
    weights = g.weights(x.dtype, *((outer, inner) if turned else (inner, outer)), scale=inner**-0.5)
    operands: list[str | Tensor] = [x, weights]
    if g.chance(0.7):
        shapes = [(outer,), (1, outer), (), *([(count, 1), (count, outer)] if not g.profile.free else [])]
        operands.append(g.weights(x.dtype, *g.pick(*shapes)))
    numbers = {"alpha": g.pick(1.0, 0.5), "beta": g.pick(1.0, 2.0)}
    g.add("Gemm", operands, (count, outer), x, limit=8.0 * inner + 2, transA=flip, transB=turned, **numbers)


def einsum(g: Pool) -> None:
    x = g.find(
        lambda one: one.dtype in (F32, F64, F16) and one.rank == 3 and 0 not in one.shape and one.size < 4000
    )
    if x is None or not g.since(12):
        return
    x = g.within(x, 8.0)
    a, b, c = x.shape
    d = g.integer(1, 9)
    table = (
        ("abc,cd->abd", (c, d), (a, b, d)), ("abc,bd->acd", (b, d), (a, c, d)), ("abc,bc->a", (b, c), (a,)),
        ("abc->acb", None, (a, c, b)), ("abc->ab", None, (a, b)), ("abc,db->acd", (d, b), (a, c, d)),
        ("abc,dcb->ad", (d, c, b), (a, d)), ("...c,cd->...d", (c, d), (a, b, d)),
    )  # fmt: skip
    text, other, shape = g.pick(*table)
    operands: list[str | Tensor] = [x] if other is None else [x, g.weights(x.dtype, *other, scale=0.25)]
    g.add("Einsum", operands, shape, x, limit=8.0 * b * c, equation=text)


def topk(g: Pool) -> None:
    """Values and positions; of equal ones the first comes first."""
    x = g.found("TopK", lambda one: is_number(one) and one.rank > g.first and 0 not in one.shape)
    if x is None or not g.since(11):
        return
    axis = g.axis(x)
    count = g.integer(1, x.shape[axis])
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    results = [(x.dtype, shape, x.limit), (I64, shape, float(x.shape[axis]))]
    g.add_all("TopK", [x, g.numbers(count)], results, axis=axis, largest=g.integer(0, 1), sorted=1)


STEPS: tuple[Step, ...] = (
    reduce, reduce, reduce, product, below_zero, arg, cumulate, rows, rows, rows, matmul, matmul, matmul,
    gemm, gemm, einsum, topk,
)  # fmt: skip
