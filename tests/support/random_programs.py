"""Small random programs with inputs and results, for tests of schedules."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np

from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import Binary, Expr, Func, Select, call, const, maximum

PRIMES = (2, 3, 5, 7)


def matmul(r: random.Random) -> Func:
    m, n, k = (r.choice((3, 4, 5, 7, 8)) for _ in range(3))
    b = Builder("matmul")
    x, w, bias = b.input("x", (m, k)), b.constant("w", (k, n)), b.input("bias", (n,))
    scaled = b.compute("scaled", (m, k), lambda i, j: x[i, j] * 2.0) if r.random() < 0.5 else x
    c = b.reduce("c", (m, n), (k,), lambda i, j, q: scaled[i, q] * w[q, j])
    y = b.compute("y", (m, n), lambda i, j: maximum(c[i, j] + bias[j], const(0.0, c.dtype)))
    return b.finish([y])


def convolution(r: random.Random) -> Func:
    channels, outputs = r.choice((1, 2, 3)), r.choice((2, 3, 5))
    height, width = r.choice((5, 7)), r.choice((5, 7))
    kernel, stride, pad = r.choice((1, 2, 3)), r.choice((1, 2, 3)), r.choice((0, 1, 2))
    b = Builder("convolution")
    x = b.input("x", (channels, height, width))
    w = b.constant("w", (outputs, channels, kernel, kernel))
    high, wide = height + 2 * pad, width + 2 * pad

    def padded(c: Expr, i: Expr, j: Expr) -> Expr:
        inside = None
        for index, extent in ((i, height), (j, width)):
            for cond in ((index - pad).ge(0), (index - pad).lt(extent)):
                inside = cond if inside is None else all_of(inside, cond)
        assert inside is not None
        return Select(inside, x[c, i - pad, j - pad], const(0.0, x.dtype))

    p = b.compute("p", (channels, high, wide), padded)
    out = ((high - kernel) // stride + 1, (wide - kernel) // stride + 1)
    y = b.reduce(
        "conv",
        (outputs, *out),
        (channels, kernel, kernel),
        lambda o, i, j, c, u, v: p[c, i * stride + u, j * stride + v] * w[o, c, u, v],
    )
    z = b.compute("z", (outputs, *out), lambda o, i, j: maximum(y[o, i, j], const(0.0, y.dtype)))
    return b.finish([z])


def rows(r: random.Random) -> Func:
    n, m = r.choice(PRIMES), r.choice(PRIMES)
    b = Builder("rows")
    x = b.input("x", (n, m))
    top = b.reduce("top", (n,), (m,), lambda i, k: x[i, k], "max")
    e = b.compute("e", (n, m), lambda i, j: call("exp", x[i, j] - top[i]))
    total = b.reduce("total", (n,), (m,), lambda i, k: e[i, k])
    return b.finish([b.compute("y", (n, m), lambda i, j: e[i, j] / total[i])])


def chain(r: random.Random) -> Func:
    n, m = r.choice((3, 4, 5, 7)), r.choice((4, 5, 6, 7))
    b = Builder("chain")
    x = b.input("x", (n, m))
    a = b.compute("a", (n, m), lambda i, j: x[i, j] * 2.0 + 1.0)
    t = b.compute("t", (m, n), lambda i, j: a[j, i] - 3.0)
    u = b.compute("u", (n, m), lambda i, j: a[i, j] * t[j, i])
    flat = b.compute("flat", (n * m,), lambda i: u[i // m, i % m] + 1.0)
    return b.finish([flat])


def pooled(r: random.Random) -> Func:
    n, m = r.choice((5, 7)), r.choice((3, 4))
    b = Builder("pooled")
    x = b.input("x", (m, n + 2))
    a = b.compute("a", (m, n + 2), lambda i, j: x[i, j] + 1.0)
    combiner = r.choice(("max", "sum", "min"))
    return b.finish([b.reduce("y", (m, n), (3,), lambda i, j, k: a[i, j + k], combiner)])


def all_of(a: Expr, b: Expr) -> Expr:
    return Binary("and", a, b)


@cache
def program(number: int) -> tuple[Func, dict[str, Any], Any]:
    """A random program, its inputs (small whole numbers, so that sums are exact) and its result."""
    r = random.Random(number)
    func = (matmul, convolution, rows, chain, pooled)[number % 5](r)
    source = np.random.default_rng(number)
    inputs = {
        item.name: source.integers(-3, 4, [int(n.value) for n in item.shape]).astype(np.float32)
        for item in func.params[: -func.outputs]
    }
    return func, inputs, interpret(func, inputs)[func.params[-1].name]
