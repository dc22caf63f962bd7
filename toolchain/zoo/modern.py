"""Two architectures beyond image classification: a transformer encoder and a U-Net."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from toolchain.zoo.builder import Builder, Draft
from toolchain.zoo.transformer_parts import gelu_by_erf, layer_norm


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Sizes of the encoder: tokens, features, heads, hidden features of the feed-forward part."""

    tokens: int = 128
    width: int = 256
    heads: int = 4
    hidden: int = 1024
    layers: int = 2


def transformer_encoder(network: str, logit_gain: float, *, fused_norm: bool) -> Draft:
    """An encoder of two layers (arXiv:1706.03762) with GELU by Erf (arXiv:1606.08415), normalisation last.

    `hidden_states` [1, 128, 256] -> `last_hidden_state` [1, 128, 256]. `fused_norm` takes the
    LayerNormalization operator (opset 17), otherwise its arithmetic is spelt out (opset 13), as exporters
    before 2022 did.
    """
    sizes = _Encoder()
    b = Builder(network, opset=17 if fused_norm else 13, ir_version=8)
    x = b.input("hidden_states", (1, sizes.tokens, sizes.width), channels=sizes.width)
    for layer in range(1, sizes.layers + 1):
        name = f"layer{layer}"
        for part, layers in (("attention", _attention), ("mlp", _feed_forward)):
            total = b.add("Add", x, layers(b, x, f"{name}.{part}", sizes))
            x = layer_norm(b, total, f"{name}.{part}.norm", fused=fused_norm, epsilon=1e-5)
    x = b.add("Mul", x, b.scalar("output.scale", math.sqrt(logit_gain)), name="last_hidden_state")
    b.output(x, (1, sizes.tokens, sizes.width))
    return b.draft()


def unet(network: str, logit_gain: float) -> Draft:
    """A U-Net (arXiv:1505.04597) of four levels that enlarges in four ways on the way up.

    `image` [1, 3, 128, 128] -> `mask` [1, 2, 128, 128] in (0, 1): transposed convolution 2x2 and 4x4, nearest
    and linear Resize, each followed by Concat with the level's features.
    """
    b = Builder(network, opset=13, ir_version=8)
    x = b.input("image", (1, 3, 128, 128))
    scales = b.constant("resize.scales", np.array((1.0, 1.0, 2.0, 2.0), dtype=np.float32))
    skips = []
    for level, channels in enumerate((16, 32, 64, 128), start=1):
        x = _double_conv(b, x, f"down{level}", channels)
        skips.append(x)
        x = b.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = _double_conv(b, x, "bottom", 256)
    for level, enlarge in zip((4, 3, 2, 1), ENLARGE, strict=True):
        skip = skips[level - 1]
        channels = b.channels(skip)
        up = enlarge(b, x, f"up{level}", channels, scales)
        x = b.add("Concat", skip, up, axis=1, channels=2 * channels)
        x = _double_conv(b, x, f"up{level}", channels)
    x = b.conv(x, "head", 2, 1, gain=logit_gain)
    b.output(b.add("Sigmoid", x, name="mask"), (1, 2, 128, 128))
    return b.draft()


def _attention(b: Builder, x: str, name: str, sizes: _Encoder) -> str:
    """Multi-head self-attention with projections; softmax over the keys."""
    depth = sizes.width // sizes.heads
    split = b.ints(f"{name}.split", (1, sizes.tokens, sizes.heads, depth))
    query, key, value = (
        b.add("Reshape", _linear_layer(b, x, f"{name}.{part}", sizes.width, sizes.width), split)
        for part in ("query", "key", "value")
    )
    query = b.add("Transpose", query, perm=[0, 2, 1, 3])
    key = b.add("Transpose", key, perm=[0, 2, 3, 1])
    value = b.add("Transpose", value, perm=[0, 2, 1, 3])
    scores = b.add("Div", b.add("MatMul", query, key), b.scalar(f"{name}.root", math.sqrt(depth)))
    mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), value)
    mixed = b.add("Transpose", mixed, perm=[0, 2, 1, 3])
    merged = b.add("Reshape", mixed, b.ints(f"{name}.merge", (1, sizes.tokens, sizes.width)))
    return _linear_layer(b, merged, f"{name}.output", sizes.width, sizes.width)


def _feed_forward(b: Builder, x: str, name: str, sizes: _Encoder) -> str:
    """Two dense layers around GELU."""
    x = gelu_by_erf(b, _linear_layer(b, x, f"{name}.inner", sizes.width, sizes.hidden))
    return _linear_layer(b, x, f"{name}.outer", sizes.hidden, sizes.width)


def _linear_layer(b: Builder, x: str, name: str, inputs: int, outputs: int) -> str:
    product = b.add("MatMul", x, b.he(f"{name}.weight", (inputs, outputs), inputs, 1.0))
    return b.add("Add", product, b.random(f"{name}.bias", (outputs,), -0.1, 0.1))


def _double_conv(b: Builder, x: str, name: str, channels: int) -> str:
    for index in (1, 2):
        x = b.conv(x, f"{name}.conv{index}", channels, 3, pads=1, bias=False)
        x = b.add("Relu", b.batch_norm(x, f"{name}.conv{index}.norm"))
    return x


def _deconv2(b: Builder, x: str, name: str, channels: int, scales: str) -> str:
    del scales
    return _deconv(b, x, name, channels, kernel=2, pad=0)


def _deconv4(b: Builder, x: str, name: str, channels: int, scales: str) -> str:
    del scales
    return _deconv(b, x, name, channels, kernel=4, pad=1)


def _deconv(b: Builder, x: str, name: str, channels: int, *, kernel: int, pad: int) -> str:
    depth = b.channels(x)
    # Each result cell receives (kernel / stride)^2 taps from every input channel.
    weight = b.he(f"{name}.deconv.weight", (depth, channels, kernel, kernel), depth * (kernel // 2) ** 2, 1.0)
    bias = b.random(f"{name}.deconv.bias", (channels,), -0.1, 0.1)
    return b.add(
        "ConvTranspose",
        x,
        weight,
        bias,
        channels=channels,
        kernel_shape=[kernel, kernel],
        strides=[2, 2],
        pads=[pad] * 4,
    )


def _nearest(b: Builder, x: str, name: str, channels: int, scales: str) -> str:
    x = b.add(
        "Resize",
        x,
        "",
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return b.conv(x, f"{name}.resize", channels, 3, pads=1, gain=1.0)


def _linear(b: Builder, x: str, name: str, channels: int, scales: str) -> str:
    x = b.add("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    return b.conv(x, f"{name}.resize", channels, 3, pads=1, gain=1.0)


ENLARGE = (_deconv2, _nearest, _deconv4, _linear)
"""The ways to twice the height and width: of a tensor, with layers of a name, to so many channels."""
