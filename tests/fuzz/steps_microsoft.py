"""Steps: operators of com.microsoft, as onnxruntime's optimiser writes them: of f32, which it runs itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.grow import F32, MOST_ELEMENTS, Pool, Step, Tensor
from tests.fuzz.steps_images import image

MICROSOFT = "com.microsoft"


def _floats(g: Pool, least: int = 1) -> Tensor | None:
    x = g.find(lambda one: one.dtype == F32 and one.rank >= max(least, g.first + 1) and one.size > 0)
    return g.within(x, 8.0) if x is not None else None


def gelu(g: Pool) -> None:
    x = _floats(g)
    if x is None:
        return
    op = g.pick("Gelu", "BiasGelu", "FastGelu", "FastGelu", "QuickGelu")
    operands: list[str | Tensor] = [x]
    if op == "BiasGelu" or (op == "FastGelu" and g.chance(0.5)):
        operands.append(g.weights(F32, x.shape[-1]))
    attrs = {"alpha": g.pick(1.702, 1.1)} if op == "QuickGelu" else {}
    if op == "QuickGelu":  # farther out onnxruntime's sigmoid is right to few digits
        operands = [g.within(x, 2.0)]
    g.add(op, operands, x.shape, x, limit=x.limit + 1, domain=MICROSOFT, **attrs)


def product(g: Pool) -> None:
    x = _floats(g, 2)
    if x is None or x.rank < 2 + g.first:
        return
    turned, outer = g.integer(0, 1), g.dim()
    inner = x.shape[-1]
    if inner > 400 or math.prod(x.shape[:-1]) * outer > MOST_ELEMENTS:
        return
    shape = (outer, inner) if turned else (inner, outer)
    weights = g.weights(F32, *shape, scale=inner**-0.5)
    attrs = {"transB": turned, "alpha": g.pick(1.0, 0.5)}
    g.add(
        "FusedMatMul", [x, weights], (*x.shape[:-1], outer), x, limit=8.0 * inner, domain=MICROSOFT, **attrs
    )


def layer(g: Pool) -> None:
    """A product with an activation."""
    x = g.find(lambda one: one.dtype == F32 and one.rank == 2 and 0 not in one.shape and one.shape[1] <= 400)
    if x is None:
        return
    x = g.within(x, 8.0)
    inner, outer = x.shape[1], g.dim()
    attrs: dict[str, Any] = {"activation": g.pick("Relu", "Tanh", "Sigmoid", "LeakyRelu"), "transB": 1}
    if attrs["activation"] == "LeakyRelu":
        attrs["activation_alpha"] = 0.25
    weights = [g.weights(F32, outer, inner, scale=inner**-0.5), g.weights(F32, outer)]
    limit = 8.0 * inner + 2
    g.add("FusedGemm", [x, *weights], (x.shape[0], outer), x, limit=limit, domain=MICROSOFT, **attrs)


def skip_norm(g: Pool) -> None:
    """A sum and its normalisation, and the sum itself as another result."""
    x = g.find(lambda one: one.dtype == F32 and one.rank == 3 and 0 not in one.shape and one.shape[2] > 1)
    if x is None:
        return
    x = g.within(x, 8.0)
    other = g.find(lambda one: one.dtype == F32 and one.shape == x.shape)
    other = g.within(other, 8.0) if other is not None else x
    n, simple = x.shape[2], g.chance(0.4)
    operands: list[str | Tensor] = [x, other, g.weights(F32, n)]
    if not simple:
        operands.append(g.weights(F32, n))
    if g.chance(0.5) and (simple or len(operands) == 4):
        operands.append(g.weights(F32, n))
    op = "SkipSimplifiedLayerNormalization" if simple else "SkipLayerNormalization"
    whole = (F32, x.shape, 80.0)
    results = [whole, None, None, (F32, x.shape, 20.0)] if g.chance(0.5) else [whole]
    g.add_all(op, operands, results, domain=MICROSOFT, epsilon=0.125)


def convolution(g: Pool) -> None:
    x = image(g, "Conv")
    if x is None or x.dtype != F32 or x.rank != 4:
        return
    n, c, h, w = x.shape
    outer = g.pick(1, 3, 8, 16)
    kind = g.pick("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid")
    numbers = {"LeakyRelu": [0.25], "Clip": [-0.5, 0.5], "HardSigmoid": [0.2, 0.4]}.get(kind)
    attrs: dict[str, Any] = {"activation": kind, "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    if numbers:
        attrs["activation_params"] = numbers
    operands: list[str | Tensor] = [x, g.weights(F32, outer, c, 3, 3, scale=0.2), g.weights(F32, outer)]
    shape = (n, outer, h, w)
    g.add("FusedConv", operands, shape, x, limit=8.0 * 9 * c, domain=MICROSOFT, **attrs)


def packed_product(g: Pool) -> None:
    """Weights of four or eight bits in blocks, with a scale each."""
    x = _floats(g, 2)
    if x is None or x.rank < 2 or not 2 <= x.shape[-1] <= 200:
        return
    terms, columns, size = x.shape[-1], g.pick(1, 3, 8, 17), g.pick(16, 32)
    if math.prod(x.shape[:-1]) * columns > MOST_ELEMENTS:
        return
    blocks = -(-terms // size)
    packed = g.constant(g.rng.integers(0, 256, (columns, blocks, size // 2)).astype(np.uint8))
    scales = g.weights(F32, columns * blocks, scale=0.05)
    operands: list[str | Tensor] = [x, packed, scales]
    if g.chance(0.5):
        width = -(-blocks // 2)
        operands.append(g.constant(g.rng.integers(0, 256, columns * width).astype(np.uint8)))
    attrs = {"K": terms, "N": columns, "bits": 4, "block_size": size}
    limit = 8.0 * 0.8 * terms
    g.add("MatMulNBits", operands, (*x.shape[:-1], columns), x, limit=limit, domain=MICROSOFT, **attrs)


def attention(g: Pool) -> None:
    """Of (batch, tokens, width): in one product, or with queries, keys and values by themselves."""
    x = g.find(
        lambda one: one.dtype == F32 and one.rank == 3 and 0 < one.size <= 4000 and one.shape[2] % 4 == 0
    )
    if x is None:
        return
    x = g.within(x, 4.0)
    _, _, width = x.shape
    attrs: dict[str, Any] = {"num_heads": g.pick(1, 2, 4)}
    if g.chance(0.5):
        attrs["unidirectional"] = 1
    if g.chance(0.5):
        weights = [g.weights(F32, width, 3 * width, scale=width**-0.5), g.weights(F32, 3 * width)]
        g.add("Attention", [x, *weights], x.shape, x, limit=8.0 * width, domain=MICROSOFT, **attrs)
        return
    parts = [g.add("MatMul", [x, g.weights(F32, width, width, scale=width**-0.5)], x.shape, x) for _ in "kv"]
    g.add("MultiHeadAttention", [x, *parts], x.shape, x, limit=4.0 * width, domain=MICROSOFT, **attrs)


def rotary(g: Pool) -> None:
    x = g.find(
        lambda one: one.dtype == F32 and one.rank == 3 and 0 < one.size <= 8000 and one.shape[2] % 8 == 0
    )
    if x is None or x.shape[1] > 64:
        return
    half = g.pick(2, 4)
    tables = [g.weights(F32, 64, half) for _ in "cs"]
    at = g.constant(np.asarray([g.integer(0, 64 - x.shape[1])]))
    attrs = {"interleaved": g.integer(0, 1)}
    g.add("RotaryEmbedding", [x, at, *tables], x.shape, x, limit=2 * x.limit, domain=MICROSOFT, **attrs)


STEPS: tuple[Step, ...] = (
    gelu, gelu, product, layer, skip_norm, skip_norm, convolution, packed_product, attention, rotary,
)  # fmt: skip
