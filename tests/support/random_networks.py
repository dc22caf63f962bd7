"""Random networks on images: convolutions of every kind between what usually stands around them.

Where `random_graphs` covers the operators, this covers the schedules: odd channels and images, windows,
strides and dilations, groups, blocked layouts that meet other operators, several outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.support.onnx_models import model

CHANNELS = (1, 2, 3, 5, 8, 13, 16, 17, 24, 31, 32, 33, 48, 64, 96)
SMALL = 150
"""Images of no more pixels may be enlarged."""


@dataclass
class Image:
    """A network under construction: nodes, constants, the last value and its shape."""

    rng: np.random.Generator
    batch: int
    channels: int
    height: int
    width: int
    value: str = "x"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self, *shape: int, fan_in: int = 1) -> str:
        """Random numbers, smaller the more of them are summed."""
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32))

    def emit(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add a node that reads these values; returns its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def put(self, op: str, *inputs: str, **attrs: Any) -> None:
        """Add a node that reads the last value and makes the next one."""
        self.value = self.emit(op, self.value, *inputs, **attrs)

    @property
    def shape(self) -> list[int]:
        return [self.batch, self.channels, self.height, self.width]


Step = Callable[[Image], None]


def convolution(g: Image, size: tuple[int, int], outputs: int, group: int = 1) -> None:
    strides, dilations = [g.pick(1, 1, 2, 3), g.pick(1, 1, 2)], [g.pick(1, 1, 1, 2), g.pick(1, 1, 1, 2)]
    pads = [int(g.rng.integers(0, extent)) for extent in (*size, *size)]
    reach = [(extent - 1) * dilation + 1 for extent, dilation in zip(size, dilations, strict=True)]
    space = (g.height + pads[0] + pads[2], g.width + pads[1] + pads[3])
    if space[0] < reach[0] or space[1] < reach[1]:
        return
    inner = g.channels // group
    operands = [g.weights(outputs, inner, *size, fan_in=inner * size[0] * size[1])]
    if g.rng.random() < 0.6:
        operands.append(g.weights(outputs))
    g.put("Conv", *operands, pads=pads, strides=strides, dilations=dilations, group=group)
    g.height, g.width = ((space[n] - reach[n]) // strides[n] + 1 for n in (0, 1))
    g.channels = outputs


def full(g: Image) -> None:
    convolution(g, (g.pick(1, 2, 3, 3, 5, 7), g.pick(1, 2, 3, 3, 5, 7)), g.pick(*CHANNELS))


def three_by_three(g: Image) -> None:
    """What Winograd's algorithm does."""
    outputs = g.pick(*CHANNELS)
    g.put("Conv", g.weights(outputs, g.channels, 3, 3, fan_in=9 * g.channels), pads=[1, 1, 1, 1])
    g.channels = outputs


def pointwise(g: Image) -> None:
    convolution(g, (1, 1), g.pick(*CHANNELS))


def depthwise(g: Image) -> None:
    size = (g.pick(2, 3, 5), g.pick(1, 3))
    convolution(g, size, g.channels * g.pick(1, 1, 1, 2), g.channels)


def grouped(g: Image) -> None:
    fitting = [group for group in (2, 3, 4, 8) if g.channels % group == 0]
    if fitting:
        group = g.pick(*fitting)
        convolution(g, (3, 3), group * g.pick(1, 3, 4, 8, 16, 17), group)


def activation(g: Image) -> None:
    g.put(g.pick("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu"))


def batch_norm(g: Image) -> None:
    variance = g.constant((g.rng.random(g.channels) + 0.5).astype(np.float32))
    g.put("BatchNormalization", *(g.weights(g.channels) for _ in range(3)), variance)


def pool(g: Image) -> None:
    size, strides = [g.pick(1, 2, 3), g.pick(1, 2, 3)], [g.pick(1, 2), g.pick(1, 2, 3)]
    if g.height < size[0] or g.width < size[1]:
        return
    pads = [g.pick(0, 1) if extent > 1 else 0 for extent in size]
    op, more = g.pick(("MaxPool", {}), ("AveragePool", {"count_include_pad": g.pick(0, 1)}))
    g.put(op, kernel_shape=size, strides=strides, pads=[*pads, *pads], **more)
    g.height = (g.height + 2 * pads[0] - size[0]) // strides[0] + 1
    g.width = (g.width + 2 * pads[1] - size[1]) // strides[1] + 1


def residual(g: Image) -> None:
    weights = g.weights(g.channels, g.channels, 3, 3, fan_in=9 * g.channels)
    operands = [g.value, g.emit("Conv", g.value, weights, pads=[1, 1, 1, 1])]
    if g.rng.random() < 0.5:
        operands.reverse()
    g.value = g.emit(g.pick("Add", "Mul", "Max"), *operands)


def join(g: Image) -> None:
    outputs = g.pick(*CHANNELS)
    parts = [g.value, g.emit("Conv", g.value, g.weights(outputs, g.channels, 1, 1, fan_in=g.channels))]
    if g.rng.random() < 0.3:
        parts.append(g.emit("MaxPool", g.value, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    if g.rng.random() < 0.5:
        parts.reverse()
    g.value = g.emit("Concat", *parts, axis=1)
    g.channels = outputs + g.channels * (len(parts) - 1)


def enlarge(g: Image) -> None:
    if g.height * g.width > SMALL:
        return
    if g.rng.random() < 0.5:
        scales = g.constant(np.array([1, 1, 2, 2], np.float32))
        how = {"mode": g.pick("nearest", "linear"), "coordinate_transformation_mode": "asymmetric"}
        g.put("Resize", "", scales, **how)
    else:
        outputs = g.pick(*CHANNELS)
        g.put("ConvTranspose", g.weights(g.channels, outputs, 2, 2, fan_in=g.channels), strides=[2, 2])
        g.channels = outputs
    g.height, g.width = 2 * g.height, 2 * g.width


def shuffle(g: Image) -> None:
    fitting = [group for group in (2, 3, 4, 8) if g.channels % group == 0]
    if fitting:
        group = g.pick(*fitting)
        g.put("Reshape", g.constant([g.batch, group, g.channels // group, g.height, g.width]))
        g.put("Transpose", perm=[0, 2, 1, 3, 4])
        g.put("Reshape", g.constant(g.shape))


def pad(g: Image) -> None:
    g.put("Pad", g.constant([0, 0, 1, 2, 0, 0, 0, 1]), mode=g.pick("constant", "edge"))
    g.height, g.width = g.height + 1, g.width + 3


def excite(g: Image) -> None:
    """Squeeze and excitation: every channel times a number that depends on all of them."""
    few = max(1, g.channels // 4)
    mean = g.emit("GlobalAveragePool", g.value)
    inner = g.emit("Relu", g.emit("Conv", mean, g.weights(few, g.channels, 1, 1, fan_in=g.channels)))
    outer = g.emit("Sigmoid", g.emit("Conv", inner, g.weights(g.channels, few, 1, 1, fan_in=few)))
    g.put("Mul", outer)


def some_channels(g: Image) -> None:
    first = int(g.rng.integers(0, g.channels))
    last = int(g.rng.integers(first, g.channels)) + 1
    g.put("Slice", g.constant([first]), g.constant([last]), g.constant([1]))
    g.channels = last - first


def swap_axes(g: Image) -> None:
    g.put("Transpose", perm=[0, 1, 3, 2])
    g.height, g.width = g.width, g.height


STEPS: tuple[Step, ...] = (
    full, full, full, three_by_three, three_by_three, pointwise, depthwise, grouped, activation, batch_norm,
    pool, residual, join, enlarge, shuffle, pad, excite, some_channels, swap_axes,
)  # fmt: skip


def classify(g: Image) -> None:
    count = g.channels * g.height * g.width
    outputs = g.pick(1, 3, 10, 16, 37, 100)
    if count < 20_000:
        g.put("Flatten")
        g.put("Gemm", g.weights(outputs, count, fan_in=count), g.weights(outputs), transB=1)
        g.put("Softmax", axis=-1)


def attend(g: Image) -> None:
    if g.height * g.width > SMALL:
        return
    g.put("Reshape", g.constant([g.batch, g.channels, g.height * g.width]))
    g.put("Transpose", perm=[0, 2, 1])
    rows = g.value
    keys, queries = (
        g.emit("MatMul", rows, g.weights(g.channels, g.channels, fan_in=g.channels)) for _ in (0, 1)
    )
    g.value = g.emit("MatMul", queries, g.emit("Transpose", keys, perm=[0, 2, 1]))
    g.put("Softmax", axis=-1)
    g.put("MatMul", rows)


def random_network(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A network and its input; the same for the same seed."""
    rng = np.random.default_rng(seed)
    height, width = (int(rng.integers(1, 24)) for _ in (0, 1))
    g = Image(rng, int(rng.choice([1, 1, 2, 3])), int(rng.choice(CHANNELS)), height, width)
    feeds = {"x": rng.standard_normal(g.shape).astype(np.float32)}
    outputs = []
    for _ in range(int(rng.integers(3, 9))):
        g.pick(*STEPS)(g)
        if rng.random() < 0.15:
            outputs.append(g.value)
    g.pick(classify, attend, activation)(g)
    names = [name for name in dict.fromkeys([*outputs, g.value]) if name != "x"]
    return model(g.nodes, feeds, names or [g.emit("Relu", "x")], g.constants, 18), feeds
