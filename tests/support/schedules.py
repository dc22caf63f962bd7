"""Programs to schedule, and the proof that a schedule kept their meaning."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.core.types import F32
from compiler.graph.dtypes import to_numpy
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import Const, Func, Select, all_of, const, maximum
from compiler.loops.verify import verify_func
from compiler.schedule.schedule import Schedule, replay
from compiler.schedule.trace import Trace
from compiler.verify.interpreted import run_scheduled

Array = np.ndarray[Any, Any]


def shape_of(func: Func, name: str) -> tuple[int, ...]:
    """The shape of a buffer whose extents are literals."""
    shape = []
    for item in func.buffer(name).shape:
        assert isinstance(item, Const)
        shape.append(int(item.value))
    return tuple(shape)


def random_inputs(func: Func, seed: int = 0) -> dict[str, Array]:
    """Small whole numbers for every input, so that sums are exact in any order."""
    source = np.random.default_rng(seed)
    inputs = func.params[: len(func.params) - func.outputs]
    return {
        item.name: source.integers(-4, 5, shape_of(func, item.name)).astype(to_numpy(item.dtype))
        for item in inputs
    }


def run_logical(
    func: Func, inputs: dict[str, Array], shuffle: int | None = None, *, races: bool = False
) -> dict[str, Array]:
    """Run a scheduled Func with arrays in the layouts before scheduling.

    Padding whose content does not matter is NaN: a result that depends on it shows. `races` watches memory.
    """
    return run_scheduled(func, inputs, shuffle, races=races)


def assert_same(before: Func, after: Func, seed: int = 0) -> None:
    """The scheduled program is valid and gives the same numbers."""
    verify_func(after)
    inputs = random_inputs(before, seed)
    wanted, got = interpret(before, inputs), run_logical(after, inputs)
    assert wanted.keys() == got.keys()
    for name in wanted:
        assert not np.isnan(wanted[name]).any(), f"{name} is not written completely before scheduling"
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)


def checked(before: Func, schedule: Schedule) -> None:
    """Same numbers, and the trace gives the same program again after a trip through JSON."""
    assert_same(before, schedule.func)
    assert replay(Trace.from_json(schedule.trace.to_json()), before).func == schedule.func


def product(m: int = 6, n: int = 7, k: int = 5) -> Func:
    """A matrix product of two inputs."""
    b = Builder("matmul")
    x, w = b.input("x", (m, k)), b.input("w", (k, n))
    return b.finish([b.reduce("y", (m, n), (k,), lambda i, j, r: x[i, r] * w[r, j])])


def conv_direct(
    n: int = 1,
    c: int = 3,
    k: int = 4,
    h: int = 5,
    w: int = 7,
    r: int = 3,
    s: int = 3,
    stride: int = 1,
    dilation: int = 1,
    pad: int = 1,
) -> Func:
    """A convolution with bias and ReLU whose output has a border of `pad` zeros.

    `T` is the sum, `epilogue` writes the interior of Y, the blocks `top` to `right` write the border.
    """
    b = Builder("conv")
    height, width = (h - 1) * stride + (r - 1) * dilation + 1, (w - 1) * stride + (s - 1) * dilation + 1
    x, weight, bias = (
        b.input("X", (n, c, height, width)),
        b.constant("W", (k, c, r, s)),
        b.constant("B", (k,)),
    )
    t = b.reduce(
        "T",
        (n, k, h, w),
        (c, r, s),
        lambda n, k, h, w, c, r, s: (
            x[n, c, h * stride + r * dilation, w * stride + s * dilation] * weight[k, c, r, s]
        ),
    )
    y = b.local("Y", (n, k, h + 2 * pad, w + 2 * pad))
    b.write(
        "epilogue",
        y,
        (n, k, h, w),
        lambda n, k, h, w: ((n, k, h + pad, w + pad), maximum(t[n, k, h, w] + bias[k], 0.0)),
    )
    if pad:
        wide = w + 2 * pad
        b.write("top", y, (n, k, pad, wide), lambda n, k, p, w: ((n, k, p, w), 0.0))
        b.write("bottom", y, (n, k, pad, wide), lambda n, k, p, w: ((n, k, p + h + pad, w), 0.0))
        b.write("left", y, (n, k, h, pad), lambda n, k, h, p: ((n, k, h + pad, p), 0.0))
        b.write("right", y, (n, k, h, pad), lambda n, k, h, p: ((n, k, h + pad, p + w + pad), 0.0))
    return b.finish([y])


def padded_conv_pool(c: int = 2, k: int = 3, h: int = 8, w: int = 8, size: int = 2, step: int = 2) -> Func:
    """Padding, a 3x3 convolution, ReLU and maximum pooling: P, T, R, Z."""
    b = Builder("chain")
    x, weight = b.input("X", (c, h, w)), b.constant("W", (k, c, 3, 3))
    p = b.compute(
        "P",
        (c, h + 2, w + 2),
        lambda c, i, j: Select(_inside(i, j, h, w), x[c, i - 1, j - 1], const(0, F32)),
    )
    t = b.reduce("T", (k, h, w), (c, 3, 3), lambda k, h, w, c, r, s: p[c, h + r, w + s] * weight[k, c, r, s])
    relu = b.compute("R", (k, h, w), lambda k, h, w: maximum(t[k, h, w], 0.0))
    high, wide = (h - size) // step + 1, (w - size) // step + 1
    z = b.reduce(
        "Z", (k, high, wide), (size, size), lambda k, h, w, r, s: relu[k, h * step + r, w * step + s], "max"
    )
    return b.finish([z])


def _inside(i: Any, j: Any, h: int, w: int) -> Any:
    return all_of(i.ge(1), i.lt(h + 1), j.ge(1), j.lt(w + 1))
