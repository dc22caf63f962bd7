"""Transformers: encoders of text (BERT), images (ViT) and sound (Whisper), and a decoder of text (GPT-2).

`sizes` are those of `transformer_parts.Sizes` that differ; what `spelling` may be says
`transformer_parts.Spelling`.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from toolchain.zoo.builder import Builder, Draft
from toolchain.zoo.transformer_parts import LOWEST, Heads, Parts, Sizes, parts_for

_EMBEDDING = 0.05  # half the width of the distribution of embeddings


def bert(
    network: str, logit_gain: float, *, spelling: str, tokens: int = 128, words: int = 30522, **sizes: int
) -> Draft:
    """BERT (arXiv:1810.04805) with its pooler, as the package transformers has it.

    `input_ids`, `attention_mask` and `token_type_ids` [1, tokens] int64 -> `last_hidden_state`
    [1, tokens, width] and `pooler_output` [1, width]. The older spelling is that of eager attention, which
    divides the products and adds large negative numbers.
    """
    parts, size = parts_for(network, spelling, 1e-12), Sizes(**sizes)
    b, width = parts.b, size.width
    ids, mask, types = (
        b.input(name, (1, tokens), channels=width, data_type=TensorProto.INT64)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    x = b.add("Add", _embedded(b, "words", (words, width), ids), _embedded(b, "types", (2, width), types))
    places = b.constant("position_ids", np.arange(tokens)[None])
    x = parts.norm(b.add("Add", x, _embedded(b, "positions", (512, width), places)), "embeddings.norm")
    seen = _added_mask(b, mask) if parts.old else parts.mask(_seen(b, mask, tokens))
    for layer in range(size.layers):
        name = f"layer{layer}"
        mixed = _bert_attention(parts, x, f"{name}.attention", size.split, tokens, seen)
        x = parts.norm(b.add("Add", mixed, x), f"{name}.attention.norm")
        x = parts.norm(b.add("Add", parts.feed_forward(x, f"{name}.mlp", 4 * width), x), f"{name}.mlp.norm")
    b.output(b.add("Identity", x, name="last_hidden_state"), (1, tokens, width))
    first = b.add("Gather", x, b.whole(0), axis=1)
    pooled = b.add("Tanh", b.gemm(first, "pooler", width, width, gain=logit_gain), name="pooler_output")
    b.output(pooled, (1, width))
    return b.draft()


def vit(
    network: str, logit_gain: float, *, spelling: str, image: int = 224, patch: int = 16, **sizes: int
) -> Draft:
    """A vision transformer (arXiv:2010.11929) as torchvision has it.

    `input` [1, 3, image, image] -> `output` [1, 1000].
    """
    parts, size = parts_for(network, spelling, 1e-6), Sizes(**sizes)
    b, width, patches = parts.b, size.width, (image // patch) ** 2
    x = b.conv(b.input("input", (1, 3, image, image)), "patches", width, patch, stride=patch, gain=1.0)
    x = b.add("Transpose", b.add("Reshape", x, b.numbers(1, width, patches)), perm=[0, 2, 1])
    x = b.add("Concat", b.random("class", (1, 1, width), -1.0, 1.0), x, axis=1, channels=width)
    x = b.add("Add", x, b.random("positions", (1, patches + 1, width), -_EMBEDDING, _EMBEDDING))
    for layer in range(size.layers):
        name = f"layer{layer}"
        inner = parts.norm(x, f"{name}.norm1")
        x = b.add("Add", _vit_attention(parts, inner, f"{name}.attention", size.split, patches + 1), x)
        x = b.add("Add", x, parts.feed_forward(parts.norm(x, f"{name}.norm2"), f"{name}.mlp", 4 * width))
    x = b.add("Gather", parts.norm(x, "norm"), b.whole(0), axis=1)
    b.output(b.gemm(x, "head", width, 1000, gain=logit_gain, result="output"), (1, 1000))
    return b.draft()


def gpt2(
    network: str,
    logit_gain: float,
    *,
    spelling: str,
    tokens: int,
    past: int = 0,
    words: int = 50257,
    **sizes: int,
) -> Draft:
    """GPT-2 (Radford et al. 2019) for `tokens` tokens that follow `past` others, as transformers has it.

    `input_ids` [1, tokens] int64 and, where there is a past, each layer's `past_key_values.N.key` and
    `.value` [1, heads, past, depth] -> `logits` [1, tokens, words] and each layer's `present.N.key` and
    `.value`, the new tokens behind the past. The embeddings of words are the last layer's weights.
    """
    parts, size = parts_for(network, spelling, 1e-5), Sizes(**sizes)
    b, width, total = parts.b, size.width, past + tokens
    ids = b.input("input_ids", (1, tokens), channels=width, data_type=TensorProto.INT64)
    bound = math.sqrt(3.0 * logit_gain / width)
    table = b.random("words.weight", (words, width), -bound, bound)
    places = b.constant("position_ids", np.arange(past, total)[None])
    x = b.add("Gather", table, ids, axis=0, channels=width)
    x = b.add("Add", x, _embedded(b, "positions", (1024, width), places))
    seen = np.tril(np.ones((1, 1, tokens, total), dtype=np.bool_), past)
    mask = parts.mask(b.constant("seen", seen))
    for layer in range(size.layers):
        name = f"layer{layer}"
        inner = _rows_dense(parts, parts.norm(x, f"{name}.norm1"), f"{name}.attention.in", 3 * width, tokens)
        query, key, value = _gpt2_heads(parts, inner, layer, size.split, tokens, past)
        # The older exporter has no guard behind a causal mask, of which no row is empty.
        guarded = past > 0 or not parts.old
        mixed = parts.attention(query, key, value, size.split, total, mask, guarded=guarded)
        mixed = parts.together(mixed, size.split, tokens)
        x = b.add("Add", _rows_dense(parts, mixed, f"{name}.attention.out", width, tokens), x)
        inner = _rows_dense(parts, parts.norm(x, f"{name}.norm2"), f"{name}.mlp.inner", 4 * width, tokens)
        inner = parts.gelu_by_tanh(inner)
        x = b.add("Add", x, _rows_dense(parts, inner, f"{name}.mlp.outer", width, tokens))
    turned = b.add("Transpose", table, perm=[1, 0])
    b.output(b.add("MatMul", parts.norm(x, "norm"), turned, name="logits"), (1, tokens, words))
    return b.draft()


def whisper_encoder(
    network: str, logit_gain: float, *, spelling: str, frames: int = 3000, mels: int = 80, **sizes: int
) -> Draft:
    """The encoder of Whisper (arXiv:2212.04356) as transformers has it, by default the tiny one.

    `input_features` [1, mels, frames] -> `last_hidden_state` [1, frames / 2, width]. Queries are scaled
    before they are taken apart; keys have no bias. Positions are a table of weights here, not sines.
    """
    parts, size = (
        parts_for(network, spelling, 1e-5),
        Sizes(**{"width": 384, "layers": 4, "heads": 6, **sizes}),
    )
    b, width, tokens = parts.b, size.width, frames // 2
    x = b.input("input_features", (1, mels, frames))
    for number, stride in ((1, 1), (2, 2)):
        depth, name = b.channels(x), f"conv{number}"
        weight = b.he(f"{name}.weight", (width, depth, 3), 3 * depth)
        bias = b.random(f"{name}.bias", (width,), -0.1, 0.1)
        x = b.add("Conv", x, weight, bias, channels=width, kernel_shape=[3], strides=[stride], pads=[1, 1])
        x = parts.gelu(x)
    x = b.add("Transpose", x, perm=[0, 2, 1])
    x = b.add("Add", x, b.random("positions", (tokens, width), -1.0, 1.0))
    for layer in range(size.layers):
        name = f"layer{layer}"
        inner = parts.norm(x, f"{name}.norm1")
        x = b.add("Add", x, _whisper_attention(parts, inner, f"{name}.attention", size.split, tokens))
        x = b.add("Add", x, parts.feed_forward(parts.norm(x, f"{name}.norm2"), f"{name}.mlp", 4 * width))
    x = parts.norm(x, "norm")
    b.output(b.add("Mul", x, b.number(math.sqrt(logit_gain)), name="last_hidden_state"), (1, tokens, width))
    return b.draft()


def _embedded(b: Builder, name: str, shape: tuple[int, int], rows: str) -> str:
    table = b.random(f"{name}.weight", shape, -_EMBEDDING, _EMBEDDING)
    return b.add("Gather", table, rows, axis=0, channels=shape[1])


# ---------------------------------------------------------------- BERT


def _added_mask(b: Builder, mask: str) -> str:
    """[1, tokens] of 0 and 1 as [1, 1, 1, tokens] of a large negative number and 0."""
    for axis in (1, 2):
        mask = b.add("Unsqueeze", mask, b.numbers(axis))
    seen = b.add("Cast", mask, to=TensorProto.FLOAT)
    return b.add("Mul", b.add("Sub", b.number(1.0), seen), b.number(LOWEST))


def _seen(b: Builder, mask: str, tokens: int) -> str:
    """[1, tokens] of 0 and 1 as truth values of every pair of tokens, taken by index as exported."""
    places = np.stack(np.broadcast_arrays(0, np.arange(tokens)), axis=-1).reshape(1, 1, 1, tokens, 2)
    seen = b.add("Cast", mask, to=TensorProto.BOOL)
    seen = b.add("GatherND", seen, b.constant("mask.places", places.astype(np.int64)))
    return b.add("And", b.constant("mask.rows", np.ones((1, 1, tokens, 1), dtype=np.bool_)), seen)


def _bert_attention(parts: Parts, x: str, name: str, split: Heads, tokens: int, mask: str) -> str:
    b = parts.b
    query, key, value = (parts.dense(x, f"{name}.{part}", split.width) for part in ("query", "key", "value"))
    query, value = parts.apart(query, split, tokens), parts.apart(value, split, tokens)
    if parts.old:
        turned = b.add("Transpose", parts.beside(key, split, tokens), perm=[0, 2, 3, 1])
        scores = b.add("Div", b.add("MatMul", query, turned), b.number(math.sqrt(split.depth)))
        mixed = parts.shared(scores, value, mask)
    else:
        mixed = parts.attention(query, parts.apart(key, split, tokens), value, split, tokens, mask)
    return parts.dense(parts.together(mixed, split, tokens), f"{name}.output", split.width)


# ---------------------------------------------------------------- ViT


def _vit_attention(parts: Parts, x: str, name: str, split: Heads, tokens: int) -> str:
    """One dense layer for all three operands, tokens in front, which are taken apart in five dimensions."""
    b = parts.b
    x = parts.dense(b.add("Transpose", x, perm=[1, 0, 2]), f"{name}.in", 3 * split.width)
    x = b.add("Reshape", x, b.numbers(tokens, 1, 3, split.width), channels=split.width)
    x = b.add("Transpose", b.add("Unsqueeze", x, b.numbers(0)), perm=[3, 1, 2, 0, 4])
    x = b.add("Squeeze", x, b.numbers(3))
    query, key, value = (_vit_heads(parts, x, part, split, tokens) for part in range(3))
    mixed = parts.attention(query, key, value, split, tokens)
    x = b.add("Transpose", mixed, perm=[2, 0, 1, 3])
    x = b.add("Reshape", x, b.numbers(tokens, split.width), channels=split.width)
    x = b.gemm(x, f"{name}.out", split.width, split.width, gain=1.0)
    x = b.add("Reshape", x, b.numbers(tokens, 1, split.width))
    return b.add("Transpose", x, perm=[1, 0, 2])


def _vit_heads(parts: Parts, x: str, part: int, split: Heads, tokens: int) -> str:
    """One of three [tokens, 1, width] as [1, heads, tokens, depth]."""
    b = parts.b
    x = b.add("Gather", x, b.whole(part), axis=0)
    x = b.add("Reshape", x, b.numbers(tokens, split.count, split.depth), channels=split.depth)
    x = b.add("Transpose", x, perm=[1, 0, 2])
    return b.add("Reshape", x, b.numbers(1, split.count, tokens, split.depth))


# ---------------------------------------------------------------- GPT-2


def _gpt2_heads(
    parts: Parts, x: str, layer: int, split: Heads, tokens: int, past: int
) -> tuple[str, str, str]:
    """Queries, and keys and values with the past before them, which are outputs."""
    b = parts.b
    query, *new = b.split(x, 3, axis=2, **({} if parts.old else {"num_outputs": 3}))
    joined = []
    for kind, one in zip(("key", "value"), new, strict=True):
        result, earlier = f"present.{layer}.{kind}", f"past_key_values.{layer}.{kind}"
        if past:
            b.input(earlier, (1, split.count, past, split.depth), channels=split.depth)
            one = b.add("Concat", earlier, parts.apart(one, split, tokens), name=result, axis=-2)
        else:
            one = parts.apart(one, split, tokens, name=result)
        b.output(one, (1, split.count, past + tokens, split.depth))
        joined.append(one)
    return parts.apart(query, split, tokens), joined[0], joined[1]


def _rows_dense(parts: Parts, x: str, name: str, outputs: int, tokens: int) -> str:
    """A dense layer as Gemm of rows with a weight that is not transposed."""
    b, inputs = parts.b, parts.b.channels(x)
    rows = b.add("Reshape", x, b.numbers(tokens, inputs))
    weight = b.he(f"{name}.weight", (inputs, outputs), inputs, 1.0)
    rows = b.add("Gemm", rows, weight, b.random(f"{name}.bias", (outputs,), -0.1, 0.1), channels=outputs)
    return b.add("Reshape", rows, b.numbers(1, tokens, outputs))


# ---------------------------------------------------------------- Whisper


def _whisper_attention(parts: Parts, x: str, name: str, split: Heads, tokens: int) -> str:
    b = parts.b
    query = b.add("Mul", parts.dense(x, f"{name}.query", split.width), b.number(split.depth**-0.5))
    query = parts.apart(query, split, tokens)
    key = parts.dense(x, f"{name}.key", split.width, bias=False)
    value = parts.apart(parts.dense(x, f"{name}.value", split.width), split, tokens)
    if parts.old:
        turned = b.add("Transpose", parts.beside(key, split, tokens), perm=[0, 2, 3, 1])
        mixed = parts.scaled_products(query, turned, value, 1.0)
    else:
        mixed = parts.attention(query, parts.apart(key, split, tokens), value, split, tokens, scale=1.0)
    return parts.dense(parts.together(mixed, split, tokens), f"{name}.output", split.width)
