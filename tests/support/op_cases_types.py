"""Cases for element types: conversions between all of them, and moving what is stored only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from tests.support.onnx_models import run_reference
from tests.support.op_case import Case, floats, ints

NAN, INF = float("nan"), float("inf")
SMALL_FLOATS: dict[int, Any] = {
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
}
SMALL_INTS: dict[int, Any] = {
    TensorProto.INT4: ml_dtypes.int4,
    TensorProto.UINT4: ml_dtypes.uint4,
    TensorProto.INT2: ml_dtypes.int2,
    TensorProto.UINT2: ml_dtypes.uint2,
}


def edges(kind: Any) -> np.ndarray:
    """All numbers of a float type, the middles between them, what lies just beside these, and specials."""
    exact = np.arange(1 << (4 if kind is ml_dtypes.float4_e2m1fn else 8), dtype=np.uint8).view(kind)
    exact = np.unique(exact.astype(np.float32)[np.isfinite(exact.astype(np.float32))])
    middles = (exact[1:] + exact[:-1]) / 2
    near = [np.nextafter(middles, np.float32(side)) for side in (-INF, INF)]
    special = [NAN, INF, -INF, 0.0, -0.0, 1e9, -1e9, 1e-30, -1e-30]
    ends = [exact[-1] * np.float32(1 + by) for by in (0.01, 0.03, 0.0625, 0.07, 0.125, 0.13, 0.25, 0.3)]
    return np.concatenate([exact, middles, *near, special, ends]).astype(np.float32)


def cases() -> Iterator[Case]:
    yield from _casts()
    yield from _powers()
    yield from _moved()
    for op in ("HardSigmoid", "LeakyRelu"):  # their defaults are numbers of 32 bits
        yield Case(
            op, [floats(3, 5).astype(np.float64)], {}, 18, tolerance=1e-14, label="f64", oracle=run_reference
        )
    for to in (TensorProto.INT32, TensorProto.UINT32, TensorProto.FLOAT):
        yield Case("BitCast", [floats(3, 5)], {"to": to}, 26, label=f"to{to}")
    yield Case("BitCast", [ints(3, 5, dtype=np.int16)], {"to": TensorProto.FLOAT16}, 26)


def _casts() -> Iterator[Case]:
    for to, kind in SMALL_FLOATS.items():
        values = edges(kind)
        for saturate in (1, 0):
            attrs = {"to": to, "saturate": saturate}
            yield Case("Cast", [values], attrs, 24, label=f"to{to}", oracle=run_reference)
        back = values.astype(kind)
        yield Case("Cast", [back], {"to": TensorProto.FLOAT}, 24, label=f"from{to}", oracle=run_reference)
        yield Case("CastLike", [values, back[:1]], {}, 24, label=f"to{to}", oracle=run_reference)
    for to, kind in SMALL_INTS.items():
        for source in (ints(23, low=-9, high=20, dtype=np.int32), floats(3, 5, low=-9, high=9)):
            yield Case("Cast", [source], {"to": to}, 25, label=f"to{to}", oracle=run_reference)
        back = ints(23, low=-9, high=20, dtype=np.int32).astype(kind)
        for other in (TensorProto.FLOAT16, TensorProto.INT8, TensorProto.BOOL):
            yield Case("Cast", [back], {"to": other}, 25, label=f"from{to}to{other}", oracle=run_reference)
    middles = 1 + (np.arange(12) + 0.5) * 2.0**-10
    wide = np.concatenate([middles, middles + 2.0**-40, middles - 2.0**-40, [NAN, INF, -INF, 1e300, -0.0]])
    yield Case("Cast", [wide], {"to": TensorProto.FLOAT16}, 24, label="twice", oracle=run_reference)


def _powers() -> Iterator[Case]:
    """Powers of two and numbers between them, normal in f32: there onnx's evaluator does as its text says."""
    exact = np.exp2(np.arange(-125, 127, 7, dtype=np.float32))
    values = np.concatenate([exact * np.float32(by) for by in (1, 1.25, 1.5, 1.75)])
    for mode in ("up", "down", "nearest"):
        attrs = {"to": TensorProto.FLOAT8E8M0, "round_mode": mode}
        yield Case("Cast", [values], attrs, 24, oracle=run_reference)
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)
    yield Case("Cast", [codes], {"to": TensorProto.FLOAT}, 24, label="powers", oracle=run_reference)


def _moved() -> Iterator[Case]:
    for kind in (*SMALL_FLOATS.values(), *SMALL_INTS.values(), ml_dtypes.float8_e8m0fnu):
        x = np.arange(1, 16, dtype=np.float32).reshape(3, 5).astype(kind)
        yield Case("Transpose", [x], {}, 25, label=np.dtype(kind).name, oracle=run_reference)
