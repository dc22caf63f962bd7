"""The interpreter: what programs mean, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.core.diagnostics import BadInputError
from compiler.core.types import F32, I64, parse_dtype
from compiler.loops import interp_math
from compiler.loops.build import Builder
from compiler.loops.interp import ProgramError, interpret
from compiler.loops.interp_emit import compile_func
from compiler.loops.ir import Buffer, Const, Expr, For, Func, Store, Var, binary, const
from compiler.loops.text import parse_func

Arrays = dict[str, Any]


def go(text: str, **inputs: Any) -> Arrays:
    return interpret(parse_func(text), inputs)


def value_of(expression: str, kind: str = "f32", **inputs: Any) -> Any:
    """One value of a type, computed by the interpreter."""
    params = ", ".join(f"{name}: {_kind_of(item)}[{item.size}]" for name, item in inputs.items())
    element = parse_dtype(kind)
    if element.lanes == 1:
        text = f"func f({params}) -> (y: {kind}[1])\n  y[0] = {expression}\n"
    else:
        width = element.lanes
        text = (
            f"func f({params}) -> (y: {element.scalar}[{width}])\n  y[ramp(0, 1, {width})] = {expression}\n"
        )
    result = go(text, **inputs)["y"]
    return result[0] if element.lanes == 1 else result


def _kind_of(array: Any) -> str:
    names = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64"}
    names |= {"int32": "i32", "int8": "i8", "uint8": "u8", "uint32": "u32", "bool": "bool"}
    return names[str(array.dtype)]


# ---------------------------------------------------------------- arithmetic


@pytest.mark.parametrize(
    ("expression", "kind", "expected"),
    [
        ("-7 // 2", "i64", -4), ("-7 % 2", "i64", 1), ("7 % -2", "i64", -1),
        ("truncdiv(-7, 2)", "i64", -3), ("truncmod(-7, 2)", "i64", -1), ("-7 / 2", "i64", -3),
        ("127:i8 + 1:i8", "i8", -128), ("-128:i8 - 1:i8", "i8", 127), ("100:i8 * 3:i8", "i8", 44),
        ("255:u8 + 1:u8", "u8", 0), ("0:u8 - 1:u8", "u8", 255), ("7:i4 + 1:i4", "i4", -8),
        ("15:u4 + 2:u4", "u4", 1), ("2147483647:i32 + 1:i32", "i32", -(2**31)),
        ("9223372036854775807 + 1", "i64", -(2**63)), ("-(-128:i8)", "i8", -128),
        ("1:i32 << 31:i32", "i32", -(2**31)), ("-8 >> 1", "i64", -4), ("200:u8 >> 3:u8", "u8", 25),
        ("~5", "i64", -6), ("~5:u8", "u8", 250), ("12 & 10", "i64", 8),
        ("12 | 3", "i64", 15), ("12 ^ 10", "i64", 6),
        ("3 ** 4", "i64", 81), ("min(3, -2)", "i64", -2), ("max(3:u8, 200:u8)", "u8", 200),
        ("i8(300)", "i8", 44), ("u8(-1)", "u8", 255), ("i64(-2.9)", "i64", -2), ("i64(2.9)", "i64", 2),
        ("i64(true)", "i64", 1), ("u8(255.9)", "u8", 255), ("i4(9)", "i4", -7),
        ("2.0 ** 0.5", "f32", np.float32(math.sqrt(2))), ("-7.0 // 2.0", "f32", -4.0),
        ("-7.0 % 2.0", "f32", 1.0),
        ("truncmod(-7.0, 2.0)", "f32", -1.0), ("truncdiv(-7.0, 2.0)", "f32", -3.0),
        ("1.0 / 0.0", "f32", np.inf), ("1.0 / -0.0", "f32", -np.inf), ("f32(3)", "f32", 3.0),
        ("16777216.0 + 1.0", "f32", 16777216.0), ("16777216.0:f64 + 1.0:f64", "f64", 16777217.0),
        ("f32(0.1:f64)", "f32", np.float32(0.1)), ("select(1 < 2, 5, 6)", "i64", 5),
        ("-0.0 * 1.0", "f32", -0.0),
        ("fma(2.0, 3.0, 4.0)", "f32", 10.0), ("round(2.5)", "f32", 2.0), ("round(-3.5)", "f32", -4.0),
        ("trunc(-2.7)", "f32", -2.0), ("floor(-2.1)", "f32", -3.0), ("ceil(-2.9)", "f32", -2.0),
        ("abs(-3:i8)", "i8", 3), ("abs(-128:i8)", "i8", -128), ("sign(-3.0)", "f32", -1.0),
        ("bitcast:i32(1.0)", "i32", 0x3F800000), ("bitcast:f32(1073741824:i32)", "f32", 2.0),
    ],
)  # fmt: skip
def test_scalars(expression: str, kind: str, expected: Any) -> None:
    got = value_of(expression, kind)
    assert got == expected
    assert np.signbit(got) == np.signbit(expected)


@pytest.mark.parametrize(
    "condition", ["1.0 < nan", "nan == nan", "isnan:bool(1.0)", "isinf:bool(nan)", "not true"]
)
def test_false_conditions(condition: str) -> None:
    assert value_of(condition, "bool") == False  # noqa: E712 - a numpy bool


@pytest.mark.parametrize("expression", ["max(nan, 1.0)", "max(1.0, nan)", "min(nan, 1.0)", "min(1.0, nan)"])
def test_nan_is_kept_by_min_and_max(expression: str) -> None:
    assert math.isnan(value_of(expression))
    lanes = expression.replace("nan", "broadcast(nan, 4)").replace("1.0", "broadcast(1.0, 4)")
    assert np.isnan(value_of(lanes, "f32x4")).all()


MATH = {
    "exp": math.exp, "log": math.log, "tanh": math.tanh, "erf": math.erf, "sqrt": math.sqrt, "sin": math.sin,
    "cos": math.cos, "rsqrt": lambda x: 1 / math.sqrt(x), "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "log1p": math.log1p, "expm1": math.expm1, "exp2": lambda x: 2**x, "atan": math.atan, "sinh": math.sinh,
    "erfc": math.erfc, "softplus": lambda x: math.log1p(math.exp(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MATH))
def test_math_functions_are_rounded_exactly(name: str) -> None:
    x = np.float32(0.7310586)
    assert value_of(f"{name}(x[0])", x=np.array([x])) == np.float32(MATH[name](float(x)))
    lanes = value_of(f"{name}(x[ramp(0, 1, 4)])", "f32x4", x=np.array([x, 1, 2, 3], np.float32))
    expected = [np.float32(MATH[name](float(item))) for item in (x, 1, 2, 3)]
    np.testing.assert_allclose(lanes, expected, rtol=1.2e-7)


def test_every_function_has_a_vector_form() -> None:
    names = interp_math.FLOAT_FUNCTIONS
    two, three = {"pow", "atan2", "fmod", "copysign", "hypot", "min", "max"}, {"fma"}
    for name in names:
        count = 3 if name in three else 2 if name in two else 1
        function = interp_math.function(name, (F32,) * count, F32)
        assert function is not None
        vector = np.array([1.25, 1.75] if name == "acosh" else [0.25, 0.75], np.float32)
        scalar = [function(*([item] * count)) for item in vector]
        np.testing.assert_array_equal(function(*([vector] * count)), np.array(scalar))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f8e4m3", "f8e5m2"])
def test_narrow_floats_compute_in_f32_and_round_at_the_store(kind: str) -> None:
    storage = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn}
    narrow = storage.get(kind, ml_dtypes.float8_e5m2)
    text = f"""
func f(x: {kind}[2]) -> (y: {kind}[1], z: f32[1], c: f32[1])
  y[0] = x[0] * x[1] + x[1]
  z[0] = f32(x[0] * x[1] + x[1])
  c[0] = f32({kind}(x[0] * x[1]) + x[1])
"""
    x = np.array([1.125, 1.75], np.float32).astype(narrow)
    wide = x.astype(np.float32)
    got = go(text, x=x)
    assert got["y"][0] == (wide[0] * wide[1] + wide[1]).astype(narrow)
    assert got["z"][0] == wide[0] * wide[1] + wide[1]
    assert got["c"][0] == (wide[0] * wide[1]).astype(narrow).astype(np.float32) + wide[1]


def test_long_chains_of_one_operation() -> None:
    chain: Expr = Const(1.0, F32)
    for _ in range(250):
        chain = binary("add", chain, Const(1.0, F32))
    y = Buffer("y", F32, (const(1),))
    assert interpret(Func("f", (y,), Store(y, (const(0),), chain)), {})["y"][0] == 251


# ---------------------------------------------------------------- vectors


def test_vectors() -> None:
    x = np.arange(8, dtype=np.float32)
    assert value_of("x[ramp(1, 2, 3)] * broadcast(2.0, 3)", "f32x3", x=x).tolist() == [2, 6, 10]
    assert value_of("x[ramp(7, -1, 8)]", "f32x8", x=x).tolist() == list(range(7, -1, -1))
    assert value_of("shuffle([x[ramp(0, 1, 4)], x[ramp(4, 1, 4)]], [7, 0, 4])", "f32x3", x=x).tolist() == [
        7,
        0,
        4,
    ]
    assert value_of("shuffle([x[ramp(0, 1, 4)]], [2])", x=x) == 2
    assert value_of("reduce(max, x[ramp(0, 1, 8)])", x=x) == 7
    assert value_of("reduce(mul, i8x4(ramp(3, 1, 4)))", "i8", x=x) == (3 * 4 * 5 * 6 + 128) % 256 - 128
    assert value_of("i64x4(x[ramp(0, 1, 4)]) * ramp(0, 3, 4)", "i64x4", x=x).tolist() == [0, 3, 12, 27]
    picked = value_of("select(ramp(0, 1, 4) < broadcast(2, 4), ramp(0, 1, 4), -ramp(0, 1, 4))", "i64x4")
    assert picked.tolist() == [0, 1, -2, -3]
    assert value_of("i4x4(ramp(6, 1, 4))", "i4x4").tolist() == [6, 7, -8, -7]


def test_lanes_that_are_left_out_are_not_accessed() -> None:
    x = np.arange(4, dtype=np.float32)
    inside = "ramp(0, 1, 8) < broadcast(4, 8)"
    masked = f"x[ramp(0, 1, 8) where {inside} else broadcast(9.0, 8)]"
    assert value_of(masked, "f32x8", x=x).tolist() == [0, 1, 2, 3, 9, 9, 9, 9]
    chosen = f"select({inside}, x[ramp(0, 1, 8)], broadcast(9.0, 8))"
    assert value_of(chosen, "f32x8", x=x).tolist() == [0, 1, 2, 3, 9, 9, 9, 9]
    assert np.isnan(value_of(f"x[ramp(0, 1, 8) where {inside}]", "f32x8", x=x)[4:]).all()
    assert value_of("x[9 where false else 7.0]", x=x) == 7
    assert value_of("select(false, x[9], 7.0)", x=x) == 7
    with pytest.raises(ProgramError, match="out of bounds"):
        value_of("x[ramp(0, 1, 8)]", "f32x8", x=x)


def test_short_circuits() -> None:
    x = np.zeros(4, np.float32)
    assert value_of("9 < 4 and x[9] > 0.0", "bool", x=x) == False  # noqa: E712
    assert value_of("9 > 4 or x[9] > 0.0", "bool", x=x) == True  # noqa: E712


def test_masked_stores_leave_the_other_lanes_alone() -> None:
    text = """
func f(x: f32[8]) -> (y: f32[8])
  y[ramp(0, 1, 8)] = broadcast(5.0, 8)
  y[ramp(0, 1, 8) where ramp(0, 1, 8) < broadcast(3, 8)] = x[ramp(0, 1, 8)]
  y[7 where false] = 1.0
  y[6 where true] = 1.0
"""
    assert go(text, x=np.arange(8, dtype=np.float32))["y"].tolist() == [0, 1, 2, 5, 5, 5, 1, 5]


def test_buffers_of_vectors() -> None:
    text = """
func f(x: f32[12]) -> (y: f32[12])
  alloc r: f32x4[3] @register
  for i in 0..3 unrolled
    r[i] = x[ramp(i * 4, 1, 4)]
  r[1] += broadcast(10.0, 4)
  let all: f32x12 = r[ramp(0, 1, 3)]
  y[ramp(0, 1, 12)] = all
"""
    got = go(text, x=np.arange(12, dtype=np.float32))["y"]
    assert got.tolist() == [0, 1, 2, 3, 14, 15, 16, 17, 8, 9, 10, 11]


# ---------------------------------------------------------------- memory


def test_memory_starts_poisoned() -> None:
    text = """
func f() -> (y: f32[2], n: i32[2], s: f32[1])
  alloc t: f32[4]
  y[0] = 1.0
  s[0] = max(t[1], 0.0)
"""
    got = go(text)
    assert got["y"][0] == 1
    assert np.isnan(got["y"][1])
    assert (got["n"].view(np.uint8) == 0xA5).all()
    assert np.isnan(got["s"][0])


def test_each_iteration_gets_fresh_poison() -> None:
    text = """
func f() -> (y: f32[3])
  for i in 0..3
    alloc t: f32[1]
    y[i] = t[0]
    t[0] = 1.0
"""
    assert np.isnan(go(text)["y"]).all()


def test_outputs_can_be_given_a_first_content() -> None:
    text = "func f(x: f32[1]) -> (y: f32[2])\n  y[0] += x[0]\n"
    got = go(text, x=np.ones(1, np.float32), y=np.array([2, 3], np.float32))
    assert got["y"].tolist() == [3, 3]


@pytest.mark.parametrize("index", ["4", "-1", "i", "i * 3 - 3", "n[0]"])
def test_out_of_bounds_names_buffer_index_and_place(index: str) -> None:
    text = f"func f(x: f32[4], n: i64[1]) -> (y: f32[8])\n  for i in 0..8\n    y[i] = x[{index}]\n"
    with pytest.raises(ProgramError, match="buffer `x` is accessed out of bounds") as caught:
        go(text, x=np.zeros(4, np.float32), n=np.array([-7], np.int64))
    assert "index 0 is" in caught.value.why
    assert "y[i] = x[" in caught.value.where


def test_each_dimension_is_checked_by_itself() -> None:
    with pytest.raises(ProgramError, match="out of bounds"):
        go("func f(x: f32[4, 4]) -> (y: f32[1])\n  y[0] = x[0, 5]\n", x=np.zeros((4, 4), np.float32))


def test_strides_offset_and_aliases() -> None:
    text = """
func f(x: f32[2, 3]) -> (y: f32[2, 3])
  local whole: f32[2, 8]
  local part: f32[2, 3] strides [8, 2] offset 1 alias_of whole
  local bits: i32[16] alias_of whole
  for i in 0..2
    for j in 0..8
      whole[i, j] = 0.0
  for k in 0..2
    for m in 0..3
      part[k, m] = x[k, m]
  bits[0] = 1073741824:i32
  for p in 0..2
    for q in 0..3
      y[p, q] = whole[p, q * 2 + 1] + whole[0, 0]
"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(go(text, x=x)["y"], x + 2)


def test_an_alias_fits_into_its_memory() -> None:
    text = "func f() -> (y: f32[1])\n  local a: f32[4]\n  local b: f32[5] alias_of a\n  y[0] = b[0]\n"
    with pytest.raises(ProgramError, match="does not fit into `a`"):
        go(text)


def test_packed_integers() -> None:
    text = """
func f(x: u4[5]) -> (y: u4[5], bytes: u8[3], s: i4[4])
  local packed: u4[6]
  local raw: u8[3] alias_of packed
  for i in 0..5
    packed[i] = x[i]
    y[i] = x[i]
  packed[5] = 0:u4
  for j in 0..3
    bytes[j] = raw[j]
  s[ramp(0, 1, 4)] = i4x4(x[ramp(0, 1, 4)])
"""
    got = go(text, x=np.array([1, 2, 15, 4, 5], np.uint8))
    assert got["y"].tolist() == [1, 2, 15, 4, 5]
    assert got["bytes"].tolist() == [0x21, 0x4F, 0x05]
    assert got["s"].tolist() == [1, 2, -1, 4]


# ---------------------------------------------------------------- blocks and loops

BLOCK = """
func f(x: f32[10]) -> (y: f32[1])
  for ko in 0..3
    for ki in 0..4
      block total(v: spatial 1 = 0, k: reduce 10 = ko * 4 + ki) where ko * 4 + ki < 10
        init
          y[v] = 0.0
        y[v] += x[k]
"""


def test_blocks_start_where_all_reduce_iterations_are_zero() -> None:
    assert go(BLOCK, x=np.arange(10, dtype=np.float32))["y"].tolist() == [45]


def test_a_missing_predicate_is_found() -> None:
    with pytest.raises(ProgramError, match="block `total` runs outside of its domain") as caught:
        go(BLOCK.replace(" where ko * 4 + ki < 10", ""), x=np.arange(10, dtype=np.float32))
    assert caught.value.why == "k is 10, and its extent is 10"


def test_init_only_once_when_the_reduction_is_outermost() -> None:
    text = BLOCK.replace("ko * 4 + ki", "ki * 3 + ko").replace(" where ki * 3 + ko < 10", "")
    text = text.replace("reduce 10", "reduce 12").replace("x: f32[10]", "x: f32[12]")
    assert go(text, x=np.arange(12, dtype=np.float32))["y"].tolist() == [66]


def test_random_order_shows_what_depends_on_it() -> None:
    text = "func f(x: f32[64]) -> (y: f32[1])\n  for i in 0..64 parallel\n    y[0] = x[i]\n"
    x = np.arange(64, dtype=np.float32)
    assert go(text, x=x)["y"][0] == 63
    assert interpret(parse_func(text), {"x": x}, shuffle=3)["y"][0] != 63


@pytest.mark.parametrize(
    ("body", "race"),
    [
        ("y[0] = x[i]", True),
        ("y[i] = x[i]", False),
        ("y[i] = x[i]\n    y[(i + 1) % 64] = 0.0", True),
        ("y[i] = y[63 - i]", True),
        ("y[i] = x[0]", False),
        ("atomic add y[0], x[i]", False),
        ("atomic add y[0], x[i]\n    y[1] = y[0]", True),
        ("alloc t: f32[1]\n    t[0] = x[i]\n    y[i] = t[0]", False),
        ("t_outer[0] = x[i]\n    y[i] = t_outer[0]", True),
        ("y[ramp(i, 1, 2) where ramp(i, 1, 2) < broadcast(64, 2)] = broadcast(1.0, 2)", True),
    ],
)
def test_races_are_found(body: str, race: bool) -> None:
    head = "func f(x: f32[64]) -> (y: f32[64])\n  local t_outer: f32[1]\n"
    text = f"{head}  for i in 0..64 parallel\n    {body}\n"
    inputs = {"x": np.zeros(64, np.float32), "y": np.zeros(64, np.float32)}
    if not race:
        interpret(parse_func(text), inputs, races=True)
        return
    with pytest.raises(ProgramError, match="parallel iterations use the same element"):
        interpret(parse_func(text), inputs, races=True)


def test_loops_one_after_the_other_do_not_race() -> None:
    text = """
func f(x: f32[8]) -> (y: f32[8])
  local t: f32[8]
  for i in 0..8 parallel
    t[i] = x[i]
  for j in 0..8 parallel
    y[j] = t[7 - j]
"""
    x = np.arange(8, dtype=np.float32)
    assert interpret(parse_func(text), {"x": x}, races=True)["y"].tolist() == x[::-1].tolist()


def test_deep_nests() -> None:
    y = Buffer("y", I64, (const(1),))
    loops = [Var(f"i{number}") for number in range(45)]
    total: Expr = const(0)
    for var in loops:
        total = binary("add", total, var)
    body: Any = Store(y, (const(0),), total)
    for number, var in enumerate(reversed(loops)):
        body = For(var, const(2 if number in (0, 20, 40) else 1), body)
    assert interpret(Func("f", (y,), body), {})["y"][0] == 3
    wide: Any = Store(y, (const(0),), total)
    for number, var in enumerate(reversed(loops)):
        wide = For(
            var, binary("add", const(1), binary("mul", loops[0], const(0))) if number < 44 else const(2), wide
        )
    assert interpret(Func("f", (y,), wide), {})["y"][0] == 1


# ---------------------------------------------------------------- intrinsics


def test_tiles_need_their_configuration() -> None:
    text = """
func f() -> (y: f32[2])
  for i in 0..2 parallel
    alloc t: f32[2, 2] @amx.tile
    amx.tilezero:i32(&t[0, 0])
    y[i] = t[0, 0]
"""
    with pytest.raises(ProgramError, match="not configured"):
        go(text)
    configure = "amx.ldtilecfg:i32()\n"
    inside = text.replace("    amx.tilezero", f"    {configure}    amx.tilezero")
    assert go(inside)["y"].tolist() == [0, 0]
    outside = text.replace("  for i", f"  {configure}  for i")
    with pytest.raises(ProgramError, match="not configured"):
        go(outside)  # the configuration belongs to the thread that made it


def test_an_unknown_function_is_named() -> None:
    with pytest.raises(ProgramError, match="the function `frobnicate` of") as caught:
        go("func f() -> (y: f32[1])\n  y[0] = frobnicate(1.0)\n")
    assert "y[0] = frobnicate(1.0)" in caught.value.where


# ---------------------------------------------------------------- inputs


def test_wrong_inputs_are_refused() -> None:
    text = "func f(x: f32[4, 2]) -> (y: f32[4])\n  y[0] = x[0, 0]\n"
    good = np.zeros((4, 2), np.float32)
    for inputs, message in [
        ({}, "input `x` of function `f` is missing"),
        ({"x": good.reshape(2, 4)}, "wrong shape"),
        ({"x": good.astype(np.float64)}, "wrong type"),
        ({"x": good, "z": good}, "has no input `z`"),
    ]:
        with pytest.raises(BadInputError, match=message):
            go(text, **inputs)


def test_dims() -> None:
    text = """
func f[n in 2..8 by 2, m in 1..4](x: f32[n, 2]) -> (y: f32[n * m])
  for i in 0..n * m
    y[i] = x[i // m, 1]
"""
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert go(text, x=x, m=2)["y"].tolist() == [1, 1, 3, 3, 5, 5, 7, 7]
    with pytest.raises(BadInputError, match="the value of `m` is not known"):
        go(text, x=x)
    with pytest.raises(BadInputError, match="n cannot be 3"):
        go(text, x=x[:3], m=1)


def test_division_by_zero_is_an_error_with_its_place() -> None:
    text = "func f(n: i64[1]) -> (y: i64[1])\n  y[0] = 5 // n[0]\n"
    with pytest.raises(ProgramError, match="divided by zero") as caught:
        go(text, n=np.zeros(1, np.int64))
    assert "y[0] = 5 // n[0]" in caught.value.where


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y[0] = 1", "a value of type i64 is stored into a buffer of f32"),
        ("y[0, 0] = 1.0", "is accessed with 2 indices"),
        ("y[0] = shuffle([broadcast(1.0, 2)], [3])", "picks a lane outside"),
        ("y[0] = 1.0 << 2.0", "`shl` has no meaning for f32"),
    ],
)
def test_what_has_no_meaning_is_refused(text: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message.replace("[", r"\[")):
        go(f"func f() -> (y: f32[1])\n  {text}\n")


def test_no_name_of_a_program_reaches_the_python_text() -> None:
    b = Builder("__import__")
    x = b.input("evil_input", (4,))
    y = b.reduce("evil_sum", (1,), (4,), lambda _i, k: x[k])
    source = compile_func(b.finish([y], attrs=(("evil_attr", 1),))).source
    assert "evil" not in source
    assert "__import__" not in source


def test_bool_and_int_loads_are_python_values() -> None:
    text = "func f(x: bool[2], n: i32[2]) -> (y: i32[1])\n  y[0] = select(x[1], n[0] * 1000000:i32, n[1])\n"
    got = go(text, x=np.array([False, True]), n=np.array([3000, 1], np.int32))["y"][0]
    assert got == np.int64(3000 * 1000000).astype(np.int32)
