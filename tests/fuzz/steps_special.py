"""Steps: operators of few models, each a little of its own."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.grow import F32, I8, I32, I64, U8, Pool, Step, Tensor, is_float
from tests.fuzz.steps_images import image


def shape_of(g: Pool) -> None:
    """Extents as numbers."""
    x = g.find(lambda one: one.rank > 0) if not g.profile.free else None
    if x is None:
        return
    like = Tensor("", I64, (), float(max(x.size, 1)))
    if g.chance(0.5):
        g.add("Size", [x], (), like)
    else:
        g.add("Shape", [x], (x.rank,), like)


def determinant(g: Pool) -> None:
    x = g.find(
        lambda one: one.dtype == F32 and one.rank >= 2 + g.first and one.shape[-1] == one.shape[-2] <= 5
    )
    if x is None or x.size == 0:
        return
    n = x.shape[-1]
    eye = g.constant(np.eye(n, dtype=np.float32) * 8)
    regular = g.add("Add", [g.within(x, 1.0), eye], x.shape, x, limit=9.0)
    g.add("Det", [regular], x.shape[:-2], x, limit=9.0**n)


def crop(g: Pool) -> None:
    x = g.find(lambda one: one.rank > g.first and is_float(one) and min(one.shape) > 0)
    if x is None or not g.takes("CenterCropPad", x.dtype):
        return
    axis = g.axis(x)
    extent = g.integer(1, x.shape[axis] + 3)
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    g.add("CenterCropPad", [x, g.numbers(extent)], shape, x, axes=[axis])


def sample_grid(g: Pool) -> None:
    """Places between elements, so that no rounding moves them to another one."""
    x = image(g, "GridSample")
    if x is None or x.rank != 4 or x.dtype != F32 or not g.since(20):
        return
    n, c = x.shape[:2]
    out = (g.integer(1, 5), g.integer(1, 7))
    grid = g.constant(g.rng.uniform(-1.2, 1.2, (n, *out, 2)).astype(np.float32))
    attrs = {
        "mode": g.pick("linear", "cubic"),
        "padding_mode": g.pick("zeros", "border"),
        "align_corners": g.integer(0, 1),
    }
    if not g.profile.free:
        g.add("GridSample", [x, grid], (n, c, *out), x, limit=4 * x.limit, **attrs)


def groups(g: Pool) -> None:
    x = image(g, "GroupNormalization")
    if x is None or not g.since(21) or math.prod(x.shape[2:]) < 4 or x.dtype != F32:
        return  # others are normalised in f32, or not, as runtimes like
    count = x.shape[1]
    parts = g.pick(*(n for n in range(1, count + 1) if count % n == 0))
    factors = [g.weights(x.dtype, count) for _ in range(2)]
    g.add("GroupNormalization", [x, *factors], x.shape, x, limit=80.0, num_groups=parts, epsilon=0.125)


def quantised_product(g: Pool) -> None:
    """Products of integers with scales; what is rounded is far from halves only by luck."""
    x = g.find(lambda one: one.dtype in (U8, I8) and one.rank == 2 and one.size > 0 and one.shape[-1] <= 200)
    if x is None or not g.since(21) or g.profile.free:
        return
    outer = g.dim()
    weights = g.constant(g.rng.integers(-100, 100, (x.shape[-1], outer)).astype(np.int8))
    scales = [g.constant(np.float32(value)) for value in (0.0371, 0.0123, 0.213)]
    zeros = [
        g.constant(np.asarray(value).astype(kind)) for value, kind in ((3, x.dtype), (0, I8), (5, x.dtype))
    ]
    operands: list[str | Tensor] = [x, scales[0], zeros[0], weights, scales[1], zeros[1], scales[2], zeros[2]]
    g.add("QLinearMatMul", operands, (x.shape[0], outer), x, limit=256.0)


def integer_convolution(g: Pool) -> None:
    x = g.find(
        lambda one: one.dtype == U8 and one.rank == 4 and 0 < one.size <= 4000 and min(one.shape[2:]) >= 3
    )
    if x is None:
        return
    n, c, h, w = x.shape
    outer = g.integer(1, 9)
    weights = g.constant(g.rng.integers(-100, 100, (outer, c, 3, 2)).astype(np.int8))
    zero = g.constant(np.asarray(7, np.uint8))
    g.add("ConvInteger", [x, weights, zero], (n, outer, h - 2, w - 1), x, dtype=I32, limit=2.0**31)


STEPS: tuple[Step, ...] = (
    shape_of, determinant, crop, sample_grid, groups, quantised_product, integer_convolution,
)  # fmt: skip
