"""Lanes mean the same as scalars: random expressions, once per element and once as vectors.

Scalars are Python integers that are wrapped, vectors are numpy arrays: two ways to the same number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.core.types import BOOL, DType, dtype
from compiler.loops import ir
from compiler.loops.interp import interpret
from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import (
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Load,
    Ramp,
    Select,
    Store,
    Unary,
    Var,
    const,
)
from tests.unit.loops.test_interp import value_of

LANES = 8
I = Var("i")  # noqa: E741
TYPES = tuple(dtype(name) for name in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "f32", "f64"))
_INTS = ("add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor")
_FLOATS = ("add", "sub", "mul", "div", "min", "max")


def buffers(kind: DType) -> tuple[Buffer, Buffer]:
    return Buffer("a", kind, (const(LANES),)), Buffer("b", kind, (const(LANES),))


def constants(kind: DType) -> st.SearchStrategy[Expr]:
    low = -100 if kind.is_signed else 0
    return st.integers(low, 100).map(lambda value: const(value, kind))


def expressions(kind: DType) -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.sampled_from([Load(item, (I,)) for item in buffers(kind)]), constants(kind))
    return st.recursive(leaves, lambda children: grown(kind, children), max_leaves=12)


def grown(kind: DType, children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    comparisons = st.builds(Binary, st.sampled_from(sorted(ir.COMPARISONS)), children, children)
    choices = [
        st.builds(Binary, st.sampled_from(_INTS if kind.is_int else _FLOATS), children, children),
        st.builds(Unary, st.just("neg"), children),
        st.builds(Select, comparisons, children, children),
        st.sampled_from(TYPES[:7]).flatmap(
            lambda via: children.map(lambda e: Cast(kind, Cast(via, e)) if kind.is_int else e)
        ),
    ]
    if kind.is_int:
        divisors = st.sampled_from([1, 2, 3, 7, 100]).map(lambda value: const(value, kind))
        shifts = st.integers(0, kind.bits - 1).map(lambda value: const(value, kind))
        divisions = st.sampled_from(["floordiv", "floormod", "truncdiv", "truncmod", "div"])
        choices += [
            st.builds(Binary, divisions, children, divisors),
            st.builds(Binary, st.sampled_from(["shl", "shr"]), children, shifts),
            st.builds(Unary, st.just("bitnot"), children),
        ]
    return st.one_of(choices)


def widened(expr: Expr) -> Expr:
    """The same expression for all lanes at once."""
    if isinstance(expr, Const):
        return Broadcast(expr, LANES)
    if isinstance(expr, Load):
        return Load(expr.buffer, (Ramp(const(0), const(1), LANES),))
    if isinstance(expr, Cast):
        return Cast(expr.type.with_lanes(LANES), widened(expr.value))
    return expr.map_children(lambda item: widened(item))  # type: ignore[arg-type]


def evaluated(kind: DType, expr: Expr, arrays: dict[str, Any]) -> tuple[Any, Any]:
    z = Buffer("z", kind, (const(LANES),))
    params = (*buffers(kind), z)
    one = Func("one", params, For(I, const(LANES), Store(z, (I,), expr)))
    lanes = Func("all", params, Store(z, (Ramp(const(0), const(1), LANES),), widened(expr)))
    return interpret(one, arrays)["z"], interpret(lanes, arrays)["z"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_lanes_equal_scalars(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(TYPES))
    expr = data.draw(expressions(kind))
    source = np.random.default_rng(data.draw(st.integers(0, 1000)))
    storage = STORAGE[kind.name]
    if kind.is_float:
        arrays = {name: source.standard_normal(LANES).astype(storage) for name in "ab"}
    else:
        info = np.iinfo(storage)
        arrays = {
            name: source.integers(info.min, info.max, LANES, dtype=storage, endpoint=True) for name in "ab"
        }
    scalars, lanes = evaluated(kind, expr, arrays)
    np.testing.assert_array_equal(scalars, lanes)


def _types() -> list[DType]:
    return [dtype(name) for name in ("f32", "f16", "i8", "u8", "i64")] + [BOOL]


@pytest.mark.parametrize("source", _types(), ids=str)
@pytest.mark.parametrize("target", _types(), ids=str)
def test_casts_of_lanes_equal_casts_of_scalars(source: DType, target: DType) -> None:
    values = "ramp(-2, 3, 4)"
    lanes = value_of(f"{target}x4({source}x4({values}))", f"{target}x4")
    scalars = [value_of(f"{target}({source}({number}))", str(target)) for number in (-2, 1, 4, 7)]
    assert lanes.tolist() == scalars
