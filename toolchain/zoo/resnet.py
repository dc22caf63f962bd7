"""Residual networks of 18 to 152 layers: version 1 (arXiv:1512.03385) and version 2 (arXiv:1603.05027)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from toolchain.zoo.builder import Builder, Draft

_STAGES = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
_WIDTHS = (64, 128, 256, 512)
# Summed over all blocks, the variance that the branches add to the shortcut's; the last scale of a branch
# follows from it, so that activations keep their size at any depth.
_ADDED_VARIANCE = 3.0


@dataclass(frozen=True, slots=True)
class _Block:
    """One residual block: inner channels, stride, shape of the branch, scale of the branch's result."""

    width: int
    stride: int
    bottleneck: bool
    scale: float


def resnet(network: str, logit_gain: float, *, depth: int, version: int) -> Draft:
    """`data` [1, 3, 224, 224] -> `logits` [1, 1000].

    Basic blocks up to depth 34, bottlenecks above; the stride sits in a block's first convolution in version
    1, as in the paper, and in the 3x3 one in version 2.
    """
    b = Builder(network, opset=7, ir_version=4)
    x = b.input("data", (1, 3, 224, 224))
    x = b.batch_norm(x, "data.norm") if version == 2 else x
    x = b.conv(x, "conv1", 64, 7, stride=2, pads=3, bias=False)
    x = _norm_relu(b, x, "conv1")
    x = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    block = _block_v1 if version == 1 else _block_v2
    scale = math.sqrt(_ADDED_VARIANCE / sum(_STAGES[depth]))
    for stage, (blocks, width) in enumerate(zip(_STAGES[depth], _WIDTHS, strict=True), start=1):
        for index in range(blocks):
            stride = 2 if stage > 1 and index == 0 else 1
            x = block(b, x, f"stage{stage}.block{index + 1}", _Block(width, stride, depth >= 50, scale))
    x = _norm_relu(b, x, "final") if version == 2 else x
    x = b.add("Flatten", b.add("GlobalAveragePool", x), axis=1)
    x = b.gemm(x, "dense", b.channels(x), 1000, gain=logit_gain, result="logits")
    b.output(x, (1, 1000))
    return b.draft()


def _block_v1(b: Builder, x: str, name: str, block: _Block) -> str:
    """Convolution, normalisation, rectifier; the sum is rectified."""
    layers = _layers(block, stride_at=0)
    branch = x
    for index, (channels, kernel, step) in enumerate(layers):
        last = index == len(layers) - 1
        layer = f"{name}.conv{index + 1}"
        branch = b.conv(
            branch,
            layer,
            channels,
            kernel,
            stride=step,
            pads=kernel // 2,
            bias=False,
            gain=1.0 if last else 2.0,
        )
        branch = b.batch_norm(branch, f"{layer}.norm", scale=block.scale if last else 1.0)
        branch = branch if last else b.add("Relu", branch)
    shortcut = x
    if block.stride != 1 or b.channels(x) != layers[-1][0]:
        shortcut = b.conv(x, f"{name}.shortcut", layers[-1][0], 1, stride=block.stride, bias=False, gain=1.0)
        shortcut = b.batch_norm(shortcut, f"{name}.shortcut.norm")
    return b.add("Relu", b.add("Add", branch, shortcut))


def _block_v2(b: Builder, x: str, name: str, block: _Block) -> str:
    """Normalisation, rectifier, convolution; the sum is left as it is."""
    layers = _layers(block, stride_at=1 if block.bottleneck else 0)
    active = _norm_relu(b, x, f"{name}.pre")
    branch = active
    for index, (channels, kernel, step) in enumerate(layers):
        last = index == len(layers) - 1
        branch = b.conv(
            branch,
            f"{name}.conv{index + 1}",
            channels,
            kernel,
            stride=step,
            pads=kernel // 2,
            bias=False,
            gain=block.scale**2 if last else 2.0,
        )
        branch = branch if last else _norm_relu(b, branch, f"{name}.conv{index + 1}")
    shortcut = x
    if block.stride != 1 or b.channels(x) != layers[-1][0]:
        shortcut = b.conv(
            active, f"{name}.shortcut", layers[-1][0], 1, stride=block.stride, bias=False, gain=1.0
        )
    return b.add("Add", branch, shortcut)


def _layers(block: _Block, *, stride_at: int) -> tuple[tuple[int, int, int], ...]:
    """(channels, kernel, stride) of a block's convolutions."""
    width = block.width
    shapes = ((width, 1), (width, 3), (4 * width, 1)) if block.bottleneck else ((width, 3), (width, 3))
    return tuple(
        (channels, kernel, block.stride if index == stride_at else 1)
        for index, (channels, kernel) in enumerate(shapes)
    )


def _norm_relu(b: Builder, x: str, name: str) -> str:
    return b.add("Relu", b.batch_norm(x, f"{name}.norm"))
