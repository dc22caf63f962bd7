"""Constant-only blocks: taken out of a Func, and computed with numpy as the interpreter would."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.core.diagnostics import InternalError
from compiler.core.types import F32, I64
from compiler.loops.annotations import CONSTANT_ONLY
from compiler.loops.build import Builder
from compiler.loops.constant_only import part_constants
from compiler.loops.evaluate import evaluate_func
from compiler.loops.interp import interpret
from compiler.loops.ir import Buffer, Cast, Func, Select, call, const, maximum
from compiler.loops.verify import verify_func

KNOWN = ((CONSTANT_ONLY, True),)


def scaled_weights() -> Func:
    """y = x @ (2 * (w + 1)), where the factors of x are constants."""
    b = Builder("kernel")
    x, w, bias = b.input("x", (3, 4)), b.constant("w", (4, 5)), b.constant("bias", (5,))
    more = b.compute("more", (4, 5), lambda k, n: w[k, n] + 1.0, annotations=KNOWN)
    twice = b.compute("twice", (5, 4), lambda n, k: more[k, n] * 2.0, annotations=KNOWN)
    y = b.reduce("y", (3, 5), (4,), lambda m, n, k: x[m, k] * twice[n, k])
    return b.finish([b.compute("sum", (3, 5), lambda m, n: y[m, n] + bias[n])], (("form", "scaled"),))


def test_the_function_gets_the_result_as_a_constant() -> None:
    func = scaled_weights()
    parted = part_constants(func)
    assert parted is not None
    verify_func(parted.func)
    assert [item.name for item in parted.func.params] == ["x", "bias", "twice", "sum"]
    assert parted.func.params[2].scope == "constant"
    assert [item.name for item in parted.func.allocs] == ["y"]
    assert parted.func.attrs == func.attrs
    (maker,) = parted.makers
    verify_func(maker)
    assert [item.name for item in maker.params] == ["w", "twice"]


def test_both_parts_together_compute_the_same() -> None:
    func, source = scaled_weights(), np.random.default_rng(1)
    inputs = {
        n: source.uniform(-1, 1, s).astype(np.float32)
        for n, s in [("x", (3, 4)), ("w", (4, 5)), ("bias", (5,))]
    }
    parted = part_constants(func)
    assert parted is not None
    (twice,) = evaluate_func(parted.makers[0], [inputs["w"]])
    got = interpret(parted.func, {"x": inputs["x"], "bias": inputs["bias"], "twice": twice})
    np.testing.assert_allclose(got["sum"], interpret(func, inputs)["sum"], 1e-6)


def test_a_function_without_such_blocks_stays_as_it_is() -> None:
    b = Builder("kernel")
    x = b.input("x", (3,))
    func = b.finish([b.compute("y", (3,), lambda i: x[i] * 2.0)])
    parted = part_constants(func)
    assert parted is not None
    assert parted.func is func
    assert parted.makers == ()


def test_what_reads_an_input_cannot_be_prepared() -> None:
    b = Builder("kernel")
    x = b.input("x", (3,))
    twice = b.compute("twice", (3,), lambda i: x[i] * 2.0, annotations=KNOWN)
    assert part_constants(b.finish([b.compute("y", (3,), lambda i: twice[i] + 1.0)])) is None


# ---------------------------------------------------------------- evaluation


def transposed(b: Builder, w: Buffer) -> Buffer:
    return b.compute("y", (5, 4), lambda i, j: w[j, i])


def diagonal(b: Builder, w: Buffer) -> Buffer:
    return b.compute("y", (4,), lambda i: w[i, i])


def reversed_rows(b: Builder, w: Buffer) -> Buffer:
    return b.compute("y", (4, 5), lambda i, j: w[3 - i, j])


def sums(b: Builder, w: Buffer) -> Buffer:
    return b.reduce("y", (5,), (4,), lambda j, i: w[i, j])


def largest(b: Builder, w: Buffer) -> Buffer:
    return b.reduce("y", (4,), (5,), lambda i, j: w[i, j], "max")


def pieces(b: Builder, w: Buffer) -> Buffer:
    y = b.local("y", (9, 5))
    b.write("first", y, (4, 5), lambda i, j: ((i, j), w[i, j]))
    b.write("second", y, (4, 5), lambda i, j: ((i + 5, j), -w[i, j]))
    b.write("between", y, (5,), lambda j: ((4, j), const(7.0, F32)))
    return y


def chosen(b: Builder, w: Buffer) -> Buffer:
    return b.compute("y", (4, 5), lambda i, j: Select((i + j).lt(4), w[i, j], maximum(w[i, j], 0.5)))


def functions(b: Builder, w: Buffer) -> Buffer:
    return b.compute("y", (4, 5), lambda i, j: call("exp", w[i, j]) / (w[i, j] * w[i, j] + 1.0))


def whole_numbers(b: Builder, w: Buffer) -> Buffer:
    return b.compute("y", (4, 5), lambda i, j: Cast(I64, w[i, j] * 10.0), I64)


@pytest.mark.parametrize(
    "make", [transposed, diagonal, reversed_rows, sums, largest, pieces, chosen, functions, whole_numbers]
)
def test_numpy_computes_what_the_interpreter_computes(make: Callable[[Builder, Buffer], Buffer]) -> None:
    b = Builder("kernel")
    func = b.finish([make(b, b.constant("w", (4, 5)))])
    array = np.random.default_rng(2).uniform(-1, 1, (4, 5)).astype(np.float32)
    (got,) = evaluate_func(func, [array])
    wanted = interpret(func, {"w": array})["y"]
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, 1e-6)


def test_floats_are_rounded_once() -> None:
    b = Builder("kernel")
    w = b.constant("w", (2,))
    third = b.compute("third", (2,), lambda i: w[i] / 3.0)
    func = b.finish([b.compute("y", (2,), lambda i: third[i] * 3.0 - w[i])])
    (got,) = evaluate_func(func, [np.array([1, 5], np.float32)])
    assert np.abs(got).max() < 1e-15


def test_what_is_no_plain_form_is_refused() -> None:
    b = Builder("kernel")
    w = b.constant("w", (2,))
    func = b.finish([b.compute("y", (2,), lambda i: call("no_such_function", w[i]))])
    with pytest.raises(InternalError, match="no_such_function"):
        evaluate_func(func, [np.zeros(2, np.float32)])
