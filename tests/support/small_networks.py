"""Small networks with the kinds of kernels of large ones, and what these kinds are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import onnx

from toolchain.zoo import detection, forests, modern, recurrent, transformers, windowed
from toolchain.zoo.builder import Builder, Draft

EACH_KIND = "small-of-each-kind"


def small_of_each_kind() -> Draft:
    """A unit of ShuffleNet (arXiv:1707.01083), two groups, steps, and the zoo's four ways to enlarge."""
    b = Builder(EACH_KIND, opset=14, ir_version=8)
    x = b.add("LRN", b.input("image", (1, 3, 20, 20)), size=5, alpha=1e-4, beta=0.75, bias=1.0)
    x = b.add("Relu", b.conv(x, "stem", 24, 3, pads=1))
    skip = b.add("Relu", b.add("Sum", x, _unit(b, x, 24, (1, 4, 6, 20, 20))))
    x = b.add("AveragePool", skip, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = b.add("HardSwish", b.conv(x, "halves", 32, 3, pads=1, group=2))
    _mask(b, skip, x)
    scale = b.add("Unsqueeze", b.random("scale", (32,), 0.8, 1.2), b.ints("scale.axes", (1, 2)))
    x = b.add("Mul", b.add("HardSigmoid", b.add("GlobalAveragePool", x)), x)
    x = b.conv(b.add("Mul", x, scale), "strided", 48, 1, stride=2)
    x = b.conv(x, "strided depthwise", 48, 3, stride=2, pads=1, group=48)
    x = b.add("Clip", x, b.scalar("low", 0.0), b.scalar("high", 6.0))
    x = b.add("Squeeze", b.add("GlobalAveragePool", x), b.ints("squeezed", (2, 3)))
    x = b.add("Flatten", x, axis=1)
    b.output(b.add("Softmax", b.gemm(x, "classifier", 48, 10), name="classes", axis=1), (1, 10))
    return b.draft()


_SIZES = {"width": 64, "layers": 2, "heads": 2}
SMALL_BUILT: Mapping[str, Callable[[], Draft]] = {
    EACH_KIND: small_of_each_kind,
    "small-bert-dynamo": partial(
        transformers.bert, "small-bert", 1.0, spelling="dynamo", tokens=19, words=50, **_SIZES
    ),
    "small-gpt2-step": partial(
        transformers.gpt2, "small-gpt2", 1.0, spelling="torchscript", tokens=1, past=9, words=50, **_SIZES
    ),
    "small-swin": partial(
        windowed.swin, "small-swin", 1.0, spelling="dynamo", image=56, width=32, layers=(2, 1)
    ),
    "small-lstm": partial(
        recurrent.lstm_tagger, "small-lstm", 1.0, tokens=5, words=20, width=12, hidden=20, tags=3
    ),
    "small-gru": partial(recurrent.gru_encoder, "small-gru", 1.0, frames=5, features=7, hidden=20, classes=3),
    "small-boxes": lambda: small_boxes(),
    "small-forest": partial(forests.forest, "small-forest", 1.0, rows=3, trees=11, features=5, levels=5),
}


def small_boxes() -> Draft:
    """What picks boxes of a detector."""
    b = Builder("small-boxes", opset=17, ir_version=8)
    boxes, likely = b.input("cells", (1, 4, 40)), b.input("likely", (1, 5, 40))
    detection.pick_boxes(b, boxes, likely, 30, 4)
    return b.draft()


def _mask(b: Builder, skip: str, x: str) -> None:
    """The end of a U-Net (arXiv:1505.04597)."""
    scales = b.constant("scales", np.array((1.0, 1.0, 2.0, 2.0), dtype=np.float32))
    up = [enlarge(b, x, f"up{number}", 8, scales) for number, enlarge in enumerate(modern.ENLARGE)]
    x = b.conv(b.add("Concat", skip, *up, axis=1, channels=56), "head", 2, 1, gain=3.0)
    b.output(b.add("Sigmoid", x, name="mask"), (1, 2, 20, 20))


def _unit(b: Builder, x: str, channels: int, shape: tuple[int, ...]) -> str:
    """Grouped pointwise convolutions around a shuffle and a depthwise convolution."""
    x = b.add("Relu", b.batch_norm(b.conv(x, "first", channels, 1, group=shape[1]), "first.norm"))
    x = b.add("Transpose", b.add("Reshape", x, b.ints("groups", shape)), perm=[0, 2, 1, 3, 4])
    x = b.add("Reshape", x, b.ints("joined", (1, channels, *shape[3:])), channels=channels)
    x = b.conv(x, "depthwise", channels, 3, pads=1, group=channels)
    return b.conv(x, "last", channels, 1, group=shape[1], gain=1.0)


def kinds_of(draft: Draft) -> Iterator[tuple[object, ...]]:
    """What kernels are needed for: operators, of convolutions also windows, steps and groups."""
    shapes = {one.name: one.shape for one in draft.initializers}
    for node in draft.model.graph.node:
        yield (node.op_type, *(_convolution(node, shapes) if node.op_type == "Conv" else ()))


def _convolution(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> tuple[bool, ...]:
    """Whether it has a window, steps, groups, and a group for each channel."""
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    grouped = attributes.get("group", 1) > 1
    windowed, strided = (max(attributes.get(name, [1])) > 1 for name in ("kernel_shape", "strides"))
    return windowed, strided, grouped, grouped and shapes[node.input[1]][1] == 1
