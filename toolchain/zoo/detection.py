"""A detector in the manner of YOLOv8 (ultralytics, 2023), with what picks its boxes inside the model."""

from __future__ import annotations

import numpy as np
import onnx

from toolchain.zoo.builder import Array, Builder, Draft

_BINS = 16  # of the distribution of a distance
_APART = 16.0  # boxes of two classes never overlap: they are moved so far
_STRIDES = (8, 16, 32)


def detector(
    network: str,
    logit_gain: float,
    *,
    image: int = 320,
    width: int = 16,
    classes: int = 80,
    first: int = 1000,
    most: int = 100,
    declared: bool = True,
) -> Draft:
    """`images` [1, 3, image, image] -> `boxes` [100, 4], `scores` [100], `labels` [100].

    Not declared, there are as many as are found; else there have to be 100.

    A box is two corners in parts of the image. Layers and widths are those of the smallest YOLOv8. Of each
    cell's best class the 1000 best scores are taken (TopK), and of these the 100 best that do not overlap
    (NonMaxSuppression).
    """
    b = Builder(network, opset=17, ir_version=8)
    x = _conv(b, b.input("images", (1, 3, image, image)), "stem", width, 3, 2)
    kept = []
    for stage, (factor, repeats) in enumerate(((2, 1), (4, 2), (8, 2), (16, 1))):
        x = _conv(b, x, f"down{stage}", width * factor, 3, 2)
        x = _split_block(b, x, f"stage{stage}", width * factor, repeats, shortcut=True)
        kept.append(x)
    kept[-1] = x = _pyramid(b, x)
    middle = _merged(b, _doubled(b, x), kept[2], "up1", 8 * width)
    fine = _merged(b, _doubled(b, middle), kept[1], "up0", 4 * width)
    medium = _merged(b, _conv(b, fine, "merge1", 4 * width, 3, 2), middle, "down_up1", 8 * width)
    coarse = _merged(b, _conv(b, medium, "merge2", 8 * width, 3, 2), x, "down_up2", 16 * width)
    distances, scores = zip(
        *(_head(b, one, f"head{at}", classes, logit_gain) for at, one in enumerate((fine, medium, coarse))),
        strict=True,
    )
    cells = sum((image // stride) ** 2 for stride in _STRIDES)
    boxes = _decoded(b, b.add("Concat", *distances, axis=2), image, cells)
    likely = b.add("Sigmoid", b.add("Concat", *scores, axis=2))
    pick_boxes(b, boxes, likely, first, most, declared=declared)
    return b.draft()


def _conv(b: Builder, x: str, name: str, channels: int, kernel: int, stride: int = 1) -> str:
    """A convolution with SiLU (arXiv:1702.03118), spelt out as it is exported."""
    x = b.conv(x, name, channels, kernel, stride=stride, pads=kernel // 2, gain=2.0)
    return b.add("Mul", x, b.add("Sigmoid", x))


def _split_block(b: Builder, x: str, name: str, channels: int, repeats: int, *, shortcut: bool) -> str:
    """Half of the channels go through small blocks, and all that these make is combined."""
    parts = list(b.split(_conv(b, x, f"{name}.in", channels, 1), 2, axis=1))
    for block in range(repeats):
        inner = _conv(b, parts[-1], f"{name}.block{block}.first", channels // 2, 3)
        inner = _conv(b, inner, f"{name}.block{block}.second", channels // 2, 3)
        parts.append(b.add("Add", parts[-1], inner) if shortcut else inner)
    x = b.add("Concat", *parts, axis=1, channels=channels // 2 * len(parts))
    return _conv(b, x, f"{name}.out", channels, 1)


def _pyramid(b: Builder, x: str) -> str:
    """Maxima over windows of 5, 9 and 13, beside each other."""
    width = b.channels(x)
    parts = [_conv(b, x, "pyramid.in", width // 2, 1)]
    for _ in range(3):
        parts.append(
            b.add("MaxPool", parts[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2], ceil_mode=0)
        )
    return _conv(b, b.add("Concat", *parts, axis=1, channels=2 * width), "pyramid.out", width, 1)


def _doubled(b: Builder, x: str) -> str:
    scales = b.given("doubled", np.array((1.0, 1.0, 2.0, 2.0), np.float32))
    return b.add(
        "Resize", x, "", scales, mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip


def _merged(b: Builder, x: str, other: str, name: str, channels: int) -> str:
    x = b.add("Concat", x, other, axis=1, channels=b.channels(x) + b.channels(other))
    return _split_block(b, x, name, channels, 1, shortcut=False)


def _head(b: Builder, x: str, name: str, classes: int, gain: float) -> tuple[str, str]:
    """For every cell distributions of the distances to four sides, and logits of classes, cells last."""
    box = _conv(b, _conv(b, x, f"{name}.box0", 4 * _BINS, 3), f"{name}.box1", 4 * _BINS, 3)
    box = b.conv(box, f"{name}.box2", 4 * _BINS, 1, gain=1.0)
    kind = _conv(b, _conv(b, x, f"{name}.class0", classes, 3), f"{name}.class1", classes, 3)
    kind = b.conv(kind, f"{name}.class2", classes, 1, gain=gain)
    return (
        b.add("Reshape", box, b.numbers(1, 4 * _BINS, -1)),
        b.add("Reshape", kind, b.numbers(1, classes, -1)),
    )


def _decoded(b: Builder, x: str, image: int, cells: int) -> str:
    """Boxes by their corners, [1, 4, cells], of distributions [1, 4 x bins, cells]."""
    x = b.add("Reshape", x, b.numbers(1, 4, _BINS, cells))
    x = b.add("Softmax", b.add("Transpose", x, perm=[0, 2, 1, 3], channels=_BINS), axis=1)
    bins = b.constant("bins", np.arange(_BINS, dtype=np.float32).reshape(1, _BINS, 1, 1))
    x = b.add("Conv", x, bins, kernel_shape=[1, 1])
    x = b.add("Reshape", x, b.numbers(1, 4, cells))
    axis = b.numbers(1)
    before, after = (
        b.add("Slice", x, b.numbers(first), b.numbers(first + 2), axis, b.numbers(1)) for first in (0, 2)
    )
    centres, strides = _grid(image)
    centre = b.constant("centres", centres)
    corners = b.add("Concat", b.add("Sub", centre, before), b.add("Add", centre, after), axis=1)
    return b.add("Mul", corners, b.constant("strides", strides))


def _grid(image: int) -> tuple[Array, Array]:
    """Centres of all cells [1, 2, cells], in cells, and which part of the image a cell is [1, 1, cells]."""
    centres, strides = [], []
    for stride in _STRIDES:
        places = np.arange(image // stride, dtype=np.float32) + np.float32(0.5)
        y, x = np.meshgrid(places, places, indexing="ij")
        centres.append(np.stack([x.reshape(-1), y.reshape(-1)]))
        strides.append(np.full(x.size, stride / image, np.float32))
    return np.concatenate(centres, axis=1)[None], np.concatenate(strides)[None, None]


def pick_boxes(b: Builder, boxes: str, likely: str, first: int, most: int, *, declared: bool = True) -> None:
    """Of the `first` best cells the `most` best boxes that do not overlap others of their class.

    boxes: [1, 4, cells]; likely: [1, classes, cells]. There are as many results where enough boxes lie apart;
    not declared, as many as do.
    """
    best = b.add("ReduceMax", likely, axes=[1], keepdims=0)
    kind = b.add("ArgMax", likely, axis=1, keepdims=0)
    scores, places = b.top(best, b.numbers(first))
    corners = b.add("Transpose", boxes, perm=[0, 2, 1])
    place = b.add("Reshape", places, b.numbers(first))
    corners = b.add("Gather", corners, place, axis=1)
    kinds = b.add("Gather", kind, place, axis=1)
    number = b.add("Cast", kinds, to=onnx.TensorProto.FLOAT)
    number = b.add("Reshape", number, b.numbers(1, first, 1))
    moved = b.add("Add", corners, b.add("Mul", number, b.number(_APART)))
    kept = b.add(
        "NonMaxSuppression", moved, b.add("Reshape", scores, b.numbers(1, 1, first)), b.whole(most),
        b.number(0.7), b.number(0.0),
    )  # fmt: skip
    if declared:
        b.declare(kept, (most, 3), onnx.TensorProto.INT64)
    found: int | str = most if declared else "found"
    column = b.add("Slice", kept, b.numbers(2), b.numbers(3), b.numbers(1), b.numbers(1))
    column = b.add("Reshape", column, b.numbers(most if declared else -1))
    results = {
        "boxes": (b.add("Reshape", corners, b.numbers(first, 4)), (found, 4), onnx.TensorProto.FLOAT),
        "scores": (b.add("Reshape", scores, b.numbers(first)), (found,), onnx.TensorProto.FLOAT),
        "labels": (b.add("Reshape", kinds, b.numbers(first)), (found,), onnx.TensorProto.INT64),
    }
    for name, (of_first, shape, data_type) in results.items():
        b.output(b.add("Gather", of_first, column, name=name, axis=0), shape, data_type)
