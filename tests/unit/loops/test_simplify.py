"""Index arithmetic against brute force, and the forms that the rest of the compiler counts on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.core.types import BOOL, F32, INDEX
from compiler.loops.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Iter,
    Select,
    Seq,
    Store,
    Unary,
    Var,
    const,
    maximum,
    minimum,
)
from compiler.loops.simplify import (
    Simplifier,
    simplify,
    simplify_stmt,
    substitute,
)

X, Y, Z, N = Var("x"), Var("y"), Var("z"), Var("n")
BOUNDS = {"x": (0, 6), "y": (0, 3), "z": (-4, 5)}
POINTS = [
    dict(zip(BOUNDS, values, strict=True))
    for values in itertools.product(*(range(low, high + 1) for low, high in BOUNDS.values()))
]
OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "truncdiv": lambda a, b: abs(a) // b * (1 if a >= 0 else -1),
    "truncmod": lambda a, b: abs(a) % b * (1 if a >= 0 else -1),
    "min": min,
    "max": max,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}


def evaluate(expr: Expr, values: dict[str, int]) -> int:
    if isinstance(expr, Var):
        return values[expr.name]
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Unary):
        value = evaluate(expr.a, values)
        return (not value) if expr.op == "not" else -value
    if isinstance(expr, Select):
        return evaluate(expr.a if evaluate(expr.cond, values) else expr.b, values)
    assert isinstance(expr, Binary)
    return OPERATIONS[expr.op](evaluate(expr.a, values), evaluate(expr.b, values))


def integers(depth: int) -> st.SearchStrategy[Expr]:
    leaf = st.one_of(st.sampled_from([X, Y, Z]), st.integers(-9, 20).map(const))
    if depth == 0:
        return leaf
    below = integers(depth - 1)
    positive = st.sampled_from([1, 2, 3, 4, 6, 8, 12]).map(const)
    return st.one_of(
        leaf,
        st.builds(Binary, st.sampled_from(["add", "sub", "add", "min", "max"]), below, below),
        st.builds(Binary, st.just("mul"), below, st.integers(-4, 12).map(const)),
        st.builds(Binary, st.just("mul"), below, below),
        st.builds(Binary, st.sampled_from(["floordiv", "floormod"]), below, positive),
        st.builds(Binary, st.sampled_from(["floordiv", "floormod"]), below, positive),
        st.builds(Binary, st.sampled_from(["truncdiv", "truncmod"]), below, positive),
        st.builds(lambda a: Unary("neg", a), below),
        st.builds(Select, conditions(depth - 1), below, below),
    )


def conditions(depth: int) -> st.SearchStrategy[Expr]:
    values = integers(max(depth - 1, 0))
    compare = st.builds(Binary, st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), values, values)
    if depth <= 0:
        return compare
    below = conditions(depth - 1)
    return st.one_of(
        compare,
        st.builds(Binary, st.sampled_from(["and", "or"]), below, below),
        st.builds(lambda a: Unary("not", a), below),
    )


@settings(max_examples=600, deadline=None)
@given(integers(4))
def test_integers_keep_their_value_and_stay_in_their_interval(expr: Expr) -> None:
    known = Simplifier(BOUNDS)
    simple = known.simplify(expr)
    low, high = known.interval(expr)
    assert low is not None
    assert high is not None
    for point in POINTS:
        value = evaluate(expr, point)
        assert evaluate(simple, point) == value
        assert low <= value <= high
    assert known.simplify(simple) == Simplifier(BOUNDS).simplify(simple)


@settings(max_examples=400, deadline=None)
@given(conditions(2), integers(3))
def test_integers_keep_their_value_where_a_condition_holds(cond: Expr, expr: Expr) -> None:
    simple = Simplifier(BOUNDS).where(cond).simplify(expr)
    for point in POINTS:
        if evaluate(cond, point):
            assert evaluate(simple, point) == evaluate(expr, point)


@settings(max_examples=400, deadline=None)
@given(conditions(3))
def test_conditions_keep_their_value(cond: Expr) -> None:
    simple = simplify(cond, BOUNDS)
    known = Simplifier(BOUNDS).prove(cond)
    for point in POINTS:
        value = evaluate(cond, point)
        assert bool(evaluate(simple, point)) == bool(value)
        assert known is None or known == bool(value)


@settings(max_examples=300, deadline=None)
@given(integers(3))
def test_simplifying_twice_changes_nothing(expr: Expr) -> None:
    once = simplify(expr, BOUNDS)
    assert simplify(once, BOUNDS) == once


@settings(max_examples=200, deadline=None)
@given(integers(2), integers(2))
def test_sums_do_not_depend_on_the_order_of_writing(a: Expr, b: Expr) -> None:
    assert simplify(Binary("add", a, b), BOUNDS) == simplify(Binary("add", b, a), BOUNDS)


def digits(extent: int, *factors: int) -> tuple[Expr, dict[str, tuple[int, int]]]:
    """The loop index of a split loop, and the bounds of its parts."""
    total, bounds = const(0), {}
    for number, factor in enumerate(factors):
        total = total * factor + Var(f"d{number}")
        bounds[f"d{number}"] = (0, factor - 1)
    return total, bounds


@pytest.mark.parametrize(
    ("expr", "bounds", "expected"),
    [
        ((X * 16 + Y) // 16, {"y": (0, 15)}, X),
        ((X * 16 + Y) % 16, {"y": (0, 15)}, Y),
        ((X * 16 + Y) // 32, {"y": (0, 15)}, X // 2),
        ((X * 16 + Y) % 32, {"y": (0, 15)}, X % 2 * 16 + Y),
        (X // 4 * 4 + X % 4, {}, X),
        (X // 8 * 8 + X // 4 % 2 * 4 + X % 4, {}, X),
        (X // 4 % 2 * 4 + X % 4, {}, X % 8),
        (X // 3 // 5, {}, X // 15),
        (X % 12 // 4, {}, X // 4 % 3),
        (X % 12 % 4, {}, X % 4),
        (X % 7, {"x": (0, 6)}, X),
        ((X + 7) % 7, {"x": (0, 6)}, X),
        (minimum(X, 9), {"x": (0, 6)}, X),
        (maximum(X * 2 - 20, 0), {"x": (0, 6)}, const(0)),
        (X + Y - X, {}, Y),
        (Y * 4 + X, {}, Y * 4 + X),
        (X + Y * 4, {}, Y * 4 + X),
        ((X + N) * 3 - N * 3, {}, X * 3),
        ((X * N + Y) * 2, {}, Y * 2 + Binary("mul", N, X) * 2),
        (((X + (Y + 1) // 3) * 3 + (Y + 1) % 3) % 2, {}, (X + Y + 1) % 2),
        (((X + (Y + 1) // 3) * 3 + (Y + 1) % 3) % 4, {}, (X * 3 + Y + 1) % 4),
        ((X * 16 + Y).lt(48), {"y": (0, 15)}, X.lt(3)),
        ((X * 16 + Y).lt(50), {"x": (0, 3), "y": (0, 15)}, (X * 16 + Y).lt(50)),
        ((X - 1).ge(0), {"x": (0, 6)}, X.ge(1)),
        ((X * 4).le(10), {"x": (0, 6)}, X.lt(3)),
        ((X * 4).eq(10), {}, const(0, BOOL)),
        (Unary("not", X.lt(3)), {}, X.ge(3)),
    ],
)
def test_rules(expr: Expr, bounds: dict[str, tuple[int, int]], expected: Expr) -> None:
    assert simplify(expr, bounds) == expected


def test_fused_then_split_index_comes_back() -> None:
    total, bounds = digits(24, 2, 3, 4)
    assert simplify(total // 12, bounds) == Var("d0")
    assert simplify(total // 4 % 3, bounds) == Var("d1")
    assert simplify(total % 4, bounds) == Var("d2")


def test_interval_of_open_variables_is_open() -> None:
    assert Simplifier().interval(N + 1) == (None, None)
    assert Simplifier().interval(N % 8) == (0, 7)
    assert Simplifier().interval(maximum(N, 3)) == (3, None)
    assert Simplifier(BOUNDS).interval(N - N + X) == (0, 6)


def test_linear_form_gives_coefficients() -> None:
    form = Simplifier().linear((X * 3 + Y) * 4 - 5)
    assert (form.coefficient("x"), form.coefficient("y"), form.coefficient("z"), form.constant) == (
        12,
        4,
        0,
        -5,
    )


def test_loaded_data_is_not_assumed_to_be_small() -> None:
    data = Buffer("d", INDEX, (const(4),))
    value = Binary("floordiv", data[X] * 16 + Y, const(16))
    assert simplify(value, {"y": (0, 15)}) == Binary("floordiv", data[X] * 16 + Y, const(16))


def test_floats_are_left_alone() -> None:
    x = Buffer("a", F32, (const(8),))
    value = x[X + 0] * 1.0 + 0.0
    assert simplify(value, BOUNDS) == value
    assert simplify(x[(X * 2) // 2] * 2.0) == x[X] * 2.0


def test_select_under_a_known_condition_takes_its_side() -> None:
    x = Buffer("a", F32, (const(8),))
    value = Select(X.ge(0), x[X], const(0.0, F32))
    assert simplify(value, BOUNDS) == x[X]


def test_equal_sums_simplify_alike() -> None:
    assert simplify(X + Y) == simplify(Y + X)
    assert simplify((X * 8 + Y) // 8, BOUNDS) == X
    assert simplify(X) != simplify(Y)


def test_substitute_renames_declarations_too() -> None:
    out = Buffer("o", F32, (const(8),))
    loop = For(X, const(8), Store(out, (X,), const(1.0, F32)))
    assert substitute(loop, {"x": Z}) == For(Z, const(8), Store(out, (Z,), const(1.0, F32)))
    assert substitute(loop, {"other": Z}) is loop


def test_statements_use_the_bounds_of_their_loops() -> None:
    out = Buffer("o", F32, (const(32),))
    store = Store(out, ((X * 4 + Y) % 64,), const(1.0, F32))
    loop = For(X, const(8), For(Y, const(4), If((X * 4 + Y).lt(32), store)))
    assert simplify_stmt(loop) == For(
        X, const(8), For(Y, const(4), Store(out, (X * 4 + Y,), const(1.0, F32)))
    )
    never = For(X, const(8), If(X.lt(0), store))
    assert simplify_stmt(never) == Seq(())


def test_branches_use_what_their_condition_says() -> None:
    out = Buffer("o", F32, (const(32),))

    def inside(index: Expr, other: Expr) -> For:
        branch = If(X.lt(4), Store(out, (index,), const(1.0, F32)), Store(out, (other,), const(0.0, F32)))
        return For(X, const(8), branch)

    assert simplify_stmt(inside(X % 4 + X // 4, X % 4)) == inside(X, X % 4)


def test_unit_loops_and_predicates_of_blocks_go() -> None:
    out = Buffer("o", F32, (const(8),))
    value = Var("vx")
    block = Block(
        "b",
        (Iter(value, const(8), "spatial", X + Y),),
        (),
        (),
        Store(out, (value,), const(1.0, F32)),
        None,
        (X + Y).lt(8),
    )
    loop = For(X, const(8), For(Y, const(1), block))
    done = simplify_stmt(loop, drop_unit_loops=True)
    assert isinstance(done, For)
    assert isinstance(done.body, Block)
    assert done.body.predicate is None
    assert done.body.iters[0].binding == X
    assert simplify_stmt(done) is done
