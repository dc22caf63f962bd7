"""Winograd's transforms: exact in rationals, and as a form in loops."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from compiler.core.types import F32
from compiler.graph.attrs import Attrs
from compiler.graph.ir import NodeInfo, TensorType
from compiler.graph.ops.linear import CONV
from compiler.graph.ops.windows import Windows
from compiler.graph.ops.winograd import POINTS, TAPS, Transforms, is_winograd, transforms
from compiler.loops.annotations import is_constant_only, stage_of
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import Func


def exact(row: Sequence[float], values: Sequence[int]) -> Fraction:
    """A row times a vector; the factors of filters are multiples of 1/24."""
    return sum((Fraction(a).limit_denominator(24) * b for a, b in zip(row, values, strict=True)), Fraction(0))


def back(power: int, m: int, t: Transforms, products: Sequence[Fraction]) -> Fraction:
    """One result from the products at 0, infinity, p, -p, ..."""
    total = (products[0] if power == 0 else Fraction(0)) + (products[1] if power == m - 1 else Fraction(0))
    for number, point in enumerate(t.points):
        plus, minus = products[2 + 2 * number], products[3 + 2 * number]
        total += Fraction(point) ** power * (plus + (-1) ** power * minus)
    return total


@pytest.mark.parametrize("m", POINTS)
def test_the_matrices_are_exact(m: int) -> None:
    t = transforms(m)
    source = np.random.default_rng(m)
    for _ in range(20):
        taps = [int(n) for n in source.integers(-9, 10, TAPS)]
        data = [int(n) for n in source.integers(-9, 10, m + TAPS - 1)]
        pairs = zip(t.filter, t.data, strict=True)
        products = [exact(f, taps) * exact(d, data) for f, d in pairs]
        wanted = [sum(taps[j] * data[i + j] for j in range(TAPS)) for i in range(m)]
        assert [back(i, m, t, products) for i in range(m)] == wanted


def info_of(
    shape: tuple[int, ...], outer: int, *, pad: int = 0, stride: int = 1, group: int = 1, taps: int = 3
) -> NodeInfo:
    axes = len(shape) - 2
    windows = Windows((taps,) * axes, (stride,) * axes, (1,) * axes, (pad,) * axes, (pad,) * axes)
    attrs = Attrs({**windows.attrs(), "group": group})
    types = (
        TensorType(F32, shape),
        TensorType(F32, (outer, shape[1] // group, *windows.kernel)),
        TensorType(F32, (outer,)),
    )
    return NodeInfo(attrs, types, tuple(CONV.infer(types, attrs)))


def loops_of(info: NodeInfo, form: str) -> Func:
    b = Builder("kernel")
    x, w, bias = (b.input(n, t.shape) for n, t in zip("xwb", info.in_types, strict=True))
    return b.finish([CONV.forms[form].build(b, [x, w, bias], info)])


@pytest.mark.parametrize("form", ["winograd-2", "winograd-4"])
@pytest.mark.parametrize(
    ("shape", "pad"), [((1, 2, 6, 6), 0), ((2, 3, 7, 5), 0), ((1, 1, 3, 9), 0), ((1, 2, 4, 5), 1)]
)
def test_the_form_means_the_convolution(form: str, shape: tuple[int, ...], pad: int) -> None:
    info, source = info_of(shape, 3, pad=pad), np.random.default_rng(7)
    arrays = [source.uniform(-1, 1, item.shape).astype(np.float32) for item in info.in_types]
    func = loops_of(info, form)
    got = interpret(func, dict(zip("xwb", arrays, strict=True)))
    (wanted,) = CONV.reference(arrays, info.attrs)
    np.testing.assert_allclose(next(iter(got.values())), wanted, 1e-4, 1e-5)


def test_the_filters_are_prepared_from_constants_alone() -> None:
    func = loops_of(info_of((1, 2, 8, 8), 3), "winograd-4")
    fixed = [block for block in func.blocks() if is_constant_only(block)]
    assert len(fixed) == 2 * (4 + TAPS - 1)
    assert {region.buffer.name for block in fixed for region in block.reads} == {"w", "filter_rows"}


@pytest.mark.parametrize("form", ["winograd-1x4", "winograd-4x1"])
@pytest.mark.parametrize("other", [1, 3])
@pytest.mark.parametrize(("image", "before", "after"), [((6, 6), 0, 0), ((7, 5), 0, 1), ((3, 9), 2, 0)])
def test_one_axis_alone_means_the_convolution(
    form: str, other: int, image: tuple[int, int], before: int, after: int
) -> None:
    kernel = (other, TAPS) if form == "winograd-1x4" else (TAPS, other)
    windows = Windows(kernel, (1, 1), (1, 1), (before, 0), (0, after))
    attrs = Attrs({**windows.attrs(), "group": 1})
    types = TensorType(F32, (2, 3, *image)), TensorType(F32, (2, 3, *kernel)), TensorType(F32, (2,))
    info = NodeInfo(attrs, types, tuple(CONV.infer(types, attrs)))
    assert CONV.forms[form].applies(info)
    source = np.random.default_rng(8)
    arrays = [source.uniform(-1, 1, item.shape).astype(np.float32) for item in types]
    got = interpret(loops_of(info, form), dict(zip("xwb", arrays, strict=True)))
    (wanted,) = CONV.reference(arrays, attrs)
    np.testing.assert_allclose(next(iter(got.values())), wanted, 1e-4, 1e-5)


def test_along_one_axis_half_of_the_products_are_left() -> None:
    func = loops_of(info_of((1, 2, 5, 12), 3, pad=1), "winograd-1x4")
    (products,) = [block for block in func.blocks() if stage_of(block) == "products"]
    counts = [getattr(item.extent, "value", 0) for item in products.iters]
    assert counts == [3, 6, 3, 5 * 3, 2]  # 4.5 products for each of 5 x 12 results and 2 channels


@pytest.mark.parametrize(
    ("info", "fits"),
    [
        (info_of((1, 4, 8, 8), 4), True),
        (info_of((1, 4, 8, 8), 4, stride=2), False),
        (info_of((1, 4, 8, 8), 4, group=2), False),
        (info_of((1, 4, 8, 8), 4, taps=5), False),
        (info_of((1, 4, 8), 4), False),
    ],
)
def test_where_the_form_applies(info: NodeInfo, fits: bool) -> None:
    assert is_winograd(info) is fits
