"""The text form: every node survives the round trip, and what is wrong is named with its place."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.core.diagnostics import BadInputError, InternalError
from compiler.core.types import BOOL, F16, F32, F64, I8, I32, I64, INDEX, SCALARS, U8, DType, dtype
from compiler.loops import ir
from compiler.loops.build import Builder
from compiler.loops.ir import (
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    Let,
    Load,
    Region,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    const,
)
from compiler.loops.text import parse_expr, parse_func, parse_funcs, print_expr, print_func, print_stmt

I, J, N = Var("i"), Var("j"), Var("n", I32)  # noqa: E741
B = Var("b", BOOL)
X = Buffer("x", F32, (const(8), const(8)))
V = Buffer("v", dtype("f32", 8), (const(4),), "register")
SCALAR = Buffer("s", F32, ())


def round_trip(expr: Expr) -> str:
    text = print_expr(expr)
    assert parse_expr(text, (I, J, N, B), (X, V, SCALAR)) == expr, text
    return text


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Binary("add", I, Binary("mul", J, const(4))), "i + j * 4"),
        (Binary("mul", Binary("add", I, J), const(4)), "(i + j) * 4"),
        (Binary("sub", I, Binary("sub", J, const(1))), "i - (j - 1)"),
        (Binary("sub", Binary("sub", I, J), const(1)), "i - j - 1"),
        (Binary("floordiv", I, const(4)), "i // 4"),
        (Binary("floormod", I, const(4)), "i % 4"),
        (Binary("div", I, J), "i / j"),
        (Binary("truncdiv", I, J), "truncdiv(i, j)"),
        (Binary("min", I, Binary("max", J, const(1))), "min(i, max(j, 1))"),
        (Binary("pow", I, Binary("pow", J, const(2))), "i ** j ** 2"),
        (Binary("pow", Binary("pow", I, J), const(2)), "(i ** j) ** 2"),
        (Binary("pow", const(-2), const(-2)), "(-2) ** (-2)"),
        (Unary("neg", Binary("pow", I, J)), "-i ** j"),
        (Binary("pow", Unary("neg", I), J), "(-i) ** j"),
        (Unary("neg", const(1)), "-(1)"),
        (Unary("neg", Binary("pow", const(2), I)), "-(2 ** i)"),
        (Unary("neg", const(-1)), "-(-1)"),
        (Unary("neg", Unary("neg", I)), "--i"),
        (Binary("sub", I, const(-1)), "i - -1"),
        (Unary("not", Binary("and", B, B)), "not (b and b)"),
        (Binary("and", Unary("not", B), B), "not b and b"),
        (Binary("or", Binary("and", B, B), B), "b and b or b"),
        (Binary("and", B, Binary("or", B, B)), "b and (b or b)"),
        (Binary("and", Binary("lt", I, J), Binary("ge", J, const(0))), "i < j and j >= 0"),
        (Binary("eq", Binary("lt", I, J), B), "(i < j) == b"),
        (Unary("not", Binary("eq", I, J)), "not i == j"),
        (Binary("bitor", I, Binary("bitand", J, const(3))), "i | j & 3"),
        (Binary("shl", I, Binary("add", J, const(1))), "i << j + 1"),
        (Binary("bitxor", Unary("bitnot", I), J), "~i ^ j"),
        (Select(B, I, J), "select(b, i, j)"),
        (Cast(F32, I), "f32(i)"),
        (Cast(dtype("i8", 4), ir.Broadcast(I, 4)), "i8x4(broadcast(i, 4))"),
        (Load(X, (I, J)), "x[i, j]"),
        (Load(SCALAR, ()), "s[]"),
        (Load(SCALAR, (), B, const(0, F32)), "s[where b else 0.0]"),
        (Load(X, (I, J), B), "x[i, j where b]"),
        (Load(X, (I, J), B, const(-0.0, F32)), "x[i, j where b else -0.0]"),
        (Load(X, (I, ir.Ramp(J, const(1), 4))), "x[i, ramp(j, 1, 4)]"),
        (ir.AddressOf(X, (I, J)), "&x[i, j]"),
        (ir.Shuffle((Load(V, (I,)), Load(V, (J,))), (0, 9, 3)), "shuffle([v[i], v[j]], [0, 9, 3])"),
        (ir.ReduceLanes("add", Load(V, (I,))), "reduce(add, v[i])"),
        (Call("exp", (Load(X, (I, J)),), F32), "exp(x[i, j])"),
        (Call("isnan", (Load(X, (I, J)),), BOOL), "isnan:bool(x[i, j])"),
        (Call("amx.tilerelease", (), I32), "amx.tilerelease:i32()"),
        (Call("min", (I, J), I64), "`min`(i, j)"),
        (Call("f32", (I,), F32), "`f32`:f32(i)"),
        (Call("weird name", (I,), I64), "`weird name`(i)"),
    ],
)
def test_expressions(expr: Expr, text: str) -> None:
    assert round_trip(expr) == text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (5, INDEX, "5"), (-5, INDEX, "-5"), (5, I32, "5:i32"), (255, U8, "255:u8"), (-8, I8, "-8:i8"),
        (1.0, F32, "1.0"), (0.1, F32, "0.1"), (1e-45, F32, "1e-45"), (-0.0, F32, "-0.0"),
        (0.5, F64, "0.5:f64"),
        (math.inf, F32, "inf"), (-math.inf, F16, "-inf:f16"), (math.nan, F32, "nan"), (True, BOOL, "true"),
        (2**63 - 1, INDEX, "9223372036854775807"), (-(2**63), INDEX, "-9223372036854775808"),
        (5e-324, F64, "5e-324:f64"), (3.4028234663852886e38, F32, "3.4028234663852886e+38"),
    ],
)  # fmt: skip
def test_literals(value: Any, kind: DType, text: str) -> None:
    literal = Const(value, kind)
    assert print_expr(literal) == text
    assert parse_expr(text) == literal
    assert print_expr(parse_expr(text)) == text


@given(
    st.floats(allow_nan=True, allow_infinity=True), st.sampled_from(["f64", "f32", "f16", "bf16", "f8e4m3"])
)
def test_every_float_round_trips(value: float, kind: str) -> None:
    literal = Const(value, dtype(kind))
    assert parse_expr(print_expr(literal)) == literal


LEAVES = st.sampled_from([I, J, const(0), const(-3), const(7)])


def grown(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    infix = sorted(ir.ARITHMETIC | ir.BITWISE | ir.COMPARISONS | ir.LOGICAL)
    return st.one_of(
        st.builds(Binary, st.sampled_from(infix), children, children),
        st.builds(Unary, st.sampled_from(sorted(ir.UNARY)), children),
        st.builds(Select, children, children, children),
        st.builds(lambda a, b: Load(X, (a, b)), children, children),
        st.builds(lambda a, b, m: Load(X, (a, b), m, a), children, children, children),
        st.builds(lambda a: Cast(F32, a), children),
        st.builds(lambda a: ir.Ramp(a, const(2), 8), children),
        st.builds(lambda a: ir.Broadcast(a, 8), children),
        st.builds(lambda a: Call("f", (a,), I64), children),
    )


@settings(max_examples=400, deadline=None)
@given(st.recursive(LEAVES, grown, max_leaves=30))
def test_any_tree_of_expressions_round_trips(expr: Expr) -> None:
    round_trip(expr)


# ---------------------------------------------------------------- statements


def one() -> Stmt:
    return Store(X, (I, J), const(1, F32))


def statements() -> list[Stmt]:
    t = Buffer("t", F32, (const(4),), "shared", (const(2),), const(1), "x", 128, "some.map")
    let = Let(Var("a", F32), const(1, F32), Store(X, (I, J), Var("a", F32)))
    region = Region(X, (I, const(0)), (const(1), const(4)))
    return [
        one(),
        Store(X, (I, ir.Ramp(J, const(1), 4)), ir.Broadcast(const(0, F32), 4), ir.Broadcast(B, 4)),
        Store(X, (I, J), Binary("add", Load(X, (I, J)), const(1, F32))),
        Store(X, (I, J), Binary("add", const(1, F32), Load(X, (I, J)))),
        Store(X, (I, J), Binary("add", Load(X, (J, I)), const(1, F32))),
        Seq(()),
        Seq((one(),)),
        Seq((one(), one())),
        Seq((Seq((one(), one())), one())),
        Seq((one(), Seq((one(), Seq(()))))),
        Seq((Seq((Seq((let,)),)),)),
        let,
        Seq((let, one())),
        Seq((one(), let)),
        Let(Var("a", I32), const(1, I32), Seq(())),
        Let(Var("a", I32), const(1, I32), Seq((one(),))),
        ir.Alloc(t, let),
        Seq((ir.Alloc(t, let), let)),
        For(Var("k"), const(4), one()),
        For(Var("k", I32), const(4, I32), one(), ForKind.PARALLEL),
        For(Var("k"), Binary("add", I, J), one(), ForKind.BOUND, "threadIdx.x"),
        For(Var("k"), I, one(), ForKind.UNROLLED, "odd tag", (("pragma", 4), ("why", 'say "so"\n'))),
        For(Var("k"), I, one(), ForKind.VECTORIZED, None, (("a", None), ("b", (1, -2.5, ("x",), ())))),
        For(Var("k"), I, one(), annotations=(("c", F16), ("d", False))),
        ir.If(B, one()),
        ir.If(B, one(), one()),
        ir.If(B, one(), ir.If(B, one(), ir.If(B, one(), one()))),
        ir.If(B, ir.If(B, one()), one()),
        ir.AtomicUpdate("add", X, (I, J), const(1, F32)),
        ir.AtomicUpdate("and", X, (I, J), const(1, F32)),
        ir.LastBlock(X, (I, J), 4, Seq((one(), let))),
        ir.Evaluate(Call("f", (I,), I64)),
        ir.Evaluate(Call("barrier", (I,), I64)),
        ir.Evaluate(Call("let", (), I64)),
        ir.Evaluate(I),
        ir.Evaluate(Cast(F32, I)),
        ir.Evaluate(Binary("min", I, J)),
        ir.Scoped(one(), Seq((one(), let)), Seq(())),
        ir.Barrier("shared"),
        ir.AsyncCopy(region, region),
        ir.AsyncCopy(region, region, 3),
        ir.AsyncCopy(region, region, where=I.lt(3)),
        ir.AsyncCopy(region, region, 2, I.lt(3)),
        ir.AsyncCommit(),
        ir.AsyncCommit(2),
        ir.AsyncWait(1, 2),
        block(),
        block(init=Seq((one(), let)), predicate=Binary("lt", I, J)),
        Seq((block(body=Seq(())), one())),
        block(annotations=(("constant-only", True), ("where", "x"))),
    ]  # fmt: skip


def block(**changes: Any) -> Block:
    vi, vj = Iter(Var("vi"), const(8), "spatial", I), Iter(Var("vj", I32), const(8, I32), "reduce", N)
    reads = (Region(X, (I, J), (const(1), const(1))), Region(X, (I, J), (const(2), N)))
    plain = Block("work", (vi, vj), reads, (Region(SCALAR, (), ()),), one())
    return plain.replace(**changes)


def func_of(body: Stmt) -> Func:
    loops = For(I, const(8), For(J, const(8), Let(N, const(1, I32), Let(B, const(1, BOOL), body))))
    return Func("f", (X,), loops, (V, SCALAR), 1)


@pytest.mark.parametrize("number", range(len(statements())))
def test_statements(number: int) -> None:
    func = func_of(statements()[number])
    text = print_func(func)
    assert parse_func(text) == func, text
    assert print_func(parse_func(text)) == text


def test_every_kind_of_node_is_covered() -> None:
    seen = {
        type(item) for number in range(len(statements())) for item in func_of(statements()[number]).walk()
    }
    kinds = {item for item in vars(ir).values() if isinstance(item, type) and issubclass(item, Stmt)}
    assert kinds - seen - {Stmt} == set()


def test_functions_with_everything() -> None:
    n = Var("n")
    dims = (ir.Dim(n, 1, 512, 8), ir.Dim(Var("m", I32), -1, 4))
    names = ["block", "where", "true", "a.b", "odd name", "f32", "i8", "max", "body", "in"]
    buffers = tuple(Buffer(name, dtype(kind), (n,)) for name, kind in zip(names, SCALARS, strict=False))
    reads = ir.seq(*(Store(item, (const(0),), Load(item, (const(1),))) for item in buffers))
    func = Func("for", buffers, reads, (Buffer("z", F32, ()),), 2, dims, (("k", 1), ("odd key", (True,))))
    assert parse_func(print_func(func)) == func
    assert parse_funcs(print_func(func) + "\n# and again\n\n" + print_func(func)) == (func, func)


@pytest.mark.parametrize(
    "word", sorted({*dir(ForKind), "for", "if", "else", "init", "reads", "local", "pass", "or"})
)
def test_any_word_can_be_a_name(word: str) -> None:
    buffer, var = Buffer(word, F32, (const(4),)), Var(word)
    body = Seq((Store(buffer, (var,), Load(buffer, (var,))), ir.Evaluate(Call(word, (var,), I64))))
    vi = Iter(Var("q"), const(4), "spatial", var)
    inner = Block(word, (vi,), (Region(buffer, (var,), (const(1),)),), (), body, body, Binary("lt", var, var))
    func = Func(word, (buffer,), For(var, const(4), inner, ForKind.BOUND, word, ((word, word),)), (), 1)
    assert parse_func(print_func(func)) == func


def test_comments_and_free_line_breaks() -> None:
    text = """
# a comment
func f(  # one
    x: f32[4],
    y: f32[4]   # two

) -> (z: f32[4])

   # between
  for i in 0..4
      z[
        i
      ] = x[i] * (y[i]
        + 1.0)
      # after
"""
    func = parse_func(text)
    assert print_func(func) == (
        "func f(x: f32[4], y: f32[4]) -> (z: f32[4])\n  for i in 0..4\n    z[i] = x[i] * (y[i] + 1.0)\n"
    )


# ---------------------------------------------------------------- errors

HEAD = "func f(x: f32[4]) -> (y: f32[4])\n  for i in 0..4\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", 1, 1, "expected one function"),
        ("fun f()", 1, 1, "expected `func`, found `fun`"),
        ("func f(x f32[4]) -> ()", 1, 10, "expected `:`, found `f32`"),
        ("func f(x: float[4]) -> ()", 1, 11, "expected an element type such as f32 or f32x16, found `float`"),
        ("func f(x: f32[4]) -> ()", 1, 24, "expected an indented statement, found the end of the text"),
        (
            "func f(x: f32[4]) -> ()\nfor i in 0..4",
            2,
            1,
            "expected a statement indented by more than 0 spaces",
        ),
        (HEAD, 2, 16, "expected an indented statement, found the end of the text"),
        (HEAD + "    y[i] = x[k]\n", 3, 14, "unknown variable `k`"),
        (HEAD + "    y[i] = z[i]\n", 3, 12, "unknown buffer `z`"),
        (HEAD + "    y[i] = x[i\n", 3, 15, "expected `,` or `]`, found the end of the text"),
        (HEAD + "    y[i] x[i]\n", 3, 10, "expected `=` or `+=`, found `x`"),
        (HEAD + "    y[i] = x[i] +\n", 3, 18, "expected an expression, found the end of the text"),
        (HEAD + "    y[i] = x[i] x[i]\n", 3, 17, "expected the end of the line, found `x`"),
        (HEAD + "    y[i] = $\n", 3, 12, "unexpected character '$'"),
        (HEAD + "   y[i] = x[i]\n  \n    y[i] = x[i]\n", 5, 5, "this indentation matches no enclosing block"),
        (HEAD + "    y[i] = x[i] < x[i] < x[i]\n", 3, 24, "comparisons do not chain"),
        (HEAD + "    mbarrier init\n", 3, 5, "`mbarrier` is reserved"),
        (HEAD + "    role producer\n", 3, 5, "`role` is reserved"),
        (HEAD + "    y[i where true else 1.0] = x[i]\n", 3, 28, "a store has no else value"),
        (HEAD + "    f()\n", 3, 7, "a call without arguments names its type"),
        (HEAD + "    x[i] * 2.0\n", 3, 10, "expected `=` or `+=`"),
        (HEAD + "    select(i, i)\n", 3, 5, "expected a statement"),
        (HEAD + "    y[i] = select(i, i)\n", 3, 23, "select takes condition, then, else"),
        (HEAD + "    y[i] = 1.5:i32\n", 3, 16, "1.5 is no i32"),
        (HEAD + "    let a: f32 = 1.0\n", 3, 21, "expected a statement that uses the binding above"),
        (HEAD + "    for j in 1..4\n      pass\n", 3, 14, "loops start at 0"),
        (HEAD + "    block b(v: other 4 = i)\n      pass\n", 3, 16, "expected `spatial` or `reduce`"),
        (HEAD + "    scoped\n      setup\n        pass\n", 5, 13, "expected `body`"),
        (HEAD + '    for j in 0..4 {a = "\\x"}\n      pass\n', 3, 24, "this string is not valid JSON"),
        ("func f() -> () {a = [1]}\n  pass", 1, 21, "expected a number, a string"),
    ],
)
def test_bad_text_is_refused_with_its_place(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_func(text, "k.loops")
    assert said in caught.value.what
    if text:
        assert caught.value.where == f"k.loops, line {line}, column {column}"


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(BadInputError, match="did you mean 'column'"):
        parse_func("func f() -> (y: f32[4])\n  for column in 0..4\n    y[colum] = 1.0\n")


@pytest.mark.parametrize("deep", ["(" * 5000 + "1" + ")" * 5000, "-(" * 3000 + "1" + ")" * 3000])
def test_hostile_nesting_is_refused(deep: str) -> None:
    with pytest.raises(BadInputError, match="nested too deeply"):
        parse_func(f"func f() -> (y: f32[4])\n  y[0] = {deep}\n")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_text_is_refused_or_read_but_never_crashes(data: st.DataObject) -> None:
    text = print_func(func_of(data.draw(st.sampled_from(statements()))))
    at = data.draw(st.integers(0, len(text)))
    much = data.draw(st.integers(0, 8))
    put = data.draw(st.text('()[]{}:=+-*/.,`"\\ \n0123456789abx#&<>', max_size=4))
    try:
        parse_func(text[:at] + put + text[at + much :])
    except BadInputError:
        return  # a TkError with its place; anything else fails the test


def test_what_has_no_text_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="no text form"):
        print_expr(Var("a`b"))
    with pytest.raises(InternalError, match="no text form"):
        print_stmt(For(I, const(4), one(), annotations=(("a", [1]),)))  # type: ignore[arg-type]


def test_a_large_text_is_read_quickly() -> None:
    b = Builder("conv")
    x, w = b.input("x", (1, 8, 6, 6)), b.constant("w", (4, 8, 3, 3))
    y = b.reduce(
        "y", (1, 4, 4, 4), (8, 3, 3), lambda n, o, h, v, c, k, m: x[n, c, h + k, v + m] * w[o, c, k, m]
    )
    text = print_func(b.finish([y])) * 300
    started = time.process_time()
    assert len(parse_funcs(text)) == 300
    assert time.process_time() - started < 2 * len(text) / 1e6 + 0.5
