"""Cases of operators on space: pooling, sampling, images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.op_case import Case, f32, floats, ints


def spatial() -> Iterator[Case]:
    yield from ()


def newer() -> Iterator[Case]:
    """What onnxruntime does not have: onnx's own reference is the oracle."""
    for direction in ("LEFT", "RIGHT"):
        for kind in (np.int8, np.int64):
            pair = [ints(3, 17, low=-99, high=99, dtype=kind), ints(17, low=-3, high=70, seed=1, dtype=kind)]
            yield Case("BitShift", pair, {"direction": direction}, 28, label=np.dtype(kind).name)
    for numbers in (f32(5, -5, 5.5, -5.5, 0, -0.0, 1, -1, np.inf, np.nan), floats(10, dtype=np.float16)):
        divisors = np.array([[3], [-3], [np.inf], [-np.inf], [0.7]], numbers.dtype)
        yield Case("Mod", [numbers, divisors], opset=28, label=str(numbers.dtype), tolerance=1e-3)


REFERENCE_CASES = [*newer()]
