"""Floats of 16 and 8 bits in generated kernels against numpy and ml_dtypes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from compiler.core.process import run
from compiler.runtime.library import INCLUDE
from tests.support.model_library import COMPILERS, FIXTURES

ml_dtypes = pytest.importorskip("ml_dtypes")

_TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}


@pytest.fixture(scope="module", params=[1, 16])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions with the number of lanes asked for."""
    output = tmp_path_factory.mktemp("narrow") / "narrow.so"
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", f"-DLANES={request.param}"]
    command = [COMPILERS[0], *flags, "-shared", "-fPIC", "-I", str(INCLUDE), str(FIXTURES / "narrow.cpp")]
    done = run([*command, "-o", str(output)])
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(output))


@pytest.mark.parametrize("name", _TYPES)
def test_every_code_widens_exactly(library: ctypes.CDLL, name: str) -> None:
    kind = np.dtype(_TYPES[name])
    codes = np.arange(1 << (8 * kind.itemsize), dtype=f"u{kind.itemsize}")
    result = np.empty(codes.size, np.float32)
    _call(library, f"widen_{name}", codes, result)
    with np.errstate(invalid="ignore"):
        expected = codes.view(kind).astype(np.float32)
    np.testing.assert_array_equal(result, expected)
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[finite]), np.signbit(expected[finite]))


@pytest.mark.parametrize("name", _TYPES)
def test_narrowing_rounds_as_numpy_does(library: ctypes.CDLL, name: str) -> None:
    kind = np.dtype(_TYPES[name])
    values = _interesting(kind)
    result = np.empty(values.size, f"u{kind.itemsize}")
    _call(library, f"narrow_{name}", values, result)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(kind)
    actual = result.view(kind)
    nan = np.isnan(values)
    assert np.isnan(actual[nan].astype(np.float32)).all()
    different = (result != expected.view(result.dtype)) & ~nan
    different &= ~(np.isnan(actual.astype(np.float32)) & np.isnan(expected.astype(np.float32)))
    assert not different.any(), [value.hex() for value in map(float, values[different][:5])]


def _interesting(kind: np.dtype) -> np.ndarray:
    """All representable values, the middles between neighbours, their f32 neighbours, and any floats."""
    codes = np.arange(1 << (8 * kind.itemsize), dtype=f"u{kind.itemsize}").view(kind)
    with np.errstate(invalid="ignore"):
        exact = codes.astype(np.float32)
        exact = exact[np.isfinite(exact)]
        ordered = np.unique(exact).astype(np.float64)
    middles = ((ordered[1:] + ordered[:-1]) / 2).astype(np.float32)
    special = np.array(
        [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e38, -1e38, 1e-45, 65519.9, 65520, 464, 480], np.float32
    )
    any_bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32)
    base = np.concatenate([exact, middles, special, any_bits])
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.concatenate(
            [base, np.nextafter(base, np.float32(np.inf)), np.nextafter(base, np.float32(-np.inf))]
        )
    return np.resize(values, -(-values.size // 16) * 16)


def _call(library: ctypes.CDLL, name: str, source: np.ndarray, target: np.ndarray) -> None:
    function = getattr(library, name)
    function(
        ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(target.ctypes.data), ctypes.c_int64(source.size)
    )
