"""A decoder of text like Llama, with free lengths of the prompt and of what is kept of it."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from toolchain.zoo import weights
from toolchain.zoo.builder import Builder, Draft

_EPSILON = 1e-6
_HIDDEN = -1e9  # added where a token sees nothing
_LONGEST = 10000.0  # wavelength of the slowest rotation, by 2 pi


def llama(
    network: str,
    logit_gain: float,
    *,
    layers: int = 6,
    heads: int = 8,
    shared: int = 4,
    depth: int = 64,
    hidden: int = 1408,
    words: int = 8192,
) -> Draft:
    """A decoder like Llama 2 (arXiv:2307.09288), with as many heads of keys and values as `shared`.

    `input_ids` and `position_ids` [batch, tokens] and `attention_mask` [batch, total] int64, each layer's
    `past_key_values.N.key` and `.value` [batch, shared, past, depth] -> `logits` [batch, tokens, words] and
    `present.N.key` and `.value` [batch, shared, total, depth], the new tokens behind the past.
    """
    parts = _Parts(Builder(network, opset=17, ir_version=8), heads, shared, depth)
    b, width = parts.b, heads * depth
    kinds = dict.fromkeys(("input_ids", "position_ids"), "tokens") | {"attention_mask": "total"}
    for name in ("input_ids", "attention_mask", "position_ids"):
        b.input(name, ("batch", kinds[name]), channels=width, data_type=TensorProto.INT64)
    x = b.add("Gather", b.random("words", (words, width), -0.05, 0.05), "input_ids", axis=0, channels=width)
    cosine, sine = parts.rotations("position_ids")
    mask = ""
    for layer in range(layers):
        name = f"layer{layer}"
        inner = parts.norm(x, f"{name}.norm1")
        key, value = (
            parts.apart(parts.dense(inner, f"{name}.{kind}", shared * depth), shared) for kind in _KINDS
        )
        query = parts.rotated(parts.apart(parts.dense(inner, f"{name}.query", width), heads), cosine, sine)
        keys = parts.joined(parts.rotated(key, cosine, sine), layer, "key")
        values = parts.joined(value, layer, "value")
        mask = mask or parts.mask(keys, x)
        x = b.add("Add", x, parts.dense(parts.attention(query, keys, values, mask), f"{name}.out", width))
        x = b.add("Add", x, parts.feed_forward(parts.norm(x, f"{name}.norm2"), name, hidden))
    bound = weights.he_bound(width, logit_gain)
    head = b.random("head.weight", (width, words), -bound, bound)
    b.output(b.add("MatMul", parts.norm(x, "norm"), head, name="logits"), ("batch", "tokens", words))
    return b.draft()


_KINDS = ("key", "value")


class _Parts:
    """Writes layers to `b` as `torch.onnx.export` spells those of the package transformers."""

    def __init__(self, b: Builder, heads: int, shared: int, depth: int) -> None:
        self.b, self.heads, self.shared, self.depth = b, heads, shared, depth

    def dense(self, x: str, name: str, outputs: int) -> str:
        inputs = self.b.channels(x)
        weight = self.b.he(f"{name}.weight", (inputs, outputs), inputs, 1.0)
        return self.b.add("MatMul", x, weight, channels=outputs)

    def norm(self, x: str, name: str) -> str:
        """Root mean square normalisation (arXiv:1910.07467)."""
        add, number = self.b.add, self.b.number
        mean = add("ReduceMean", add("Pow", x, number(2.0)), axes=[-1], keepdims=1)
        root = add("Sqrt", add("Add", mean, number(_EPSILON)))
        scale = self.b.random(f"{name}.scale", (self.b.channels(x),), 0.8, 1.2)
        return add("Mul", scale, add("Mul", x, add("Div", number(1.0), root)), channels=self.b.channels(x))

    def feed_forward(self, x: str, name: str, hidden: int) -> str:
        """SwiGLU (arXiv:2002.05202)."""
        width = self.b.channels(x)
        gate, up = (self.dense(x, f"{name}.{part}", hidden) for part in ("gate", "up"))
        gate = self.b.add("Mul", gate, self.b.add("Sigmoid", gate))
        return self.dense(self.b.add("Mul", gate, up), f"{name}.down", width)

    def apart(self, x: str, count: int) -> str:
        """[batch, tokens, count * depth] as [batch, count, tokens, depth]."""
        split = self.b.add("Reshape", x, self.b.numbers(0, 0, count, self.depth), channels=self.depth)
        return self.b.add("Transpose", split, perm=[0, 2, 1, 3])

    def rotations(self, places: str) -> tuple[str, str]:
        """Cosine and sine [batch, 1, tokens, depth] of what pairs of features turn by (arXiv:2104.09864)."""
        b, half = self.b, self.depth // 2
        frequencies = _LONGEST ** -(np.arange(half, dtype=np.float64) / half)
        turns = b.add("Cast", b.add("Unsqueeze", places, b.numbers(2)), to=TensorProto.FLOAT)
        turns = b.add("Mul", turns, b.constant("frequencies", frequencies.astype(np.float32)[None, None]))
        turns = b.add("Unsqueeze", b.add("Concat", turns, turns, axis=-1), b.numbers(1))
        return b.add("Cos", turns), b.add("Sin", turns)

    def rotated(self, x: str, cosine: str, sine: str) -> str:
        """Each feature of the first half turned with its pair of the second."""
        b, half, end = self.b, self.depth // 2, np.iinfo(np.int64).max
        first = b.add("Slice", x, b.numbers(0), b.numbers(half), b.numbers(3))
        second = b.add("Slice", x, b.numbers(half), b.numbers(end), b.numbers(3))
        turned = b.add("Concat", b.add("Neg", second), first, axis=-1)
        return b.add("Add", b.add("Mul", x, cosine), b.add("Mul", turned, sine))

    def joined(self, new: str, layer: int, kind: str) -> str:
        """The past and what is new, which is an output."""
        past, result = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
        self.b.input(past, ("batch", self.shared, "past", self.depth), channels=self.depth)
        self.b.add("Concat", past, new, name=result, axis=2)
        self.b.output(result, ("batch", self.shared, "total", self.depth))
        return result

    def mask(self, keys: str, x: str) -> str:
        """What is added to scores [batch, heads, tokens, total]: none sees what is later or masked."""
        b = self.b
        total, tokens = self._length(keys, 2), self._length(x, 1)
        places = b.add("Range", b.whole(0), total, b.whole(1))
        start = b.add("Unsqueeze", b.add("Sub", total, tokens), b.numbers(0))
        end = b.numbers(np.iinfo(np.int64).max)
        rows = b.add("Unsqueeze", b.add("Slice", places, start, end, b.numbers(0)), b.numbers(1))
        later = b.add("Greater", b.add("Unsqueeze", places, b.numbers(0)), rows)
        later = b.add("Unsqueeze", b.add("Unsqueeze", later, b.numbers(0)), b.numbers(1))
        hidden = b.add("Unsqueeze", b.add("Unsqueeze", "attention_mask", b.numbers(1)), b.numbers(2))
        hidden = b.add("Or", later, b.add("Equal", hidden, b.whole(0)))
        return b.add("Where", hidden, b.number(_HIDDEN), b.number(0.0))

    def attention(self, query: str, keys: str, values: str, mask: str) -> str:
        """Groups of queries share keys and values (arXiv:2305.13245), [batch, tokens, heads * depth]."""
        b = self.b
        keys, values = self._repeated(keys), self._repeated(values)
        scores = b.add("MatMul", query, b.add("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = b.add("Add", b.add("Mul", scores, b.number(self.depth**-0.5)), mask)
        mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), values)
        mixed = b.add("Transpose", mixed, perm=[0, 2, 1, 3])
        width = self.heads * self.depth
        return b.add("Reshape", mixed, b.numbers(0, 0, width), channels=width)

    def _repeated(self, x: str) -> str:
        """Each of the shared heads as often as there are queries that share it."""
        b = self.b
        batch, total = (b.add("Unsqueeze", self._length(x, axis), b.numbers(0)) for axis in (0, 2))
        group = b.numbers(self.heads // self.shared)
        wide = b.add("Concat", batch, b.numbers(self.shared), group, total, b.numbers(self.depth), axis=0)
        flat = b.add("Concat", batch, b.numbers(self.heads), total, b.numbers(self.depth), axis=0)
        return b.add("Reshape", b.add("Expand", b.add("Unsqueeze", x, b.numbers(2)), wide), flat)

    def _length(self, x: str, axis: int) -> str:
        return self.b.add("Gather", self.b.add("Shape", x), self.b.whole(axis), axis=0)
