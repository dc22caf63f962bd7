"""The header of CUDA and HIP kernels as plain C++: the same text, with a host's words for a device's."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from compiler.core.process import run
from compiler.render.vocabulary import Vocabulary
from compiler.render.vocabulary_cuda import CUDA, HIP

FIXTURES = Path(__file__).parent / "fixtures"
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
LANGUAGES = {"cuda": CUDA, "hip": HIP}
NARROW = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}


def _library(directory: Path, cxx: str, words: Vocabulary) -> ctypes.CDLL:
    parts = [
        (FIXTURES / "simt_host.h").read_text(),
        words.prelude,
        (FIXTURES / "simt_functions.cpp").read_text(),
    ]
    (directory / "simt.cpp").write_text("\n".join(parts))
    mark = ("-DTK_HIP=1",) if words is HIP else ()
    flags = (
        "-std=c++17",
        "-O2",
        "-fPIC",
        "-shared",
        "-fwrapv",
        "-fno-strict-aliasing",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        "-Werror",
    )
    quiet = ("-Wno-unused-function", "-Wno-unused-variable", "-Wno-psabi")
    done = run([cxx, *flags, *quiet, *mark, "simt.cpp", "-o", "simt.so"], cwd=directory)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
    return ctypes.CDLL(str(directory / "simt.so"))


@pytest.fixture(
    scope="module", params=[(cxx, words) for cxx in COMPILERS for words in LANGUAGES], ids="-".join
)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    cxx, language = request.param
    return _library(tmp_path_factory.mktemp(f"simt-{language}"), cxx, LANGUAGES[language])


def call(library: ctypes.CDLL, name: str, dtype: Any, *arrays: NDArray[Any]) -> NDArray[Any]:
    result = np.empty(arrays[0].size, dtype)
    places = [ctypes.c_void_p(item.ctypes.data) for item in (*arrays, result)]
    getattr(library, name)(ctypes.c_int64(result.size), *places)
    return result


@pytest.mark.parametrize("name", NARROW)
def test_narrow_floats(library: ctypes.CDLL, name: str) -> None:
    kind: Any = NARROW[name]
    codes = np.arange(1 << (8 * np.dtype(kind).itemsize), dtype=f"u{np.dtype(kind).itemsize}")
    wide = call(library, f"{name}_to_f32", np.float32, codes)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(wide, codes.view(kind).astype(np.float32))
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    with np.errstate(all="ignore"):
        beside = [np.nextafter(wide, np.float32(way)) for way in (np.inf, -np.inf)]
        values = np.concatenate([bits.view(np.float32), wide, *beside])
        want = values.astype(kind).astype(np.float32)
    got = call(library, f"f32_to_{name}", codes.dtype, values).view(kind).astype(np.float32)
    np.testing.assert_array_equal(got, want)


SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, 0.5, 2.5, -88.0, 88.0, 1e-42, np.inf, -np.inf, np.nan], np.float32)


def test_functions_of_one_number(library: ctypes.CDLL) -> None:
    x = np.concatenate([SPECIAL, np.linspace(-30, 30, 1001, dtype=np.float32)])
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        want = {
            "sigmoid": 1 / (1 + np.exp(-wide)),
            "softplus": np.logaddexp(0.0, wide),
            "sign": np.sign(wide),
            "relu": np.maximum(wide, 0.0),
            "rounded": np.rint(wide),
        }
    for name, values in want.items():
        np.testing.assert_allclose(
            call(library, name, np.float32, x), values, rtol=1e-6, atol=1e-30, err_msg=name
        )


def test_extrema_keep_nan(library: ctypes.CDLL) -> None:
    a, b = (np.ascontiguousarray(item.ravel()) for item in np.meshgrid(SPECIAL, SPECIAL))
    np.testing.assert_array_equal(call(library, "larger", np.float32, a, b), np.maximum(a, b))
    np.testing.assert_array_equal(call(library, "smaller", np.float32, a, b), np.minimum(a, b))


def test_division_of_integers_never_traps(library: ctypes.CDLL) -> None:
    every = np.arange(-128, 128, dtype=np.int8)
    a, b = (np.ascontiguousarray(item.ravel()) for item in np.meshgrid(every, every))
    p, q = a.astype(np.int64), b.astype(np.int64)
    safe = np.where(q == 0, 1, q)
    trunc = np.where(q == 0, 0, (np.abs(p) // np.abs(safe)) * np.sign(p) * np.sign(safe)).astype(np.int8)
    rest = (p - trunc.astype(np.int64) * q).astype(np.int8)
    assert np.array_equal(call(library, "truncdiv_i8", np.int8, a, b), trunc)
    assert np.array_equal(call(library, "truncmod_i8", np.int8, a, b), rest)
    plain = (q != 0) & ~((p == -128) & (q == -1))
    floor = call(library, "floordiv_i8", np.int8, a, b)
    assert np.array_equal(floor[plain], (p // safe)[plain])
    assert np.array_equal(call(library, "floormod_i8", np.int8, a, b)[plain], (p % safe)[plain])
    unsigned = call(library, "floordiv_u8", np.uint8, a.view(np.uint8), b.view(np.uint8))
    assert np.array_equal(
        unsigned[q != 0], (a.view(np.uint8) // np.where(q == 0, 1, b.view(np.uint8)))[q != 0]
    )
    low = np.array([np.iinfo(np.int64).min, 7, -7], np.int64)
    by = np.array([-1, 0, 2], np.int64)
    assert call(library, "truncdiv_i64", np.int64, low, by).tolist() == [np.iinfo(np.int64).min, 0, -3]


def test_dot_of_bytes(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-(2**31), 2**31, 1000).astype(np.int32) for _ in range(2))
    parts = (item.view(np.int8).reshape(-1, 4).astype(np.int32) for item in (a, b))
    want = (next(parts) * next(parts)).sum(1) + 7
    assert np.array_equal(call(library, "dot_bytes", np.int32, a, b), want)


def test_vectors(library: ctypes.CDLL) -> None:
    a = np.array([1, -2, 3.7, 4, -5, 6, 7, 8, 9], np.float32)
    memory = np.zeros(16, np.float32)
    start = (-memory.ctypes.data // 4) % 4
    b = memory[start : start + 8]
    b[:] = [2, -3, 3.7, 5, 5, -6, 0, 1]
    y = np.full(64, -1, np.float32)
    begin = (-y.ctypes.data // 4) % 4
    out = y[begin : begin + 52]
    library.vectors(*(ctypes.c_void_p(item.ctypes.data) for item in (a, b, out)))
    u = a[:8]
    np.testing.assert_allclose(out[:8], np.where(u <= b, u + b, 1 - u * b), rtol=1e-6)
    assert np.array_equal(out[8:16], np.maximum(u, b))
    assert out[16:24].tolist() == [1, -2, np.float32(3.7), 9, 9, -1, -1, -1]
    assert out[24:31:2].tolist() == [2, np.float32(3.7), 5, 0]
    assert out[32:36].tolist() == [8, 6, 4, -2]
    assert out[36:40].tolist() == [1, -3, np.float32(3.7), 5]
    np.testing.assert_allclose(out[40:44], [u.sum(), 5, -6, -2 * np.float32(3.7)], rtol=1e-6)
    assert out[44:48].tolist() == [1, -2, 3, 4]
    assert out[48:52].tolist() == [1, 0, 0, 1]


def test_atomics(library: ctypes.CDLL) -> None:
    f, i = np.array([1], np.float32), np.array([1], np.int32)
    long, d = np.array([1], np.int64), np.array([1], np.float64)
    library.atomics(*(ctypes.c_void_p(item.ctypes.data) for item in (f, i, long, d)))
    assert (f[0], i[0], long[0], d[0]) == (7.5, 13, (1 << 40) + 1, 2.5)


def test_copies(library: ctypes.CDLL) -> None:
    memory = np.arange(24, dtype=np.float32)
    start = (-memory.ctypes.data // 4) % 4
    from_, to = memory[start : start + 8], np.full(24, -1, np.float32)
    at = (-to.ctypes.data // 4) % 4
    library.copies(ctypes.c_void_p(to[at:].ctypes.data), ctypes.c_void_p(from_.ctypes.data))
    assert to[at : at + 16].tolist() == [*from_[:7].tolist(), -1, *from_[4:8].tolist(), 0, 0, 0, 0]
