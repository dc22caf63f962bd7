"""Networks of 20 to 60 nodes with the parts of large ones, at sizes that compile in seconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from toolchain.zoo import transformers
from toolchain.zoo.builder import Builder, Draft
from toolchain.zoo.write import write_model


def squeezed() -> Draft:
    """Fire modules (arXiv:1602.07360), the last with squeeze and excitation."""
    b = Builder("squeezed", opset=14, ir_version=8)
    x = b.add("Relu", b.conv(b.input("image", (1, 3, 24, 24)), "stem", 16, 3, stride=2, pads=1))
    x = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    for number, width in enumerate((16, 16, 32)):
        x = _fire(b, x, f"fire{number}", width)
    pooled = b.add("GlobalAveragePool", x)
    x = b.add("Mul", x, b.add("Sigmoid", b.conv(pooled, "excite", 64, 1)))
    x = _fire(b, x, "last", 32)
    x = b.add("Relu", b.conv(x, "classifier", 10, 1))
    x = b.add("Flatten", b.add("GlobalAveragePool", x), axis=1)
    b.output(b.add("Softmax", x, name="classes", axis=1), (1, 10))
    return b.draft()


def _fire(b: Builder, x: str, name: str, width: int) -> str:
    squeeze = b.add("Relu", b.conv(x, f"{name}.squeeze", 16, 1))
    one = b.add("Relu", b.conv(squeeze, f"{name}.one", width, 1))
    three = b.add("Relu", b.conv(squeeze, f"{name}.three", width, 3, pads=1))
    return b.add("Concat", one, three, axis=1, channels=2 * width)


def residual() -> Draft:
    """Blocks with batch normalisation around skips (arXiv:1512.03385)."""
    b = Builder("residual", opset=14, ir_version=8)
    x = b.add(
        "Relu", b.batch_norm(b.conv(b.input("image", (1, 3, 20, 20)), "stem", 16, 3, pads=1), "stem.norm")
    )
    for number, width in enumerate((16, 32, 32)):
        stride = 1 + (width != b.channels(x))
        y = b.add(
            "Relu", b.batch_norm(b.conv(x, f"b{number}.a", width, 3, stride=stride, pads=1), f"b{number}.an")
        )
        y = b.batch_norm(b.conv(y, f"b{number}.b", width, 3, pads=1), f"b{number}.bn")
        skip = x if stride == 1 else b.conv(x, f"b{number}.skip", width, 1, stride=stride)
        x = b.add("Relu", b.add("Add", y, skip))
    x = b.add("Flatten", b.add("GlobalAveragePool", x), axis=1)
    b.output(b.gemm(x, "classifier", 32, 10), (1, 10))
    return b.draft()


def deep() -> Draft:
    """Fourteen convolutions with batch normalisation, of which the eleventh alone has 24 channels."""
    b = Builder("deep", opset=14, ir_version=8)
    x = b.input("image", (1, 3, 12, 12))
    for number in range(14):
        x = b.conv(x, f"c{number}", 24 if number == 10 else 16, 3, pads=1)
        x = b.add("Relu", b.batch_norm(x, f"norm{number}"))
    b.output(b.add("GlobalAveragePool", x), (1, 16, 1, 1))
    return b.draft()


def late() -> Draft:
    """The end of a network for images: many channels at few places, whose sums GPUs cut into chunks."""
    b = Builder("late", opset=14, ir_version=8)
    x = b.add("Relu", b.conv(b.input("features", (1, 64, 7, 7)), "first", 64, 3, pads=1))
    x = b.add("Sigmoid", b.conv(x, "second", 64, 3, pads=1))
    b.output(b.add("GlobalAveragePool", x), (1, 64, 1, 1))
    return b.draft()


transformer = partial(
    transformers.bert, "block", 1.0, spelling="dynamo", tokens=17, words=40, width=32, layers=1, heads=2
)
"""One block of BERT between its embedding and its pooler."""

REDUCTION_MODELS: dict[str, Callable[[], Draft]] = {
    "squeezed": squeezed,
    "residual": residual,
    "deep": deep,
    "late": late,
    "transformer": transformer,
}


def write_reduction_model(name: str, directory: Path) -> Path:
    """Write one of the networks; returns its file."""
    path = directory / f"{name}.onnx"
    write_model(REDUCTION_MODELS[name](), path)
    return path
