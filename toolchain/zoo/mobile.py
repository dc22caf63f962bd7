"""Inverted residual blocks: MobileNetV2 (arXiv:1801.04381) and EfficientNet-Lite4 (arXiv:1905.11946)."""

from __future__ import annotations

from dataclasses import dataclass

from toolchain.zoo.builder import Builder, Draft

# (expansion, output channels, repeats, first stride), and for EfficientNet the kernel.
_MOBILENET = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
# Lite4: width 1.4 with channels rounded to multiples of 8, depth 1.8 rounded up except in the first and last
# stage.
_EFFICIENTNET_LITE4 = (
    (1, 24, 1, 1, 3),
    (6, 32, 4, 2, 3),
    (6, 56, 4, 2, 5),
    (6, 112, 6, 2, 3),
    (6, 160, 6, 1, 5),
    (6, 272, 8, 2, 5),
    (6, 448, 1, 1, 3),
)
_BRANCH_SCALE = 0.5


@dataclass(frozen=True, slots=True)
class _Block:
    """One inverted residual: expand by 1x1, depthwise kernel, project by 1x1."""

    expansion: int
    channels: int
    stride: int
    kernel: int
    same_padding: bool


def mobilenetv2(network: str, logit_gain: float) -> Draft:
    """`input` [1, 3, 224, 224] -> `output` [1, 1000]; Clip(0, 6), its limits being inputs."""
    b = Builder(network, opset=12, ir_version=7)
    x = b.input("input", (1, 3, 224, 224))
    limits = (b.scalar("relu6.low", 0.0), b.scalar("relu6.high", 6.0))
    x = _layer(b, x, "stem", 32, 3, limits, stride=2, pads=(1, 1, 1, 1))
    for stage, (expansion, channels, repeats, first) in enumerate(_MOBILENET, start=1):
        for index in range(repeats):
            block = _Block(expansion, channels, first if index == 0 else 1, 3, same_padding=False)
            x = _inverted_residual(b, x, f"stage{stage}.block{index + 1}", block, limits)
    x = _layer(b, x, "head", 1280, 1, limits)
    x = b.add("Flatten", b.add("GlobalAveragePool", x), axis=1)
    x = b.gemm(x, "classifier", 1280, 1000, gain=logit_gain, result="output")
    b.output(x, (1, 1000))
    return b.draft()


def efficientnet_lite4(network: str, logit_gain: float) -> Draft:
    """`images:0` [1, 224, 224, 3], channels last as TensorFlow exports it -> `Softmax:0` [1, 1000].

    Padding is TensorFlow's SAME: one more cell at the end where the stride is 2.
    """
    b = Builder(network, opset=11, ir_version=6)
    images = b.input("images:0", (1, 224, 224, 3), channels=3)
    x = b.add("Transpose", images, perm=[0, 3, 1, 2])
    limits = (b.scalar("relu6.low", 0.0), b.scalar("relu6.high", 6.0))
    x = _layer(b, x, "stem", 32, 3, limits, stride=2, pads=_same(3, 2))
    for stage, (expansion, channels, repeats, first, kernel) in enumerate(_EFFICIENTNET_LITE4, start=1):
        for index in range(repeats):
            block = _Block(expansion, channels, first if index == 0 else 1, kernel, same_padding=True)
            x = _inverted_residual(b, x, f"stage{stage}.block{index + 1}", block, limits)
    x = _layer(b, x, "head", 1280, 1, limits)
    x = b.add("AveragePool", x, kernel_shape=[7, 7], strides=[1, 1], pads=[0, 0, 0, 0])
    x = b.add("Squeeze", x, axes=[2, 3])
    weight = b.he("classifier.weight", (1280, 1000), 1280, logit_gain)
    x = b.add("Add", b.add("MatMul", x, weight), b.random("classifier.bias", (1000,), -0.1, 0.1))
    x = b.add("Softmax", x, name="Softmax:0", axis=1)
    b.output(x, (1, 1000))
    return b.draft()


def _inverted_residual(b: Builder, x: str, name: str, block: _Block, limits: tuple[str, str]) -> str:
    hidden = b.channels(x) * block.expansion
    branch = _layer(b, x, f"{name}.expand", hidden, 1, limits) if block.expansion != 1 else x
    pads = _same(block.kernel, block.stride if block.same_padding else 1)
    branch = _layer(
        b,
        branch,
        f"{name}.depthwise",
        hidden,
        block.kernel,
        limits,
        stride=block.stride,
        pads=pads,
        group=hidden,
    )
    branch = b.conv(branch, f"{name}.project", block.channels, 1, bias=False, gain=1.0)
    residual = block.stride == 1 and b.channels(x) == block.channels
    branch = b.batch_norm(
        branch, f"{name}.project.norm", scale=_BRANCH_SCALE if residual else 1.0, epsilon=1e-3
    )
    return b.add("Add", x, branch) if residual else branch


def _layer(
    b: Builder,
    x: str,
    name: str,
    channels: int,
    kernel: int,
    limits: tuple[str, str],
    *,
    stride: int = 1,
    pads: tuple[int, ...] = (0, 0, 0, 0),
    group: int = 1,
) -> str:
    """Convolution, normalisation, rectifier up to 6."""
    x = b.conv(x, name, channels, kernel, stride=stride, pads=pads, group=group, bias=False)
    return b.add("Clip", b.batch_norm(x, f"{name}.norm", epsilon=1e-3), *limits)


def _same(kernel: int, stride: int) -> tuple[int, int, int, int]:
    """Padding (top, left, bottom, right) that keeps an even size / stride, the odd cell at the end."""
    total = kernel - stride
    return (total // 2, total // 2, total - total // 2, total - total // 2)
