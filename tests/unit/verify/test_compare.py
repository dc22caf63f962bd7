"""Comparison finds the worst element, whatever the numbers are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from compiler.verify.compare import compare, worse

NAN, INF = math.nan, math.inf


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_worst_element_and_scale() -> None:
    one = compare("y", f32(1, 2, -7.5).reshape(3, 1), f32(1, 2.25, -8).reshape(3, 1), 0.0625)
    assert (one.max_error, one.scale, one.where) == (0.5, 8.0, (2, 0))
    assert (one.actual, one.expected, one.needed) == (-7.5, -8.0, 0.0625)
    assert one.passed
    assert not compare("y", f32(1, 2, -7.5), f32(1, 2.25, -8), 0.06).passed


@pytest.mark.parametrize(
    ("actual", "expected", "passed"),
    [
        (f32(NAN, 1), f32(NAN, 1), True),
        (f32(INF, 1), f32(INF, 1), True),
        (f32(-INF, 1), f32(INF, 1), False),
        (f32(NAN, 1), f32(2, 1), False),
        (f32(2, 1), f32(NAN, 1), False),
        (f32(INF, 1), f32(2, 1), False),
        (f32(2, 1), f32(INF, 1), False),
        (f32(0, 0), f32(0, 0), True),
        (f32(0, -0.0), f32(0, 0), True),
        (f32(1e-3, 0), f32(0, 0), False),
        (f32(), f32(), True),
    ],
)
def test_special_values(actual: np.ndarray, expected: np.ndarray, passed: bool) -> None:
    assert compare("y", actual, expected, 1e-4).passed is passed


def test_scale_of_infinite_reference_is_its_finite_part() -> None:
    assert compare("y", f32(INF, 4), f32(INF, 4), 0).scale == 4


def test_whole_numbers_must_be_equal() -> None:
    big = np.array([2**62, 5], np.int64)
    assert compare("y", big, big.copy(), 1.0).passed
    near = compare("y", big + np.array([1, 0]), big, 1.0)
    assert not near.passed
    assert near.where == (0,)
    assert not compare("y", np.array([True]), np.array([False]), 1.0).passed


def test_other_shape_or_type_is_a_problem() -> None:
    assert "shape" in compare("y", f32(1), f32(1, 2), 1).problem
    assert "type" in compare("y", f32(1), f32(1).astype(np.float64), 1).problem
    assert not compare("y", f32(1), f32(1, 2), 1).passed


def test_worse() -> None:
    good, bad = compare("y", f32(1), f32(1), 1), compare("y", f32(2), f32(1), 1)
    broken = compare("y", f32(1), f32(1, 2), 1)
    assert worse(good, bad) is bad
    assert worse(bad, good) is bad
    assert worse(bad, broken) is broken
    assert worse(broken, bad) is broken


arrays = hnp.arrays(np.float32, (3, 4), elements=st.floats(width=32))


@given(arrays, arrays)
def test_agrees_with_numpy_allclose(actual: np.ndarray, expected: np.ndarray) -> None:
    tolerance = 0.01
    finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    scale = float(finite.max(initial=0.0)) or 1.0
    close = np.isclose(
        actual.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance * scale, equal_nan=True
    )
    result = compare("y", actual, expected, tolerance)
    if abs(result.needed - tolerance) > 1e-12:
        assert result.passed == bool(close.all())
