"""One small case of an op record, and what its inputs are made of."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.onnx_models import run_onnxruntime

Input = np.ndarray | None


@dataclass(frozen=True)
class Case:
    """One node and its inputs; those in `known` are initializers, and `oracle` says what is right."""

    op: str
    inputs: Sequence[Input]
    attrs: dict[str, Any] = field(default_factory=dict)
    opset: int = 17
    known: Sequence[int] = ()
    outputs: int = 1
    tolerance: float = 1e-5
    label: str = ""
    oracle: Callable[..., dict[str, np.ndarray]] = run_onnxruntime

    @property
    def name(self) -> str:
        shapes = "x".join("-" if a is None else ",".join(map(str, a.shape)) for a in self.inputs)
        text = "_".join(f"{k}={v}" for k, v in self.attrs.items() if not hasattr(v, "dims"))
        return f"{self.op}-{self.opset}-{shapes}-{text}{self.label}".replace(" ", "")


def floats(
    *shape: int, seed: int = 0, low: float = -2, high: float = 2, dtype: Any = np.float32
) -> np.ndarray:
    rng = np.random.default_rng([seed, zlib.crc32(repr(shape).encode())])
    return rng.uniform(low, high, shape).astype(dtype)


def ints(*shape: int, low: int = -9, high: int = 9, seed: int = 0, dtype: Any = np.int64) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def bools(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(0, 2, shape).astype(bool)


def i64(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def f32(*values: float) -> np.ndarray:
    return np.asarray(values, np.float32)


def scalar(value: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(value, dtype)
