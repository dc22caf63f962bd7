"""Recurrent networks as PyTorch exports them: a tagger of words and an encoder of frames of sound."""

from __future__ import annotations

from typing import Any

import onnx

from toolchain.zoo.builder import Builder, Draft

_GATES = {"LSTM": 4, "GRU": 3}


def lstm_tagger(
    network: str,
    logit_gain: float,
    *,
    tokens: int = 64,
    words: int = 10_000,
    width: int = 256,
    hidden: int = 256,
    layers: int = 2,
    tags: int = 17,
) -> Draft:
    """A tagger (arXiv:1508.01991 without its last layer): `tokens` [1, tokens] -> `tags` [1, tokens, tags].

    Embeddings, LSTMs in both directions, and for each word the logits of its tags.
    """
    b = Builder(network, opset=17, ir_version=8)
    ids = b.input("tokens", (1, tokens), data_type=onnx.TensorProto.INT64)
    table = b.random("embedding", (words, width), -1.0, 1.0)
    x = b.add("Gather", table, ids, axis=0, channels=width)
    x = b.add("Transpose", x, perm=[1, 0, 2])
    for layer in range(layers):
        x = _layer(b, x, "LSTM", f"layer{layer}", hidden, tokens, directions=2)
    x = b.add("Transpose", x, perm=[1, 0, 2])
    weight = b.he("tag.weight", (b.channels(x), tags), b.channels(x), logit_gain)
    x = b.add("MatMul", x, weight, channels=tags)
    b.output(b.add("Add", x, b.random("tag.bias", (tags,), -0.1, 0.1), name="tags"), (1, tokens, tags))
    return b.draft()


def gru_encoder(
    network: str,
    logit_gain: float,
    *,
    frames: int = 100,
    features: int = 80,
    hidden: int = 256,
    layers: int = 2,
    classes: int = 30,
) -> Draft:
    """Letters of speech (in the manner of arXiv:1412.5567): `frames` [1, frames, features] -> `letters`.

    GRUs in one direction, each a layer, and for each frame the logits of letters, [1, frames, classes].
    """
    b = Builder(network, opset=17, ir_version=8)
    x = b.input("frames", (1, frames, features), channels=features)
    x = b.add("Transpose", x, perm=[1, 0, 2])
    for layer in range(layers):
        x = _layer(b, x, "GRU", f"layer{layer}", hidden, frames, directions=1)
    x = b.add("Transpose", x, perm=[1, 0, 2])
    weight = b.he("letter.weight", (b.channels(x), classes), b.channels(x), logit_gain)
    x = b.add("MatMul", x, weight, channels=classes)
    shift = b.random("letter.bias", (classes,), -0.1, 0.1)
    b.output(b.add("Add", x, shift, name="letters"), (1, frames, classes))
    return b.draft()


def _layer(b: Builder, x: str, op: str, name: str, hidden: int, steps: int, *, directions: int) -> str:
    """[steps, 1, inputs] -> [steps, 1, directions x hidden], from states of zeros."""
    inputs, rows = b.channels(x), _GATES[op] * hidden
    bound = hidden**-0.5
    operands = [
        x,
        b.random(f"{name}.W", (directions, rows, inputs), -bound, bound),
        b.random(f"{name}.R", (directions, rows, hidden), -bound, bound),
        b.random(f"{name}.B", (directions, 2 * rows), -bound, bound),
    ]
    more: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
    direction = "bidirectional" if directions == 2 else "forward"
    x = b.add(op, *operands, channels=hidden, hidden_size=hidden, direction=direction, **more)
    x = b.add("Transpose", x, perm=[0, 2, 1, 3])
    return b.add("Reshape", x, b.numbers(steps, 1, directions * hidden), channels=directions * hidden)
