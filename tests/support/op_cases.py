"""Small cases for every op record: what the node is given, in which opset."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto

from tests.support.onnx_models import run_reference
from tests.support.op_case import Case, bools, f32, floats, i64, ints, scalar
from tests.support.op_cases_indexing import indexed
from tests.support.op_cases_quantised import quantised
from tests.support.op_cases_recurrent import recurrent
from tests.support.op_cases_spatial import spatial
from tests.support.op_cases_types import cases as types

X = floats(2, 3, 5)
POSITIVE = floats(2, 3, 5, low=0.1, high=3)
IMAGE = floats(1, 4, 7, 6)


def elementwise() -> Iterator[Case]:
    for op in (
        "Relu", "Neg", "Abs", "Sign", "Floor", "Ceil", "Round", "Exp", "Sin", "Cos", "Tanh", "Erf", "Sigmoid",
        "Softplus", "Softsign", "LeakyRelu", "ThresholdedRelu", "Elu", "Celu", "Selu", "HardSigmoid",
        "HardSwish",
    ):  # fmt: skip
        yield Case(op, [X])
    for op in ("Sqrt", "Log", "Reciprocal"):
        yield Case(op, [POSITIVE])
    yield Case("Round", [f32(0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997)])
    yield Case("Mish", [X], opset=18)
    yield Case("Gelu", [X], opset=20)
    yield Case("Gelu", [X], {"approximate": "tanh"}, opset=20)
    yield Case("Swish", [X], {"alpha": 1.5}, opset=24)
    yield Case("LeakyRelu", [X], {"alpha": 0.3}, 7)
    yield Case("Elu", [X], {"alpha": 0.5})
    yield Case("Celu", [X], {"alpha": 0.7})
    yield Case("HardSigmoid", [X], {"alpha": 0.4, "beta": 0.3})
    yield Case("Relu", [ints(3, 4, dtype=np.int32)], opset=14)
    yield Case("Neg", [ints(3, 4)])
    yield Case("Abs", [ints(3, 4, dtype=np.int32)])
    yield Case("Sign", [ints(3, 4)])
    yield Case("Not", [bools(3, 4)])
    yield Case("IsNaN", [f32(1, np.nan, np.inf)])
    for op in ("Add", "Sub", "Mul", "Div"):
        yield Case(op, [X, floats(2, 3, 5, seed=1)])
        yield Case(op, [X, floats(3, 1, seed=1, low=0.5)], opset=7)
        yield Case(op, [floats(4, seed=2), floats(2, 1, 4, low=0.5)], opset=13)
        yield Case(op, [ints(4, 3), ints(3, low=1, high=5)], opset=13)
        yield Case(op, [X, scalar(0.7)], known=[1])
        yield Case(op, [scalar(0.7), X], known=[0])
    for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        yield Case(op, [ints(4, 3, low=0, high=3), ints(3, low=0, high=3)], opset=13)
        yield Case(op, [X, floats(3, 5, seed=1)], opset=13)
    for op in ("And", "Or", "Xor"):
        yield Case(op, [bools(4, 3), bools(3, seed=1)], opset=13)
    yield Case("PRelu", [IMAGE, floats(4, 1, 1)])
    yield Case("PRelu", [X, floats(5)], opset=9)
    for op in ("Max", "Min", "Sum", "Mean"):
        yield Case(op, [X, floats(3, 1, seed=1), floats(5, seed=2)], opset=13)
        yield Case(op, [X], opset=8)
        yield Case(op, [X, floats(2, 3, 5, seed=1)], opset=8)
    yield Case("Pow", [POSITIVE, floats(5, seed=1)], tolerance=1e-4)
    for power in (2, 3, 0.5, 1, -1, 1.7):
        yield Case("Pow", [POSITIVE, scalar(power)], known=[1], label=f"to{power}", tolerance=1e-4)
    yield Case("Pow", [POSITIVE, ints(5, low=0, high=4, dtype=np.int32)], opset=13)
    whole = ints(3, 17, low=-5, high=5, dtype=np.int32)
    yield Case("Pow", [whole, ints(17, low=0, high=4, dtype=np.int32)], opset=13, label="i32")
    yield Case("Pow", [np.abs(whole) + 1, floats(17, low=-1)], opset=13, label="fractions")
    yield Case("Pow", [ints(3, 5, low=1), ints(5, low=-1, high=4)], opset=13, label="i64")
    yield Case("Mod", [ints(4, 3), ints(3, low=1, high=5)], opset=13)
    yield Case("Mod", [ints(4, 3), ints(3, low=1, high=5)], {"fmod": 1}, opset=13)
    yield Case("Mod", [X, floats(5, low=0.5)], {"fmod": 1}, opset=13)
    yield Case("Where", [bools(3, 1), X, floats(2, 1, 5, seed=3)])
    for target in (
        TensorProto.INT32,
        TensorProto.DOUBLE,
        TensorProto.BOOL,
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
    ):
        yield Case("Cast", [floats(3, 4, high=5)], {"to": target}, label=f"to{target}")
    yield Case("Cast", [bools(3, 4)], {"to": TensorProto.FLOAT})
    yield Case("Cast", [ints(3, 4)], {"to": TensorProto.FLOAT}, opset=9)
    yield Case("CastLike", [ints(3, 4), X], opset=15)
    yield Case("Clip", [X], {"min": -0.5, "max": 1.0}, 7)
    yield Case("Clip", [X], {"min": 0.0}, 7)
    yield Case("Clip", [X, scalar(-0.5), scalar(1)], known=[1, 2])
    yield Case("Clip", [X, None, scalar(1)], known=[2])
    yield Case("Clip", [X, scalar(0)], known=[1])
    yield Case("Clip", [X, scalar(0), scalar(6)], known=[1, 2])
    yield Case("Clip", [X, scalar(-0.5), scalar(1)], label="runtime")
    yield Case("Clip", [X, None, scalar(1)], label="runtime")
    yield Case("Clip", [ints(3, 4), scalar(-2, np.int64), scalar(3, np.int64)], known=[1, 2], opset=13)
    half = floats(3, 4, dtype=np.float16)
    yield Case("Add", [half, floats(4, seed=1, dtype=np.float16)], tolerance=1e-3)
    yield Case("Sigmoid", [half], tolerance=1e-3)
    yield Case("Exp", [floats(3, 4, dtype=np.float64)])


def functions() -> Iterator[Case]:
    for op in ("Tan", "Atan", "Sinh", "Cosh", "Asinh"):
        yield Case(op, [floats(3, 17, low=-9, high=9)])
    for op in ("Asin", "Acos", "Atanh"):
        yield Case(op, [floats(3, 17, low=-1, high=1)])
    yield Case("Acosh", [floats(3, 17, low=1, high=50)])
    yield Case("Shrink", [X], {"lambd": 0.7, "bias": 0.3})
    yield Case("Shrink", [ints(3, 17, dtype=np.int32)], {"lambd": 2.5, "bias": 1.0})
    infinities = f32(1, np.nan, np.inf, -np.inf, -0.0)
    for flags in (
        {},
        {"detect_negative": 0},
        {"detect_positive": 0},
        {"detect_negative": 0, "detect_positive": 0},
    ):
        yield Case("IsInf", [infinities], flags, 10)


def bits() -> Iterator[Case]:
    for kind in (np.uint8, np.int32, np.int64):
        pair = [ints(3, 17, low=0, high=127, dtype=kind), ints(17, low=0, high=127, seed=1, dtype=kind)]
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            yield Case(op, pair, opset=18, label=np.dtype(kind).name)
        yield Case("BitwiseNot", pair[:1], opset=18, label=np.dtype(kind).name)
    for direction in ("LEFT", "RIGHT"):
        for kind in (np.uint8, np.uint32, np.uint64):
            pair = [ints(3, 17, low=0, high=127, dtype=kind), ints(17, low=0, high=8, dtype=kind)]
            yield Case("BitShift", pair, {"direction": direction}, 11, label=np.dtype(kind).name)


def movement() -> Iterator[Case]:
    yield Case("Reshape", [X, i64(3, 10)], known=[1])
    yield Case("Reshape", [X, i64(0, -1)], known=[1], opset=7)
    yield Case("Reshape", [X, i64(0, -1, 1, 5)], known=[1], opset=14)
    for axis in (0, 1, 3, -1):
        yield Case("Flatten", [IMAGE], {"axis": axis}, 13)
    yield Case("Squeeze", [floats(1, 3, 1, 2)], {"axes": [0]}, 9)
    yield Case("Squeeze", [floats(1, 3, 1, 2)], {}, 9)
    yield Case("Squeeze", [floats(1, 3, 1, 2), i64(-2)], known=[1], opset=13)
    yield Case("Squeeze", [floats(1, 3, 1, 2)], opset=13)
    yield Case("Unsqueeze", [X], {"axes": [0, 4]}, 9)
    yield Case("Unsqueeze", [X, i64(-1, 1)], known=[1], opset=13)
    yield Case("Unsqueeze", [X, scalar(-1, np.int64)], known=[1], opset=13)
    yield Case("Identity", [X])
    yield Case("Dropout", [X], {"ratio": 0.3}, 7)
    yield Case("Dropout", [X, scalar(0.3), scalar(False, np.bool_)], known=[1, 2], opset=12)
    yield Case("Transpose", [IMAGE])
    yield Case("Transpose", [IMAGE], {"perm": [0, 2, 3, 1]})
    yield Case("Transpose", [floats(2, 1, 5)], {"perm": [1, 0, 2]})
    yield Case("DepthToSpace", [floats(1, 8, 2, 3)], {"blocksize": 2}, 10)
    yield Case("DepthToSpace", [floats(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}, 11)
    yield Case("SpaceToDepth", [floats(1, 3, 4, 6)], {"blocksize": 2}, 13)


def indexing() -> Iterator[Case]:
    yield Case("Slice", [IMAGE], {"starts": [1, 0], "ends": [3, 100], "axes": [1, 2]}, 9)
    yield Case("Slice", [IMAGE], {"starts": [0, 1, 2], "ends": [1, -1, 4]}, 9)
    yield Case("Slice", [IMAGE, i64(-1, 1), i64(-100, 5), i64(2, 1), i64(-2, 1)], known=[1, 2, 3, 4])
    yield Case("Slice", [IMAGE, i64(1), i64(3), i64(-1)], known=[1, 2, 3], opset=10)
    yield Case("Slice", [IMAGE, i64(0), i64(3)], known=[1, 2])
    yield Case("Split", [IMAGE], {"axis": 1}, 11, outputs=2)
    yield Case("Split", [IMAGE], {"axis": -1, "split": [1, 2, 3]}, 11, outputs=3)
    yield Case("Split", [IMAGE, i64(3, 4)], {"axis": 2}, 13, known=[1], outputs=2)
    yield Case("Split", [IMAGE], {"axis": 2, "num_outputs": 2}, 18, outputs=2)
    yield Case("Concat", [X, floats(2, 1, 5), floats(2, 4, 5)], {"axis": 1})
    yield Case("Concat", [X, X], {"axis": -1})
    yield Case("Concat", [X], {"axis": 0})
    pads = [0, 1, 2, 0, 0, 2, 1, 3]
    for mode in ("constant", "edge", "reflect"):
        yield Case("Pad", [IMAGE], {"pads": pads, "mode": mode}, 10)
        yield Case("Pad", [IMAGE, i64(*pads)], {"mode": mode}, 13, known=[1])
    yield Case("Pad", [bools(5, 17), i64(0, 1, 0, 1)], {"mode": "reflect"}, 13, known=[1])
    yield Case("Pad", [IMAGE, i64(*pads), scalar(1.5)], opset=13, known=[1, 2])
    yield Case("Pad", [IMAGE, i64(0, -1, 2, 0, 0, 2, -1, 0)], opset=13, known=[1])
    yield Case("Pad", [IMAGE, i64(1, 2, 3, 0), scalar(-1), i64(-1, 1)], opset=18, known=[1, 2, 3])
    yield Case("Pad", [IMAGE, i64(0, 0, 2, 3, 0, 0, 1, 4)], {"mode": "wrap"}, opset=19, known=[1])
    yield Case("Gather", [X, i64(2, 0, -1)], {"axis": 1}, known=[1])
    yield Case("Gather", [X, i64(2, 0, -1)], {"axis": 1}, opset=9, label="runtime")
    yield Case("Gather", [X, scalar(-2, np.int64)], {"axis": 1}, known=[1])
    yield Case("Gather", [X, i64(1, 2)], {"axis": -1}, known=[1])
    yield Case("Gather", [floats(9, 4), ints(2, 3, low=0, high=9, dtype=np.int32)])
    pairs = ints(2, 4, 2, low=-2, high=2)
    yield Case("GatherND", [X, pairs])
    yield Case("GatherND", [X, pairs], opset=11, known=[1])
    yield Case("GatherND", [bools(1, 17), np.stack(np.mgrid[:1, :17], -1)[None]], known=[1])
    yield Case("GatherND", [X, ints(2, 4, 1, low=-3, high=3)], {"batch_dims": 1})
    yield Case("GatherND", [floats(2, 3, 4, 5), ints(2, 3, 1, low=0, high=4)], {"batch_dims": 2}, known=[1])
    yield Case("Trilu", [X], opset=14)
    yield Case("Trilu", [X], {"upper": 0}, opset=14)
    yield Case("Trilu", [ints(4, 4), scalar(-1, np.int64)], known=[1], opset=14)
    yield Case("Trilu", [bools(6, 17), i64(2)], {"upper": 0}, known=[1], opset=14)
    yield Case("Expand", [floats(3, 1), i64(2, 1, 4)], known=[1])
    yield Case("Expand", [floats(3, 4), i64(1)], known=[1], opset=8)
    yield Case("Tile", [X, i64(1, 2, 3)], known=[1])


def resizing() -> Iterator[Case]:
    modes = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    for mode in ("nearest", "linear"):
        for coordinates in modes:
            for scales in ((1, 1, 2, 2), (1, 1, 1.5, 0.6)):
                yield Case(
                    "Resize", [IMAGE, None, f32(*scales)],
                    {"mode": mode, "coordinate_transformation_mode": coordinates}, 13, known=[2],
                    label=str(scales), tolerance=1e-4,
                )  # fmt: skip
    for rounding in ("round_prefer_ceil", "floor", "ceil"):
        yield Case("Resize", [IMAGE, None, f32(1, 1, 2.3, 3)], {"nearest_mode": rounding}, 13, known=[2])
    yield Case("Resize", [IMAGE, None, None, i64(1, 4, 11, 9)], {"mode": "linear"}, 13, known=[3])
    yield Case("Resize", [IMAGE, None, None, i64(1, 4, 11, 9)], {"mode": "nearest"}, 13, known=[3])
    yield Case("Resize", [IMAGE, None, f32(1, 1, 2, 2)], {"mode": "cubic"}, 13, known=[2], tolerance=1e-4)
    cubic = {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}
    yield Case("Resize", [IMAGE, None, f32(1, 1, 1.4, 0.8)], cubic, 13, known=[2], tolerance=1e-4)
    yield Case("Resize", [IMAGE, None, f32(1.5, 2)], {"mode": "linear", "axes": [2, 3]}, 18, known=[2])
    policy = {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger", "mode": "linear"}
    yield Case("Resize", [IMAGE, None, None, i64(9, 10)], policy, 18, known=[3])
    symmetric = {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}
    yield Case("Resize", [IMAGE, None, f32(1, 1, 2.3, 1.7)], symmetric, 19, known=[2], tolerance=1e-4)
    yield Case("Resize", [IMAGE, f32(1, 1, 2, 2)], {"mode": "nearest"}, 10, known=[1])
    yield Case("Upsample", [IMAGE, f32(1, 1, 2, 3)], {"mode": "nearest"}, 9, known=[1])
    yield Case("Upsample", [IMAGE, f32(1, 1, 2, 2)], {"mode": "linear"}, 9, known=[1])
    yield Case("Upsample", [IMAGE], {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 2.0]}, 7)


def reductions() -> Iterator[Case]:
    for op in ("Sum", "Max", "Min", "Prod", "Mean", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"):
        source = POSITIVE if op == "LogSum" else X
        yield Case(f"Reduce{op}", [source], {"axes": [1]}, 11)
        yield Case(f"Reduce{op}", [source], {"axes": [-1, 0], "keepdims": 0}, 11)
        yield Case(f"Reduce{op}", [source], {}, 11)
        yield Case(f"Reduce{op}", [source, i64(1, 2)], {"keepdims": 0}, 18, known=[1])
        yield Case(f"Reduce{op}", [source], {"noop_with_empty_axes": 1}, 18)
    yield Case("ReduceSum", [ints(3, 4), i64(0)], opset=13, known=[1])
    yield Case("ReduceMax", [bools(3, 4), i64(1)], opset=20, known=[1])
    yield Case("ReduceMin", [bools(3, 4), i64(1)], opset=20, known=[1])
    for op in ("Mean", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"):
        whole = ints(3, 4, 5, low=1, high=9, dtype=np.int32)
        yield Case(f"Reduce{op}", [whole], {"axes": [1]}, 11, label="i32")
    yield Case("ReduceMean", [floats(2, 1, 3)], {"axes": [1]}, 11)
    for op in ("ArgMax", "ArgMin"):
        yield Case(op, [X], {"axis": 1}, 11)
        yield Case(op, [ints(4, 5, low=0, high=3)], {"axis": -1, "keepdims": 0}, 13)
        yield Case(op, [ints(4, 5, low=0, high=3)], {"axis": 0, "select_last_index": 1}, 13)


def pooling() -> Iterator[Case]:
    square = {"kernel_shape": [3, 3], "strides": [2, 2]}
    for op in ("MaxPool", "AveragePool"):
        yield Case(op, [IMAGE], {"kernel_shape": [2, 3]}, 7)
        yield Case(op, [IMAGE], {**square, "pads": [1, 1, 1, 1]}, 8)
        yield Case(op, [IMAGE], {**square, "pads": [0, 1, 1, 0]}, 11)
        yield Case(op, [IMAGE], {**square, "ceil_mode": 1}, 11)
        yield Case(op, [IMAGE], {**square, "ceil_mode": 1, "pads": [1, 1, 1, 1]}, 11)
        yield Case(
            op, [IMAGE], {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1, "pads": [1, 1, 1, 1]}, 19
        )
        yield Case(op, [IMAGE], {**square, "auto_pad": "SAME_UPPER"}, 11)
        yield Case(op, [IMAGE], {**square, "auto_pad": "SAME_LOWER"}, 11)
        yield Case(op, [IMAGE], {**square, "auto_pad": "VALID"}, 11)
        yield Case(op, [floats(2, 3, 9)], {"kernel_shape": [3], "pads": [1, 2]}, 11)
        yield Case(op, [floats(1, 2, 4, 5, 6)], {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}, 11)
    yield Case("MaxPool", [IMAGE], {**square, "dilations": [2, 1]}, 11)
    yield Case("MaxPool", [ints(1, 2, 5, 5, dtype=np.int8)], {**square, "pads": [1, 1, 1, 1]}, 12)
    counted = {"count_include_pad": 1, "pads": [1, 1, 1, 1]}
    yield Case("AveragePool", [IMAGE], {**square, **counted}, 11)
    yield Case("AveragePool", [IMAGE], {**square, **counted, "ceil_mode": 1}, 19)
    yield Case("AveragePool", [IMAGE], {**square, "dilations": [2, 2], "pads": [1, 1, 1, 1]}, 19)
    pads = {"kernel_shape": [3], "pads": [1, 2]}
    wide = floats(2, 3, 9, dtype=np.float64)  # which onnxruntime does not have
    yield Case("AveragePool", [wide], pads, 19, tolerance=1e-14, oracle=run_reference)
    yield Case("GlobalAveragePool", [IMAGE])
    yield Case("GlobalAveragePool", [floats(2, 3, 4)])
    yield Case("GlobalMaxPool", [IMAGE])


def normalisation() -> Iterator[Case]:
    channels = [floats(4, seed=at, low=0.3) for at in range(4)]
    for opset in (7, 9, 14, 15):
        yield Case("BatchNormalization", [IMAGE, *channels], {"epsilon": 1e-3}, opset, known=[1, 2, 3, 4])
    yield Case("BatchNormalization", [IMAGE, *channels], opset=15, label="runtime")
    yield Case("BatchNormalization", [floats(3, 4), *channels], opset=15, known=[1, 2, 3, 4])
    yield Case("LayerNormalization", [X, floats(5), floats(5, seed=1)])
    yield Case("LayerNormalization", [X, floats(3, 5)], {"axis": 1, "epsilon": 1e-2})
    yield Case("RMSNormalization", [X, floats(5)], {}, 23)
    yield Case("RMSNormalization", [X, floats(3, 5)], {"axis": 1, "epsilon": 0.1}, 23)
    yield Case("InstanceNormalization", [IMAGE, channels[0], channels[1]], known=[1, 2])
    yield Case(
        "GroupNormalization", [IMAGE, floats(2), floats(2, seed=1)], {"num_groups": 2}, 18, known=[1, 2]
    )
    yield Case("GroupNormalization", [IMAGE, channels[0], channels[1]], {"num_groups": 2}, 21, known=[1, 2])
    for size in (1, 3, 5):
        yield Case("LRN", [floats(1, 7, 2, 3)], {"size": size, "alpha": 0.02, "beta": 0.75, "bias": 1.5})
    yield Case("LRN", [floats(1, 7, 2, 3)], {"size": 3, "beta": 0.6})
    for op in ("Softmax", "LogSoftmax"):
        for axis in (0, 1, 2):
            yield Case(op, [X], {"axis": axis}, 11)
            yield Case(op, [X], {"axis": axis - 3}, 13)
        yield Case(op, [floats(2, 7)], {}, 9)
        yield Case(op, [floats(2, 7, 1, 1)], {}, 9)


def linear() -> Iterator[Case]:
    weights, bias = floats(6, 4, 3, 3, seed=1), floats(6)
    yield Case("Conv", [IMAGE, weights])
    yield Case("Conv", [IMAGE, weights, bias], {"pads": [1, 1, 1, 1], "strides": [2, 2]}, known=[1, 2])
    yield Case(
        "Conv", [IMAGE, weights, bias], {"pads": [0, 2, 1, 0], "kernel_shape": [3, 3]}, 7, known=[1, 2]
    )
    yield Case("Conv", [IMAGE, weights], {"dilations": [2, 1]})
    yield Case("Conv", [IMAGE, weights], {"strides": [2, 2], "auto_pad": "SAME_UPPER"})
    yield Case("Conv", [IMAGE, weights], {"auto_pad": "SAME_LOWER", "strides": [2, 1]})
    yield Case("Conv", [IMAGE, floats(6, 2, 3, 2), bias], {"group": 2}, known=[1, 2])
    yield Case("Conv", [IMAGE, floats(4, 1, 3, 3)], {"group": 4, "pads": [1, 1, 1, 1]})
    yield Case("Conv", [IMAGE, floats(8, 1, 3, 3)], {"group": 4, "strides": [2, 2]})
    yield Case("Conv", [IMAGE, floats(3, 4, 1, 1)], known=[1])
    yield Case("Conv", [floats(2, 3, 9), floats(4, 3, 3)], {"pads": [1, 1]})
    yield Case("Conv", [floats(1, 2, 4, 5, 4), floats(3, 2, 2, 3, 2)], {"strides": [1, 2, 1]})
    for shapes in (
        ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((4,), (4,
        5)), ((2, 3, 4), (4,)), ((4,), (4,)), ((1, 3, 4), (1, 4, 5)), ((3, 4), (2, 4, 5)),
    ):  # fmt: skip
        yield Case("MatMul", [floats(*shapes[0]), floats(*shapes[1], seed=1)])
    yield Case("MatMul", [ints(3, 4, dtype=np.int32), ints(4, 5, dtype=np.int32)])
    a, b, c = floats(3, 4), floats(4, 5), floats(5)
    yield Case("Gemm", [a, b, c], {"alpha": 0.5, "beta": 2.0}, known=[1, 2])
    yield Case("Gemm", [a.T.copy(), b.T.copy(), floats(3, 1)], {"transA": 1, "transB": 1}, 7)
    yield Case("Gemm", [a, b.T.copy()], {"transB": 1}, 11, known=[1])
    yield Case("Gemm", [a, b, c], {"beta": 0.0})


def transposed() -> Iterator[Case]:
    weights = floats(4, 3, 3, 2, seed=1)
    for strides in ([1, 1], [2, 2], [3, 2]):
        for pads in ([0, 0, 0, 0], [1, 0, 1, 1], [2, 1, 0, 1]):
            yield Case("ConvTranspose", [IMAGE, weights], {"strides": strides, "pads": pads})
    yield Case("ConvTranspose", [IMAGE, weights, floats(3)], {"strides": [2, 2]}, known=[1, 2])
    yield Case("ConvTranspose", [IMAGE, weights], {"strides": [2, 2], "output_padding": [1, 1]})
    yield Case("ConvTranspose", [IMAGE, weights], {"strides": [2, 3], "dilations": [2, 1]})
    yield Case("ConvTranspose", [IMAGE, weights], {"strides": [2, 2], "output_shape": [14, 12]})
    yield Case("ConvTranspose", [IMAGE, weights], {"strides": [2, 2], "auto_pad": "SAME_UPPER"})
    yield Case("ConvTranspose", [IMAGE, weights], {"strides": [2, 2], "auto_pad": "SAME_LOWER"})
    yield Case(
        "ConvTranspose", [IMAGE, floats(4, 2, 2, 2), floats(4)], {"group": 2, "strides": [2, 2]}, known=[1, 2]
    )
    yield Case("ConvTranspose", [IMAGE, floats(4, 3, 1, 1)], {"strides": [3, 3]})
    yield Case("ConvTranspose", [floats(2, 3, 5), floats(3, 2, 4)], {"strides": [2], "pads": [1, 1]})


def sources() -> Iterator[Case]:
    fill = np.asarray([3], np.int32)
    yield Case("Shape", [X])
    yield Case("Shape", [X], {"start": 1, "end": -1}, 15)
    yield Case("Size", [X])
    yield Case("ConstantOfShape", [i64(2, 3)], known=[0])
    from onnx import numpy_helper

    yield Case("ConstantOfShape", [i64(2, 3)], {"value": numpy_helper.from_array(fill)}, known=[0])
    yield Case("Range", [scalar(1, np.int64), scalar(10, np.int64), scalar(4, np.int64)], known=[0, 1, 2])
    yield Case("Range", [scalar(1), scalar(-1), scalar(-0.3)], known=[0, 1, 2])
    yield Case("EyeLike", [floats(3, 4)], {"k": 1})
    yield Case("EyeLike", [ints(3, 4, dtype=np.int32)], label="i32")
    yield Case("EyeLike", [ints(3, 4)], {"dtype": TensorProto.DOUBLE}, label="f64")


CASES = [
    *elementwise(), *movement(), *indexing(), *resizing(), *reductions(), *pooling(), *normalisation(),
    *linear(), *transposed(), *sources(), *functions(), *bits(), *spatial(), *indexed(),
    *recurrent(), *types(), *quantised(),
]  # fmt: skip
