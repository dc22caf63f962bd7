"""Every element type and every function, scalar and in vectors, against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compiler.core.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType, dtype
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.interp_math import FLOAT_FUNCTIONS, TESTS
from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import (
    Buffer,
    Call,
    Cast,
    Expr,
    Func,
    Select,
    Unary,
    binary,
    call,
    const,
    maximum,
)
from compiler.targets import get_target
from tests.support.kernels import CompiledKernel, lower_all
from tests.support.programs import vectorised
from tests.support.schedules import shape_of

N = 37
F8 = dtype("f8e4m3")
Point = Callable[..., Expr]
HOST = get_target("cpu")

UNITS = frozenset({"asin", "acos", "atanh"})
BINARY = frozenset({"pow", "atan2", "fmod", "copysign", "hypot", "min", "max"})


def function(name: str, x: Expr) -> Expr:
    """A function applied where it is defined."""
    if name in BINARY:
        return call(name, call("abs", x), x + 3.0)
    if name == "fma":
        return call(name, x, x, x)
    if name in UNITS:
        return call(name, call("tanh", x) * 0.9)
    return call(name, call("abs", x) + (1.0 if name == "acosh" else 0.1))


# Name -> element types of the operands, and the value of one element.
POINTS: dict[str, tuple[tuple[DType, ...], Point]] = {
    "f64": ((F64,), lambda _, x: call("exp", x) * 2.0 + maximum(x, 0.0)),
    "i64": ((I64,), lambda i, x: x * 3 - i),
    "i32": ((I32,), lambda _, x: maximum(x * 3, x - 4)),
    "i8_wraps": ((I8,), lambda _, x: x * x * x),
    "u8_wraps": ((U8,), lambda _, x: x * x * x),
    "less": ((F32, F32), lambda _, x, y: x.lt(y)),
    "where": ((BOOL, F32, F32), lambda _, c, x, y: Select(c, x, y)),
    "where_wide": ((BOOL, I64, I64), lambda _, c, x, y: Select(c, x, y)),
    "logic": (
        (BOOL, BOOL, F32),
        lambda _, c, d, x: binary("or", binary("and", c, x.lt(0.5)), Unary("not", d)),
    ),
    "where_bool": ((BOOL, BOOL, F32), lambda _, c, d, x: Select(x.lt(0.0), c, d)),
    "bool_to_f32": ((BOOL,), lambda _, c: Cast(F32, c)),
    "bool_to_i64": ((BOOL,), lambda _, c: Cast(I64, c)),
    "f32_to_bool": ((F32,), lambda _, x: Cast(BOOL, x)),
    "f32_to_i64": ((F32,), lambda _, x: Cast(I64, x * 10.0)),
    "i64_to_f32": ((I64,), lambda _, x: Cast(F32, x)),
    "i64_to_i32": ((I64,), lambda _, x: Cast(I32, x)),
    "index_to_f32": ((), lambda i: Cast(F32, i) * 0.5),
    "f16": ((F16,), lambda _, x: x * x),
    "bf16_to_f32": ((BF16,), lambda _, x: Cast(F32, x) + 1.0),
    "f32_to_bf16": ((F32,), lambda _, x: Cast(BF16, x)),
    "rounds_in_between": ((F32,), lambda _, x: Cast(F32, Cast(F16, x)) * 3.0),
    "f8": ((F8,), lambda _, x: Cast(F32, x) + 1.0),
    "floormod": ((I32,), lambda _, x: binary("floormod", x, const(5, I32))),
    "floordiv": ((I32,), lambda _, x: binary("floordiv", x, const(-5, I32))),
    "truncdiv": ((I32,), lambda _, x: binary("truncdiv", x, const(5, I32))),
    **{name: ((F32,), lambda _, x, name=name: function(name, x)) for name in FLOAT_FUNCTIONS},
    **{name: ((F32,), lambda _, x, name=name: Call(name, (call("log", x),), BOOL)) for name in TESTS},
}


def program() -> Func:
    """All of them as outputs of one Func."""
    b = Builder("all")
    outputs: list[Buffer] = []
    for name, (kinds, point) in POINTS.items():
        inputs = [b.input(f"{name}_in{number}", (N,), kind) for number, kind in enumerate(kinds)]
        outputs.append(
            b.compute(name, (N,), lambda i, p=point, x=tuple(inputs): p(i, *(item[i] for item in x)))
        )
    return b.finish(outputs)


def inputs_of(func: Func) -> dict[str, np.ndarray]:
    source = np.random.default_rng(0)
    made = {}
    for item in func.params[: len(func.params) - func.outputs]:
        kind, shape = STORAGE[item.dtype.name], shape_of(func, item.name)
        if item.dtype.is_float:
            made[item.name] = source.normal(size=shape).astype(kind)
        else:
            made[item.name] = source.integers(*((-9, 9) if item.dtype.is_signed else (0, 2)), shape).astype(
                kind
            )
    return made


@pytest.mark.sample(2, each=("vectors", "arch"))
@pytest.mark.parametrize("arch", ["host", "x86-64"])
@pytest.mark.parametrize("vectors", [False, True])
def test_all_types_and_functions(vectors: bool, arch: str, tmp_path: Path) -> None:
    target = get_target(f"cpu:{arch}")
    func = program()
    inputs = inputs_of(func)
    kernel = CompiledKernel(lower_all(vectorised(func) if vectors else func, target.facts), target, tmp_path)
    got = kernel(inputs)
    for name, wanted in interpret(func, inputs).items():
        np.testing.assert_allclose(
            got[name].astype(np.float64), wanted.astype(np.float64), rtol=2e-6, atol=1e-6, err_msg=name
        )


def test_softplus_and_friends_at_the_ends(tmp_path: Path) -> None:
    names = ("softplus", "sign", "reciprocal", "sigmoid", "tanh")
    b = Builder("ends")
    x = b.input("x", (10,))
    outputs = [b.compute(name, (10,), lambda i, n=name: call(n, x[i])) for name in names]
    func = b.finish(outputs)
    ends = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-30, -1e-30, 90.0, -90.0, 3e38]
    inputs = {"x": np.array(ends, np.float32)}
    kernel = CompiledKernel(lower_all(vectorised(func), HOST.facts), HOST, tmp_path)
    got = kernel(inputs)
    for name, wanted in interpret(func, inputs).items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-6, err_msg=name)


def test_exponentials_of_distances_from_the_largest(tmp_path: Path) -> None:
    """Less exact where they are small, 0 where f32 would lose digits; exact at 0, and NaN stays."""
    b = Builder("distances")
    x = b.input("x", (4001,))
    func = b.finish([b.compute("y", (4001,), lambda i: call("exp_nonpositive", x[i]))])
    values = np.linspace(-87.0, 0.0, 4001, dtype=np.float32)
    kernel = CompiledKernel(lower_all(vectorised(func), HOST.facts), HOST, tmp_path)
    got = kernel({"x": values})["y"]
    error = np.abs(got / np.exp(values.astype(np.float64)) - 1.0)
    assert (error <= 2.0**-22 + np.abs(values) * 2.0**-24).all()
    ends = np.array([0.0, -0.0, -89.0, -3e38, -np.inf, np.nan], np.float32)
    got = kernel({"x": np.resize(ends, 4001)})["y"]
    np.testing.assert_array_equal(got, np.resize(np.array([1, 1, 0, 0, 0, np.nan], np.float32), 4001))


def test_elements_picked_by_data(tmp_path: Path) -> None:
    b = Builder("gather")
    at, x = b.input("at", (N,), U8), b.input("x", (20,))
    func = b.finish([b.compute("y", (N,), lambda i: x[Cast(I64, at[i])])])
    inputs = {"at": np.arange(N, dtype=np.uint8) * 7 % 20, "x": np.arange(20, dtype=np.float32)}
    kernel = CompiledKernel(lower_all(vectorised(func), HOST.facts), HOST, tmp_path)
    np.testing.assert_array_equal(kernel(inputs)["y"], interpret(func, inputs)["y"])
