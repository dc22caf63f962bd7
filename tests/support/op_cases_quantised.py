"""Cases for quantised operators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import ml_dtypes
import numpy as np
from onnx import TensorProto

from tests.support.onnx_models import run_reference
from tests.support.op_case import Case, f32, floats, ints, scalar

X = floats(2, 3, 5, low=-40, high=40)


def quantised() -> Iterator[Case]:
    yield from _scaled()
    yield from _products()


def _scaled() -> Iterator[Case]:
    for kind, zero in ((np.uint8, 128), (np.int8, -3), (np.uint16, 999), (np.int16, -7)):
        values, point = ints(2, 3, 5, low=0, high=120, dtype=kind), scalar(zero, kind)
        yield Case("QuantizeLinear", [X, scalar(0.13), point], {}, 21, label=np.dtype(kind).name)
        yield Case("DequantizeLinear", [values, scalar(0.13), point], {}, 21, label=np.dtype(kind).name)
    halves = (
        np.arange(-40, 40, dtype=np.float32) / 2 * np.float32(0.1)
    )  # what a reciprocal would round otherwise
    yield Case("QuantizeLinear", [halves, scalar(0.1), scalar(7, np.uint8)], {}, 13, known=[1, 2])
    scales, points = f32(0.5, 0.3, 2), np.asarray([1, 2, 3], np.uint8)
    for axis in (1, -2):
        yield Case("QuantizeLinear", [X, scales, points], {"axis": axis}, 13)
    yield Case("DequantizeLinear", [ints(2, 3, 5, low=0, dtype=np.uint8), scales, points], {"axis": 1}, 13)
    yield Case(
        "DequantizeLinear", [ints(2, 3, 5, low=-(1 << 30), high=1 << 30, dtype=np.int32), scalar(0.5)], {}, 13
    )
    blocks = floats(2, 3, 3, low=0.1, high=1)
    attrs = {"axis": 2, "block_size": 2}
    for small in (ml_dtypes.int4, ml_dtypes.uint4):
        zeros = ints(2, 3, 3, low=0, high=3, dtype=np.int32).astype(small)
        values = ints(2, 3, 5, low=0, high=7, dtype=np.int32).astype(small)
        name = np.dtype(small).name
        yield Case("QuantizeLinear", [X, blocks, zeros], attrs, 21, label=name, oracle=run_reference)
        yield Case("DequantizeLinear", [values, blocks, zeros], attrs, 21, label=name, oracle=run_reference)
    for to in (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2FNUZ, TensorProto.FLOAT4E2M1):
        attrs = {"output_dtype": to}
        yield Case("QuantizeLinear", [X, scalar(3)], attrs, 23, label=f"to{to}", oracle=run_reference)
    yield Case("DynamicQuantizeLinear", [X], {}, 11, outputs=3)


def _products() -> Iterator[Case]:
    a, b = ints(4, 6, low=0, high=255, dtype=np.uint8), ints(6, 5, low=-128, high=127, dtype=np.int8)
    # Without VNNI onnxruntime adds pairs of products of u8 and i8 in 16 bits, which saturate.
    exact = partial(Case, opset=10, oracle=run_reference)
    yield exact("MatMulInteger", [a, b], {})
    yield exact("MatMulInteger", [a, b, scalar(200, np.uint8)], {})
    yield exact("MatMulInteger", [a, b, scalar(200, np.uint8), ints(5, dtype=np.int8)], {})
    image, filters = (
        ints(1, 4, 7, 6, low=0, high=255, dtype=np.uint8),
        ints(6, 2, 3, 3, low=0, high=255, dtype=np.uint8),
    )
    attrs = {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 1]}
    points = [scalar(120, np.uint8), scalar(130, np.uint8)]
    yield Case("ConvInteger", [image, filters[:, :2], *points], attrs, 10)
    yield Case("ConvInteger", [image[:, :2], filters], {}, 10)
    done = [scalar(0.9), scalar(100, np.uint8)]
    left = [a, scalar(0.02), scalar(120, np.uint8)]
    yield exact("QLinearMatMul", [*left, b, scalar(0.3), scalar(0, np.int8), *done], {})
    per_column = [b, floats(5, low=0.1, high=0.5), np.zeros(5, np.int8)]
    yield exact("QLinearMatMul", [*left, *per_column, *done], {}, label="columns")
    source = [image, scalar(0.02), scalar(120, np.uint8)]
    weights = [filters, floats(6, low=0.01, high=0.05), np.full(6, 130, np.uint8)]
    bias = ints(6, low=-9999, high=9999, dtype=np.int32)
    yield Case("QLinearConv", [*source, *weights, *done, bias], attrs, 10)
