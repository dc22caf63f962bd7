"""Programs in text form that use the whole loop IR, run by the interpreter and compared with numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.loops.interp import interpret
from compiler.loops.ir import Func
from compiler.loops.text import parse_func, print_func
from compiler.loops.verify import Stage, problems_of
from compiler.schedule import matrix_intrinsics

HERE = Path(__file__).parent
assert matrix_intrinsics.MATRIX_INTRINSICS  # importing it makes the calls known
FILES = sorted(HERE.glob("*.loops"))
Arrays = dict[str, Any]
Case = Callable[[np.random.Generator], tuple[Arrays, Arrays]]


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def matmul(rows: int, depth: int, columns: int) -> Case:
    def case(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
        a, b = normal(rng, rows, depth), normal(rng, depth, columns)
        return {"a": a, "b": b}, {"c": a.astype(np.float64) @ b.astype(np.float64)}

    return case


def gemm_fragment(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    inputs, outputs = matmul(32, 24, 16)(rng)
    bias = normal(rng, 16)
    return {**inputs, "bias": bias}, {"c": np.maximum(outputs["c"] + bias, 0)}


def gemm_amx(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    a = normal(rng, 32, 37).astype(ml_dtypes.bfloat16)
    b = normal(rng, 37, 16).astype(ml_dtypes.bfloat16)
    return {"a": a, "b": b}, {"c": a.astype(np.float64) @ b.astype(np.float64)}


def convolve(x: Any, w: Any) -> Any:
    kernel = w.shape[-1]
    size = x.shape[-1] - kernel + 1
    y = np.zeros((x.shape[0], w.shape[0], x.shape[2] - kernel + 1, size))
    for i in range(kernel):
        for j in range(kernel):
            part = x[:, :, i : i + y.shape[2], j : j + size].astype(np.float64)
            y += np.einsum("nchw,oc->nohw", part, w[:, :, i, j].astype(np.float64))
    return y


def winograd(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    # Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015, section 4.1
    x, w = normal(rng, 2, 3, 8, 8), normal(rng, 4, 3, 3, 3)
    g = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)
    bt = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float32)
    at = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float32)
    return {"x": x, "w": w, "g": g, "bt": bt, "at": at}, {"y": convolve(x, w)}


def softmax_of(x: Any) -> Any:
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def softmax(rows: int, columns: int) -> Case:
    def case(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
        x = normal(rng, rows, columns) * 4
        return {"x": x}, {"y": softmax_of(x)}

    return case


def lrn(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    x = normal(rng, 1, 8, 3, 3) * 100
    wide = x.astype(np.float64)
    squares = np.stack(
        [(wide[:, max(0, c - 2) : c + 3] ** 2).sum(axis=1) for c in range(8)],
        axis=1,
    )
    return {"x": x}, {"y": wide / (1 + 1e-4 / 5 * squares) ** 0.75}


def gemv_int4(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    x = normal(rng, 64)
    w = rng.integers(0, 16, (12, 64)).astype(np.uint8)
    scale = rng.uniform(0.01, 0.1, (12, 4)).astype(np.float16)
    wide = (w.astype(np.float64) - 8) * np.repeat(scale.astype(np.float64), 16, axis=1)
    return {"x": x, "w": w, "scale": scale}, {"y": wide @ x.astype(np.float64)}


def argmax(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    x = rng.integers(0, 5, (5, 13)).astype(np.float32)
    return {"x": x}, {"best": x.max(axis=1), "place": x.argmax(axis=1)}


def conv_flat(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    # a row convolution: y[h, j, o] = relu(bias[o] + sum over k of row[h][j + k] * w[o // 8, k, o % 8])
    x, w, bias = normal(rng, 448), normal(rng, 576), normal(rng, 16)
    y = np.zeros((5, 10, 16))
    for h in range(5):
        row = np.zeros(168)
        row[:147] = x[h * 49 : h * 49 + 147]
        for j in range(10):
            for o in range(16):
                weights = w.reshape(2, 36, 8)[o // 8, :, o % 8].astype(np.float64)
                y[h, j, o] = max(bias[o] + row[j : j + 36] @ weights, 0)
    return {"x": x, "w": w, "bias": bias}, {"y": y.ravel()}


def scale_tail(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    x, even = normal(rng, 21), rng.integers(0, 2, 21).astype(bool)
    padded = np.append(x, np.zeros(3, np.float32))
    flipped = padded.reshape(-1, 2)[:, ::-1].ravel()[:21]
    total = np.array([x.astype(np.float64).sum()])
    return {"x": x, "even": even}, {"y": np.where(even, x * 2, -flipped), "total": total}


def dynamic_rows(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    x, w = normal(rng, 14, 8), normal(rng, 8)
    return {"x": x, "w": w}, {"y": x.astype(np.float64) @ w.astype(np.float64)}


CASES: dict[str, Case] = {
    "argmax": argmax,
    "conv_flat": conv_flat,
    "dynamic_rows": dynamic_rows,
    "gemm_amx": gemm_amx,
    "gemm_async": matmul(32, 32, 16),
    "gemm_fragment": gemm_fragment,
    "gemm_shared": matmul(32, 24, 32),
    "gemv_int4": gemv_int4,
    "lrn": lrn,
    "scale_tail": scale_tail,
    "softmax": softmax(6, 10),
    "softmax_subgroup": softmax(4, 80),
    "winograd": winograd,
}


SCHEDULED = {"argmax", "dynamic_rows", "lrn", "softmax", "winograd"}
FLAT = {"conv_flat", "scale_tail"}


def stage_of(name: str) -> Stage:
    if name in SCHEDULED:
        return "scheduled"
    return "flat" if name in FLAT else "lowered"


def load(name: str) -> Func:
    path = HERE / f"{name}.loops"
    return parse_func(path.read_text(), path.name)


def test_every_file_has_a_reference() -> None:
    assert {path.stem for path in FILES} == set(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("shuffle", [None, 1])
def test_the_interpreter_agrees_with_numpy(name: str, shuffle: int | None) -> None:
    inputs, expected = CASES[name](np.random.default_rng(7))
    got = interpret(load(name), inputs, shuffle=shuffle)
    assert set(got) == set(expected)
    for key, value in expected.items():
        assert np.isfinite(got[key]).all(), key
        np.testing.assert_allclose(got[key], value, rtol=2e-5, atol=2e-5 * np.abs(value).max())


@pytest.mark.parametrize("name", sorted(CASES))
def test_nothing_races(name: str) -> None:
    inputs, _ = CASES[name](np.random.default_rng(7))
    interpret(load(name), inputs, races=True)


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_text_is_canonical_and_round_trips(name: str) -> None:
    text = (HERE / f"{name}.loops").read_text()
    func = parse_func(text)
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("#")) + "\n"
    assert print_func(func) == bare
    assert parse_func(print_func(func)) == func


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_verifier_accepts_it(name: str) -> None:
    assert problems_of(load(name), stage_of(name)) == ()
