"""Networks of images that keep channels last in between: Swin and ConvNeXt, as torchvision has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toolchain.zoo.builder import Array, Builder, Draft
from toolchain.zoo.transformer_parts import Heads, Parts, parts_for

_DEPTH = 32  # features of a head of Swin
_FAR = (1 << 63) - 1  # the end of a slice that goes to the end


@dataclass(frozen=True, slots=True)
class _Window:
    """Windows of `side` x `side` over `size` x `size` tokens, moved by `shift` where they are shifted."""

    size: int
    side: int
    shift: int
    split: Heads

    @property
    def tokens(self) -> int:
        return self.side**2

    @property
    def count(self) -> int:
        return (self.size // self.side) ** 2


def swin(
    network: str,
    logit_gain: float,
    *,
    spelling: str,
    image: int = 224,
    width: int = 96,
    layers: tuple[int, ...] = (2, 2, 6, 2),
    side: int = 7,
) -> Draft:
    """Swin (arXiv:2103.14030), by default Swin-T: `input` [1, 3, image, image] -> `output` [1, 1000].

    Windows of `side` x `side` tokens, every second time shifted by half of it, a learnt bias for relative
    positions, and halving by four neighbours in one. What the exporters leave of the masks is constant.
    """
    parts = parts_for(network, spelling, 1e-5)
    b, size = parts.b, image // 4
    x = b.conv(b.input("input", (1, 3, image, image)), "patches", width, 4, stride=4, gain=1.0)
    x = parts.norm(b.add("Transpose", x, perm=[0, 2, 3, 1]), "patches.norm")
    for stage, depth in enumerate(layers):
        if stage:
            x, size = _merged(parts, x, f"stage{stage}.merge"), size // 2
        split = Heads(b.channels(x) // _DEPTH, _DEPTH)
        for layer in range(depth):
            # A window as large as the image has nowhere to move.
            shift = side // 2 if layer % 2 and side < size else 0
            name = f"stage{stage}.layer{layer}"
            inner = parts.norm(x, f"{name}.norm1")
            inner = _window_attention(parts, inner, f"{name}.attention", _Window(size, side, shift, split))
            x = b.add("Add", x, inner)
            hidden = 4 * b.channels(x)
            x = b.add("Add", x, parts.feed_forward(parts.norm(x, f"{name}.norm2"), f"{name}.mlp", hidden))
    x = b.add("Transpose", parts.norm(x, "norm"), perm=[0, 3, 1, 2])
    b.output(_classes(parts, parts.mean(x), logit_gain), (1, 1000))
    return b.draft()


def convnext(
    network: str,
    logit_gain: float,
    *,
    spelling: str,
    image: int = 224,
    width: int = 96,
    layers: tuple[int, ...] = (3, 3, 9, 3),
) -> Draft:
    """ConvNeXt (arXiv:2201.03545), by default ConvNeXt-T: `input` [1, 3, image, image] -> `output` [1, 1000].

    Normalisation and dense layers have channels last, between two transposes; convolutions have them first.
    """
    parts = parts_for(network, spelling, 1e-6)
    b = parts.b
    x = b.conv(b.input("input", (1, 3, image, image)), "stem", width, 4, stride=4, gain=1.0)
    x = _channels_norm(parts, x, "stem.norm")
    for stage, depth in enumerate(layers):
        if stage:
            x = _channels_norm(parts, x, f"stage{stage}.norm")
            x = b.conv(x, f"stage{stage}.halve", 2 * b.channels(x), 2, stride=2, gain=1.0)
        for layer in range(depth):
            x = _convnext_block(parts, x, f"stage{stage}.layer{layer}")
    x = _channels_norm(parts, parts.mean(x), "norm")
    b.output(_classes(parts, x, logit_gain), (1, 1000))
    return b.draft()


def _classes(parts: Parts, x: str, gain: float) -> str:
    """[1, channels, 1, 1] -> `output` [1, 1000]."""
    b, width = parts.b, parts.b.channels(x)
    flat = b.add("Flatten", x, axis=1) if parts.old else b.add("Reshape", x, b.numbers(1, width))
    return b.gemm(flat, "head", width, 1000, gain=gain, result="output")


# ---------------------------------------------------------------- Swin


def _window_attention(parts: Parts, x: str, name: str, window: _Window) -> str:
    """Attention of the tokens of a window to each other; [1, size, size, width] in and out."""
    b, split, tokens = parts.b, window.split, window.tokens
    x = _rolled(b, b.add("Pad", x, b.numbers(*[0] * 8)), window.shift, window.size)
    grid = window.size // window.side
    x = b.add("Reshape", x, b.numbers(1, grid, window.side, grid, window.side, split.width))
    x = b.add("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    x = b.add("Reshape", x, b.numbers(window.count, tokens, split.width))
    x = parts.dense(x, f"{name}.in", 3 * split.width)
    x = b.add(
        "Reshape", x, b.numbers(window.count, tokens, 3, split.count, split.depth), channels=split.depth
    )
    x = b.add("Transpose", x, perm=[2, 0, 3, 1, 4])
    query, key, value = (b.add("Gather", x, b.whole(part), axis=0) for part in range(3))
    query = b.add("Mul", query, b.number(split.depth**-0.5))
    scores = b.add("MatMul", query, b.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = b.add("Add", scores, _position_bias(b, name, window))
    if window.shift:
        scores = b.add("Reshape", scores, b.numbers(1, window.count, split.count, tokens, tokens))
        scores = b.add("Add", scores, _border_mask(b, window))
        scores = b.add("Reshape", scores, b.numbers(-1, split.count, tokens, tokens))
    x = b.add("Transpose", parts.shared(scores, value), perm=[0, 2, 1, 3])
    x = b.add("Reshape", x, b.numbers(window.count, tokens, split.width), channels=split.width)
    x = parts.dense(x, f"{name}.out", split.width)
    x = b.add("Reshape", x, b.numbers(1, grid, grid, window.side, window.side, split.width))
    x = b.add("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    x = b.add("Reshape", x, b.numbers(1, window.size, window.size, split.width))
    return _rolled(b, x, -window.shift, window.size)


def _rolled(b: Builder, x: str, shift: int, size: int) -> str:
    """[1, size, size, width] moved by `shift` to the front in both directions, what falls off put behind."""
    if not shift:
        return x
    cut = shift % size
    for axis in (1, 2):
        first = b.add("Slice", x, b.numbers(0), b.numbers(cut), b.numbers(axis), b.numbers(1))
        rest = b.add("Slice", x, b.numbers(cut), b.numbers(_FAR), b.numbers(axis), b.numbers(1))
        x = b.add("Concat", rest, first, axis=axis)
    return x


def _position_bias(b: Builder, name: str, window: _Window) -> str:
    """[1, heads, tokens, tokens] of a table with one row for each distance of two tokens of a window."""
    side, tokens, heads = window.side, window.tokens, window.split.count
    places = np.indices((side, side)).reshape(2, tokens).T
    apart = places[:, None] - places[None] + side - 1
    rows = apart[..., 0] * (2 * side - 1) + apart[..., 1]
    table = b.random(f"{name}.bias_table", ((2 * side - 1) ** 2, heads), -0.5, 0.5)
    bias = b.add("Gather", table, b.given(f"distances{side}", rows.reshape(-1)), axis=0)
    bias = b.add("Reshape", bias, b.numbers(tokens, tokens, -1))
    return b.add("Unsqueeze", b.add("Transpose", bias, perm=[2, 0, 1]), b.numbers(0))


def _border_mask(b: Builder, window: _Window) -> str:
    """[1, windows, 1, tokens, tokens]: -100 where tokens of a shifted window were no neighbours, else 0."""
    grid, side = window.size // window.side, window.side
    place = np.arange(window.size)
    part = (place >= window.size - side).astype(np.int64) + (place >= window.size - window.shift)
    parted = (3 * part[:, None] + part).reshape(grid, side, grid, side).transpose(0, 2, 1, 3)
    label = parted.reshape(window.count, window.tokens)
    other: Array = label[:, None, :] != label[:, :, None]
    apart = b.given(f"apart{window.size}", other[None, :, None])
    return b.add("Where", apart, b.number(-100.0), b.number(0.0))


def _merged(parts: Parts, x: str, name: str) -> str:
    """Four neighbours as one token of twice the width."""
    b, width = parts.b, parts.b.channels(x)
    x = b.add("Pad", x, b.numbers(*[0] * 8))
    rows = [_every_second(b, x, first, 1) for first in (0, 1)]
    four = [_every_second(b, row, first, 2) for first in (0, 1) for row in rows]
    x = parts.norm(b.add("Concat", *four, axis=-1, channels=4 * width), f"{name}.norm")
    return parts.dense(x, name, 2 * width, bias=False)


def _every_second(b: Builder, x: str, first: int, axis: int) -> str:
    return b.add("Slice", x, b.numbers(first), b.numbers(_FAR), b.numbers(axis), b.numbers(2))


# ---------------------------------------------------------------- ConvNeXt


def _convnext_block(parts: Parts, x: str, name: str) -> str:
    b, width = parts.b, parts.b.channels(x)
    inner = b.conv(x, f"{name}.depthwise", width, 7, pads=3, group=width, gain=1.0)
    inner = parts.norm(b.add("Transpose", inner, perm=[0, 2, 3, 1]), f"{name}.norm")
    inner = parts.feed_forward(inner, f"{name}.mlp", 4 * width)
    inner = b.add("Transpose", inner, perm=[0, 3, 1, 2])
    scale = b.random(f"{name}.scale", (width, 1, 1), 0.1, 0.3)
    return b.add("Add", b.add("Mul", scale, inner, channels=width), x)


def _channels_norm(parts: Parts, x: str, name: str) -> str:
    """Normalisation over the channels of [1, channels, height, width]."""
    x = parts.norm(parts.b.add("Transpose", x, perm=[0, 2, 3, 1]), name)
    return parts.b.add("Transpose", x, perm=[0, 3, 1, 2])
