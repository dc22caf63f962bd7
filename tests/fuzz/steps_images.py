"""Steps: convolutions, pools, normalisation of channels, resizing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.grow import F16, F32, F64, FLOATS, MOST_ELEMENTS, Pool, Step, Tensor

_IN_F32 = ("LRN", "GlobalMaxPool", "GlobalLpPool")
"""What no oracle does in other types."""


def image(g: Pool, op: str, least: int = 3) -> Tensor | None:
    """Floats with channels and one to three dimensions of space, made where there are none."""
    types = (F32,) if op in _IN_F32 else FLOATS

    def fits(one: Tensor) -> bool:
        sized = one.rank in (3, 4, 5) and 0 not in one.shape and min(one.shape[2:]) >= least
        return one.dtype in types and sized and one.size <= 8000 and g.takes(op, one.dtype)

    found = g.find(fits)
    if found is not None:
        return g.within(found, 8.0)
    if len(g.inputs) > 5:
        return None
    kinds = [kind for kind in g.profile.types if kind in types and g.takes(op, kind)] or [F32]
    channels = g.pick(1, 2, 3, 4, 6, 8, 16, 17, 32)
    space = [g.integer(least, 12) for _ in range(g.pick(1, 2, 2, 2, 2, 3))]
    batch = 1 if g.profile.free else g.integer(1, 2)
    most = 8000 // (channels * batch)
    while math.prod(space) > most:
        space[space.index(max(space))] = least
        if max(space) == least:
            break
    return g.give(kinds[0], (batch, channels, *space)) if g.takes(op, kinds[0]) else None


def _window(g: Pool, space: tuple[int, ...], largest: int = 3) -> tuple[dict[str, Any], list[int]] | None:
    """Attributes of a window, and what it leaves of the space; None where it does not fit."""
    rank = len(space)
    kernel = [g.integer(1, largest) for _ in space]
    strides = [g.pick(1, 1, 2, 3) for _ in space]
    dilations = [g.pick(1, 1, 2) for _ in space]
    pads = [min(g.integer(0, 2), kernel[at % rank] - 1) for at in range(2 * rank)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    left = [n + pads[at] + pads[at + rank] - reach[at] for at, n in enumerate(space)]
    if min(left) < 0:
        return None
    made = [n // s + 1 for n, s in zip(left, strides, strict=True)]
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}, made


def conv(g: Pool) -> None:
    x = image(g, "Conv")
    window = _window(g, x.shape[2:], g.pick(1, 3, 3, 4)) if x is not None else None
    if x is None or window is None:
        return
    attrs, space = window
    n, c = x.shape[:2]
    group = g.pick(1, 1, c, 2 if c % 2 == 0 else 1)
    outer = group * (g.integer(1, 4) if group > 1 else g.pick(1, 3, 4, 8, 16, 17, 32))
    taps = c // group * math.prod(attrs["kernel_shape"])
    operands: list[str | Tensor] = [
        x,
        g.weights(x.dtype, outer, c // group, *attrs["kernel_shape"], scale=taps**-0.5),
    ]
    if g.chance(0.6):
        operands.append(g.weights(x.dtype, outer))
    shape = (n, outer, *space)
    if math.prod(shape) > 2 * MOST_ELEMENTS:
        return
    y = g.add("Conv", operands, shape, x, limit=x.limit * taps**0.5 + 1, group=group, **attrs)
    if g.chance(0.3) and g.takes("BatchNormalization", x.dtype):
        factors = [g.constant(g.rng.uniform(0.5, 1.5, outer).astype(x.dtype)) for _ in range(4)]
        y = g.add("BatchNormalization", [y, *factors], shape, x, limit=4 * y.limit + 4, epsilon=2.0**-10)
    if g.chance(0.4):
        g.add("Relu", [y], shape, y)


def conv_transpose(g: Pool) -> None:
    x = image(g, "ConvTranspose", 2)
    if x is None:
        return
    n, c, *space = x.shape
    group = g.pick(1, 1, 2 if c % 2 == 0 else 1)
    outer = g.integer(1, 5)
    kernel = [g.integer(1, 3) for _ in space]
    strides = [g.integer(1, 2) for _ in space]
    rank = len(space)
    pads = [g.integer(0, (kernel[at % rank] - 1) // 2) for at in range(2 * rank)]
    shape = [
        (m - 1) * s + k - pads[at] - pads[at + rank]
        for at, (m, s, k) in enumerate(zip(space, strides, kernel, strict=True))
    ]
    if min(shape) < 1 or n * group * outer * math.prod(shape) > 2 * MOST_ELEMENTS:
        return
    weights = g.weights(x.dtype, c, outer, *kernel, scale=(c * math.prod(kernel)) ** -0.5)
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "group": group}
    g.add("ConvTranspose", [x, weights], (n, group * outer, *shape), x, limit=x.limit * 30, **attrs)


def pool(g: Pool) -> None:
    op = g.pick("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    x = image(g, op)
    if x is None or (op == "GlobalLpPool" and g.since(22)):  # then no oracle has it
        return
    n, c, *space = x.shape
    if op.startswith("Global"):
        g.add(op, [x], (n, c, *(1 for _ in space)), x, limit=x.limit * (90 if op == "GlobalLpPool" else 1))
        return
    window = _window(g, tuple(space))
    if window is None:
        return
    attrs, left = window
    if op != "MaxPool":
        del attrs["dilations"]
        reach = zip(space, attrs["kernel_shape"], attrs["strides"], strict=True)
        rank, pads = len(space), attrs["pads"]
        left = [(m + pads[at] + pads[at + rank] - k) // s + 1 for at, (m, k, s) in enumerate(reach)]
    if op == "AveragePool":
        attrs["count_include_pad"] = g.integer(0, 1)
    if op == "LpPool":
        attrs["p"] = 2
    if min(left) > 0:
        g.add(op, [x], (n, c, *left), x, limit=x.limit * (30 if op == "LpPool" else 1), **attrs)


def channels(g: Pool) -> None:
    op = g.pick("LRN", "InstanceNormalization", "PRelu")
    x = image(g, op)
    if x is None:
        return
    count = x.shape[1]
    if op == "LRN" and x.rank == 4:
        size = {"size": g.pick(1, 3, 5), "alpha": 0.01, "beta": g.pick(0.5, 0.75), "bias": 1.0}
        g.add(op, [x], x.shape, x, **size)
    elif op == "PRelu":
        g.add(op, [x, g.weights(x.dtype, count, *(1 for _ in x.shape[2:]))], x.shape, x)
    elif op == "InstanceNormalization" and math.prod(x.shape[2:]) > 3:
        factors = [g.weights(x.dtype, count) for _ in range(2)]
        g.add(op, [x, *factors], x.shape, x, limit=80.0, epsilon=0.125)


def resize(g: Pool) -> None:
    x = image(g, "Resize")
    if x is None or x.rank > 4 or not g.since(13):
        return
    sizes = [*x.shape[:2], *(n * 2 if g.chance(0.5) else g.integer(2, 2 * n) for n in x.shape[2:])]
    mode = g.pick("nearest", "linear", "cubic") if x.rank == 4 else g.pick("nearest", "linear")
    # With other coordinates a result may sit exactly between two sources, where runtimes differ.
    attrs: dict[str, Any] = {
        "coordinate_transformation_mode": "asymmetric" if mode == "nearest" else "half_pixel"
    }
    if mode == "nearest":
        attrs["nearest_mode"] = "floor"
    # Places and weights are computed in f32, whatever the elements are.
    if math.prod(sizes) > 2 * MOST_ELEMENTS or x.dtype not in (
        F32,
        F16,
        *([F64] if mode == "nearest" else []),
    ):
        return
    if g.profile.free:  # sizes would fix the batch
        factors = np.asarray([1.0, 1.0, *(2.0 for _ in x.shape[2:])], np.float32)
        g.add(
            "Resize",
            [x, "", g.constant(factors)],
            (*x.shape[:2], *(2 * n for n in x.shape[2:])),
            x,
            mode=mode,
            **attrs,
        )
        return
    g.add("Resize", [x, "", "", g.numbers(*sizes)], sizes, x, mode=mode, limit=2 * x.limit, **attrs)


STEPS: tuple[Step, ...] = (conv, conv, conv, conv_transpose, pool, pool, channels, resize)
