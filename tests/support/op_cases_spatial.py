"""Cases of operators on space: pooling, sampling, images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.support.onnx_models import run_reference
from tests.support.op_case import Case, f32, floats, i64, ints, scalar

IMAGE = floats(1, 4, 7, 6)


def pooling() -> Iterator[Case]:
    square: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2]}
    for p in (1, 2, 3):
        yield Case("LpPool", [IMAGE], {"kernel_shape": [2, 3], "p": p}, 11)
        yield Case("GlobalLpPool", [IMAGE], {"p": p}, 11)
    yield Case("LpPool", [IMAGE], {**square, "pads": [1, 0, 1, 1], "p": 3, "dilations": [2, 1]}, 18)
    yield Case("LpPool", [IMAGE], {**square, "ceil_mode": 1}, 18)
    yield Case("LpPool", [floats(2, 3, 9)], {"kernel_shape": [4], "auto_pad": "SAME_LOWER"}, 11)
    for p in (1, 2):
        for axis in (0, -1):
            yield Case("LpNormalization", [floats(3, 5, 4)], {"p": p, "axis": axis})
    yield Case("MaxPool", [IMAGE], {**square, "pads": [1, 1, 1, 1]}, 8, outputs=2)
    yield Case("MaxPool", [IMAGE], {**square, "storage_order": 1, "dilations": [2, 1]}, 12, outputs=2)
    yield Case("MaxPool", [floats(2, 3, 9)], {"kernel_shape": [3], "pads": [1, 2]}, 12, outputs=2)
    volume = floats(1, 2, 4, 5, 6)
    for order in (0, 1):
        more = {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2], "storage_order": order}
        yield Case("MaxPool", [volume], more, 11, outputs=2)
    equal = ints(2, 3, 6, 7, low=0, high=2, dtype=np.int8)
    yield Case("MaxPool", [equal], {**square, "pads": [1, 1, 1, 1], "ceil_mode": 1}, 12, outputs=2)
    larger = {"strides": [3, 2], "output_shape": [23, 13]}
    yield Case("ConvTranspose", [IMAGE, floats(4, 3, 3, 2, seed=1), floats(3)], larger, known=[1, 2])


def sampling() -> Iterator[Case]:
    grid = floats(1, 5, 3, 2, low=-1.4, high=1.4)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
                yield Case("GridSample", [IMAGE, grid], attrs, 16, tolerance=1e-4)
    volume, places = floats(2, 3, 4, 5, 3), floats(2, 3, 2, 4, 3, low=-1.4, high=1.4)
    for mode in ("linear", "nearest"):
        for padding in ("zeros", "reflection"):
            attrs = {"mode": mode, "padding_mode": padding}
            yield Case("GridSample", [volume, places], attrs, 20, tolerance=1e-4)
    far = np.array([[[[9, -9], [1e9, 0], [0, -1e12]]]], np.float32)
    yield Case("GridSample", [IMAGE, far], {}, 16, label="far")
    for corners in (0, 1):
        attrs = {"align_corners": corners}
        yield Case("AffineGrid", [floats(2, 2, 3), i64(2, 3, 5, 6)], attrs, 20, known=[1])
        yield Case("AffineGrid", [floats(1, 3, 4), i64(1, 3, 2, 3, 4)], attrs, 20, known=[1])


def regions() -> Iterator[Case]:
    rois = np.array([[0, 0, 5, 6], [1.5, 2, 3, 3.2], [-3, -2, 9, 8], [2, 2, 2, 2]], np.float32)
    images = i64(0, 1, 1, 0)
    for mode in ("avg", "max"):
        for coordinates in ("half_pixel", "output_half_pixel"):
            attrs = {"mode": mode, "output_height": 3, "output_width": 2, "sampling_ratio": 2,
                     "spatial_scale": 0.7, "coordinate_transformation_mode": coordinates}  # fmt: skip
            yield Case("RoiAlign", [floats(2, 3, 7, 6), rois, images], attrs, 16, tolerance=1e-4)
    yield Case("RoiAlign", [IMAGE, rois[:1], i64(0)], {"sampling_ratio": 1}, 10)
    weights = floats(6, 2, 3, 2, seed=1)
    offsets = floats(1, 24, 5, 5, low=-3, high=3)
    yield Case("DeformConv", [IMAGE, weights, offsets], {"group": 2, "offset_group": 2}, 19, tolerance=1e-4)
    more = {"strides": [2, 2], "pads": [1, 0, 1, 1], "dilations": [1, 2]}
    given = [floats(1, 12, 4, 3, low=-2), floats(4), floats(1, 6, 4, 3, low=0)]
    yield Case("DeformConv", [IMAGE, floats(4, 4, 3, 2), *given], more, 19, tolerance=1e-4)
    yield Case("DeformConv", [IMAGE, floats(4, 4, 3, 2), given[0], None, given[2]], more, 22, tolerance=1e-4)


def images() -> Iterator[Case]:
    yield Case("CenterCropPad", [IMAGE, i64(1, 4, 4, 9)], opset=18, known=[1])
    yield Case("CenterCropPad", [ints(5, 7), i64(8, 4)], opset=18, known=[1])
    yield Case("CenterCropPad", [IMAGE, i64(10, 3)], {"axes": [-2, 1]}, 18, known=[1])
    yield Case("Col2Im", [floats(2, 12, 15), i64(4, 6), i64(2, 2)], {}, 18, known=[1, 2])
    more = {"strides": [2, 1], "pads": [1, 0, 1, 2], "dilations": [1, 2]}
    yield Case("Col2Im", [floats(1, 12, 6), i64(5, 6), i64(3, 4)], more, 18, known=[1, 2])
    yield Case(
        "Col2Im", [floats(1, 8, 24), i64(3, 4, 5), i64(1, 2, 2)], {"strides": [1, 2, 1]}, 18, known=[1, 2]
    )


def unpooling() -> Iterator[Case]:
    kernel = {"kernel_shape": [2, 2], "strides": [2, 2]}
    places = i64(5, 7, 13, 15).reshape(1, 1, 2, 2)
    yield Case("MaxUnpool", [floats(1, 1, 2, 2), places], kernel, 11)
    yield Case("MaxUnpool", [floats(1, 1, 2, 2), places, i64(1, 1, 5, 6)], kernel, 11, known=[2])
    line = i64(1, 2, 7, 9, 10, 13).reshape(1, 2, 3)
    yield Case("MaxUnpool", [floats(1, 2, 3), line], {"kernel_shape": [3], "strides": [2]}, 9)


def signals() -> Iterator[Case]:
    real, pairs = floats(2, 10, 3, 1), floats(2, 12, 3, 2)
    for onesided in (0, 1):
        yield Case("DFT", [real], {"onesided": onesided}, 17)
    for inverse in (0, 1):
        yield Case("DFT", [pairs], {"inverse": inverse, "axis": 2}, 17)
        yield Case(
            "DFT", [pairs, scalar(15, np.int64), scalar(1, np.int64)], {"inverse": inverse}, 20, [1, 2]
        )
    yield Case("DFT", [pairs, scalar(7, np.int64), scalar(-3, np.int64)], {}, 20, [1, 2])
    for length in (12, 13):
        spectrum = floats(2, length // 2 + 1, 2)
        both = {"inverse": 1, "onesided": 1}
        yield Case("DFT", [spectrum, scalar(length, np.int64)], both, 20, [1])
    for inverse in (0, 1):  # longer than one product
        yield Case("DFT", [floats(1, 1030, 2)], {"inverse": inverse}, 20, tolerance=1e-4)
    signal, step = floats(2, 50, 1), scalar(7, np.int64)
    yield Case("STFT", [signal, step, floats(16)], {}, 17, [1])
    yield Case("STFT", [signal, step, None, scalar(20, np.int64)], {"onesided": 0}, 17, [1, 3])
    yield Case("STFT", [floats(2, 50, 2), step, floats(15)], {"onesided": 0}, 17, [1])
    bands = [scalar(8, np.int64), scalar(64, np.int64), scalar(8192, np.int64), scalar(20.0), scalar(4000.0)]
    yield Case("MelWeightMatrix", bands, {}, 17, range(5))


def resizing() -> Iterator[Case]:
    for mode in ("linear", "cubic"):
        attrs = {"mode": mode, "antialias": 1}
        yield Case("Resize", [IMAGE, None, f32(1, 1, 0.6, 0.45)], attrs, 18, [2], tolerance=1e-4)
        more = {**attrs, "exclude_outside": 1, "axes": [2, 3]}
        yield Case("Resize", [IMAGE, None, None, i64(3, 9)], more, 18, [3], tolerance=1e-4)
    for mode in ("nearest", "linear", "cubic"):
        attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize"}
        inside, sizes = f32(0, 0, 0.2, 0.1, 1, 1, 0.7, 0.8), i64(1, 4, 3, 5)
        yield Case("Resize", [IMAGE, inside, None, sizes], attrs, 13, [1, 3], tolerance=1e-4)
        beyond = {**attrs, "extrapolation_value": 7.0}
        region = f32(0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7)
        yield Case("Resize", [IMAGE, region, None, sizes], beyond, 13, [1, 3], tolerance=1e-4, label="7")
    region = f32(0.4, 0.6, 1.2, 1.7)
    yield Case(
        "Resize", [IMAGE, region, None, i64(1, 3)], {**beyond, "axes": [2, 3]}, 18, [1, 3], tolerance=1e-4
    )


def determinants() -> Iterator[Case]:
    yield Case("Det", [floats(1, 1)], opset=11)
    yield Case("Det", [floats(2, 3, 5, 5)], opset=11, tolerance=1e-4)
    swapped = np.array([[[0, 2, 1], [3, 0, 1], [0, 0, 4]], [[0, 1, 2], [0, 3, 1], [0, 2, 2]]], np.float32)
    yield Case("Det", [swapped], opset=11, label="pivots")
    yield Case("Det", [floats(9, 9)], opset=22, tolerance=1e-4)


def newer() -> Iterator[Case]:
    """What onnxruntime does not have: onnx's own reference is the oracle."""
    for direction in ("LEFT", "RIGHT"):
        for kind in (np.int8, np.int64):
            pair = [ints(3, 17, low=-99, high=99, dtype=kind), ints(17, low=-3, high=70, seed=1, dtype=kind)]
            yield Case("BitShift", pair, {"direction": direction}, 28, label=np.dtype(kind).name)
    for mode in ("DCR", "CRD"):
        yield Case("SpaceToDepth", [floats(1, 3, 4, 6)], {"blocksize": 2, "mode": mode}, 28)
    for numbers in (f32(5, -5, 5.5, -5.5, 0, -0.0, 1, -1, np.inf, np.nan), floats(10, dtype=np.float16)):
        divisors = np.array([[3], [-3], [np.inf], [-np.inf], [0.7]], numbers.dtype)
        yield Case("Mod", [numbers, divisors], opset=28, label=str(numbers.dtype), tolerance=1e-3)


def chance() -> Iterator[Case]:
    """With a seed: onnx's reference has the same numbers."""
    for op in ("RandomNormal", "RandomUniform"):
        yield Case(op, [], {"shape": [3, 5], "seed": 2.0})
        yield Case(f"{op}Like", [IMAGE], {"seed": 3.0, "dtype": TensorProto.FLOAT})


def spatial() -> Iterator[Case]:
    yield from pooling()
    yield from sampling()
    yield from resizing()
    yield from regions()
    yield from images()
    yield from determinants()
    for case in (*newer(), *chance(), *unpooling(), *signals()):
        yield replace(case, oracle=run_reference)
