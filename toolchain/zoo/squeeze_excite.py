"""Inverted residual blocks with squeeze-and-excitation (arXiv:1709.01507): MobileNetV3 and EfficientNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolchain.zoo.builder import Builder, Draft

# Kernel, hidden channels, channels, squeeze-and-excitation, hard swish (else ReLU), stride.
_MOBILENET = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
# Expansion, kernel, channels, repeats, first stride.
_EFFICIENTNET = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)
_BRANCH_SCALE = 0.5
# The gates of random weights lie about 1/2; the variance that this takes is put back behind them.
_GATED_GAIN = 4.0


@dataclass(frozen=True, slots=True)
class _Block:
    """One block; `squeezed` channels between the dense layers of its gates, 0 for none."""

    kernel: int
    hidden: int
    channels: int
    stride: int
    squeezed: int
    activation: str
    gate: str
    epsilon: float


def mobilenetv3(network: str, logit_gain: float) -> Draft:
    """MobileNetV3-Large (arXiv:1905.02244) as torchvision has it.

    `input` [1, 3, 224, 224] -> `output` [1, 1000]. Gates are hard sigmoids; their inner layer has a quarter
    of the hidden channels, rounded to multiples of 8.
    """
    b = Builder(network, opset=14, ir_version=7)
    x = _layer(b, b.input("input", (1, 3, 224, 224)), "stem", 16, 3, "HardSwish", stride=2, epsilon=1e-3)
    for number, (kernel, hidden, channels, gated, hard, stride) in enumerate(_MOBILENET, start=1):
        squeezed = _multiple_of_8(hidden // 4) if gated else 0
        activation = "HardSwish" if hard else "Relu"
        block = _Block(kernel, hidden, channels, stride, squeezed, activation, "HardSigmoid", 1e-3)
        x = _inverted_residual(b, x, f"block{number}", block)
    x = _layer(b, x, "head", 960, 1, "HardSwish", epsilon=1e-3)
    x = b.add("Flatten", b.add("GlobalAveragePool", x), axis=1)
    x = b.add("HardSwish", b.gemm(x, "classifier.inner", 960, 1280))
    b.output(b.gemm(x, "classifier", 1280, 1000, gain=logit_gain, result="output"), (1, 1000))
    return b.draft()


def efficientnet_b0(network: str, logit_gain: float) -> Draft:
    """EfficientNet-B0 (arXiv:1905.11946) as torchvision has it.

    `input` [1, 3, 224, 224] -> `output` [1, 1000]. SiLU is a product with a sigmoid; the gates' inner layer
    has a quarter of the block's input channels.
    """
    b = Builder(network, opset=14, ir_version=7)
    x = _layer(b, b.input("input", (1, 3, 224, 224)), "stem", 32, 3, "SiLU", stride=2)
    for stage, (expansion, kernel, channels, repeats, first) in enumerate(_EFFICIENTNET, start=1):
        for index in range(repeats):
            inputs, stride = b.channels(x), 1 if index else first
            squeezed = max(1, inputs // 4)
            block = _Block(kernel, expansion * inputs, channels, stride, squeezed, "SiLU", "Sigmoid", 1e-5)
            x = _inverted_residual(b, x, f"stage{stage}.block{index + 1}", block)
    x = _layer(b, x, "head", 1280, 1, "SiLU")
    x = b.add("Flatten", b.add("GlobalAveragePool", x), axis=1)
    b.output(b.gemm(x, "classifier", 1280, 1000, gain=logit_gain, result="output"), (1, 1000))
    return b.draft()


def _inverted_residual(b: Builder, x: str, name: str, block: _Block) -> str:
    """Expand by 1x1 where there is something to expand, depthwise, gates, project by 1x1."""
    inner, hidden, how = x, block.hidden, block.activation
    if hidden != b.channels(x):
        inner = _layer(b, inner, f"{name}.expand", hidden, 1, how, epsilon=block.epsilon)
    inner = _layer(
        b,
        inner,
        f"{name}.depthwise",
        hidden,
        block.kernel,
        how,
        stride=block.stride,
        group=hidden,
        epsilon=block.epsilon,
    )
    if block.squeezed:
        inner = _gated(b, inner, f"{name}.gate", block)
    gain = _GATED_GAIN if block.squeezed else 1.0
    inner = b.conv(inner, f"{name}.project", block.channels, 1, bias=False, gain=gain)
    residual = block.stride == 1 and b.channels(x) == block.channels
    scale = _BRANCH_SCALE if residual else 1.0
    inner = b.batch_norm(inner, f"{name}.project.norm", scale=scale, epsilon=block.epsilon)
    return b.add("Add", inner, x) if residual else inner


def _gated(b: Builder, x: str, name: str, block: _Block) -> str:
    """Every channel times a number in 0..1 that two dense layers make of all channels' means."""
    channels = b.channels(x)
    means = b.add("GlobalAveragePool", x)
    inner = b.conv(means, f"{name}.squeeze", block.squeezed, 1)
    inner = _activated(b, inner, "SiLU" if block.activation == "SiLU" else "Relu")
    gates = b.conv(inner, f"{name}.excite", channels, 1, gain=1.0)
    more: dict[str, Any] = {"alpha": 1 / 6, "beta": 0.5} if block.gate == "HardSigmoid" else {}
    return b.add("Mul", b.add(block.gate, gates, **more), x)


def _layer(
    b: Builder,
    x: str,
    name: str,
    channels: int,
    kernel: int,
    activation: str,
    *,
    stride: int = 1,
    group: int = 1,
    epsilon: float = 1e-5,
) -> str:
    """Convolution, normalisation, activation."""
    x = b.conv(x, name, channels, kernel, stride=stride, pads=kernel // 2, group=group, bias=False)
    return _activated(b, b.batch_norm(x, f"{name}.norm", epsilon=epsilon), activation)


def _activated(b: Builder, x: str, activation: str) -> str:
    if activation == "SiLU":
        return b.add("Mul", x, b.add("Sigmoid", x))
    return b.add(activation, x)


def _multiple_of_8(value: int) -> int:
    """The closest multiple of 8, the next one where that is less than nine tenths."""
    rounded = max(8, (value + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * value else rounded + 8
