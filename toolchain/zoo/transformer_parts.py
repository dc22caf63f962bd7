"""Dense layers, normalisation, GELU and attention as the two exporters of PyTorch spell them.

Read off what `torch.onnx.export` of PyTorch 2.15 writes for the models of torchvision and transformers, after
the arithmetic on shapes is folded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from toolchain.zoo.builder import Builder

LOWEST = -3.4028234663852886e38  # of float32: what the second exporter adds where nothing is to be seen


class Spelling(StrEnum):
    """Who exported the model, which decides what is one operator and what is arithmetic."""

    TORCHSCRIPT = "torchscript"  # opset 14: everything is arithmetic
    DYNAMO = "dynamo"  # opset 20: LayerNormalization and Gelu are operators
    ATTENTION = "attention"  # opset 23: so is Attention

    @property
    def opset(self) -> int:
        return {Spelling.TORCHSCRIPT: 14, Spelling.DYNAMO: 20, Spelling.ATTENTION: 23}[self]

    @property
    def ir_version(self) -> int:
        return {Spelling.TORCHSCRIPT: 7, Spelling.DYNAMO: 9, Spelling.ATTENTION: 11}[self]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Features of a token, layers, heads; by default those of BERT-base, ViT-B and the small GPT-2."""

    width: int = 768
    layers: int = 12
    heads: int = 12

    @property
    def split(self) -> Heads:
        return Heads(self.heads, self.width // self.heads)


@dataclass(frozen=True, slots=True)
class Heads:
    """How attention is divided: so many heads of `depth` features each."""

    count: int
    depth: int

    @property
    def width(self) -> int:
        return self.count * self.depth


@dataclass(frozen=True, slots=True)
class Parts:
    """Writes layers to `b` in one spelling. The channels of a tensor are its last dimension."""

    b: Builder
    spelling: Spelling
    epsilon: float

    @property
    def old(self) -> bool:
        """Whether operators of newer operator sets are spelt out."""
        return self.spelling is Spelling.TORCHSCRIPT

    def dense(self, x: str, name: str, outputs: int, *, bias: bool = True, gain: float = 1.0) -> str:
        """A dense layer of any number of rows; the older exporter has the bias first in the sum."""
        inputs = self.b.channels(x)
        weight = self.b.he(f"{name}.weight", (inputs, outputs), inputs, gain)
        product = self.b.add("MatMul", x, weight, channels=outputs)
        if not bias:
            return product
        shift = self.b.random(f"{name}.bias", (outputs,), -0.1, 0.1)
        return self.b.add("Add", *((shift, product) if self.old else (product, shift)), channels=outputs)

    def norm(self, x: str, name: str) -> str:
        """Normalisation over the last dimension (arXiv:1607.06450)."""
        return layer_norm(self.b, x, name, fused=not self.old, epsilon=self.epsilon)

    def gelu(self, x: str) -> str:
        """GELU (arXiv:1606.08415): x / 2 * (1 + erf(x / sqrt 2))."""
        if not self.old:
            return self.b.add("Gelu", x, approximate="none")
        return gelu_by_erf(self.b, x)

    def gelu_by_tanh(self, x: str) -> str:
        """The approximation with tanh; the models that have it spell it out themselves."""
        add, number = self.b.add, self.b.number
        half = add("Mul", x, number(0.5))
        cubed = add("Mul", add("Pow", x, number(3.0)), number(0.044715))
        inner = add("Mul", add("Add", x, cubed), number(math.sqrt(2.0 / math.pi)))
        return add("Mul", half, add("Add", add("Tanh", inner), number(1.0)))

    def feed_forward(self, x: str, name: str, hidden: int) -> str:
        """Two dense layers around GELU."""
        width = self.b.channels(x)
        x = self.gelu(self.dense(x, f"{name}.inner", hidden))
        return self.dense(x, f"{name}.outer", width)

    def apart(self, x: str, heads: Heads, tokens: int, name: str = "") -> str:
        """[1, tokens, width] as [1, heads, tokens, depth], called `name`."""
        return self.b.add("Transpose", self.beside(x, heads, tokens), name=name, perm=[0, 2, 1, 3])

    def beside(self, x: str, heads: Heads, tokens: int) -> str:
        """[1, tokens, width] as [1, tokens, heads, depth]."""
        shape = self.b.numbers(1, tokens, heads.count, heads.depth)
        return self.b.add("Reshape", x, shape, channels=heads.depth)

    def together(self, x: str, heads: Heads, tokens: int) -> str:
        """[1, heads, tokens, depth] as [1, tokens, width]."""
        x = self.b.add("Transpose", x, perm=[0, 2, 1, 3])
        return self.b.add("Reshape", x, self.b.numbers(1, tokens, heads.width), channels=heads.width)

    def turned(self, key: str, heads: Heads, tokens: int) -> str:
        """Keys [1, heads, tokens, depth] as right operand of a product; the newer exporter takes a detour."""
        if self.old:
            return self.b.add("Transpose", key, perm=[0, 1, 3, 2])
        flat = self.b.add("Reshape", key, self.b.numbers(heads.count, tokens, heads.depth))
        turned = self.b.add("Transpose", flat, perm=[0, 2, 1])
        return self.b.add("Reshape", turned, self.b.numbers(1, heads.count, heads.depth, tokens))

    def attention(
        self,
        query: str,
        key: str,
        value: str,
        heads: Heads,
        keys: int,
        mask: str = "",
        *,
        scale: float | None = None,
        guarded: bool = True,
    ) -> str:
        """Attention of [1, heads, tokens, depth] to so many keys; `scale` is depth ** -0.5 by default.

        `guarded`: with a mask, rows that see nothing give zeros.
        """
        factor = heads.depth**-0.5 if scale is None else scale
        if self.spelling is Spelling.ATTENTION:
            inputs = [query, key, value, *([mask] if mask else [])]
            return self.b.add("Attention", *inputs, scale=factor, is_causal=0)
        turned = self.turned(key, heads, keys)
        return self.scaled_products(query, turned, value, factor, mask, guarded=guarded)

    def scaled_products(
        self,
        query: str,
        turned: str,
        value: str,
        scale: float,
        mask: str = "",
        *,
        guarded: bool = True,
    ) -> str:
        """Attention as both exporters spell it: each operand of the first product takes the root of `scale`.

        The newer one leaves out a scale of 1.
        """
        if self.old or scale != 1.0:
            root = self.b.number(math.sqrt(scale))
            query, turned = self.b.add("Mul", query, root), self.b.add("Mul", turned, root)
        return self.shared(self.b.add("MatMul", query, turned), value, mask, guarded=guarded and bool(mask))

    def shared(self, scores: str, value: str, mask: str = "", *, guarded: bool = False) -> str:
        """The values by the softmax of scores; `guarded`: rows that see nothing give zeros, not NaN."""
        add = self.b.add
        shares = add("Softmax", add("Add", scores, mask) if mask else scores, axis=-1)
        if guarded:
            shares = add("Where", add("IsNaN", shares), self.b.number(0.0), shares)
        return add("MatMul", shares, value, channels=self.b.channels(value))

    def mask(self, seen: str) -> str:
        """A mask of truth values as `attention` takes it: for a sum, 0 and a large negative number."""
        if self.spelling is Spelling.ATTENTION:
            return seen
        lowest = -math.inf if self.old else LOWEST
        return self.b.add("Where", seen, self.b.number(0.0), self.b.number(lowest))

    def mean(self, x: str) -> str:
        """The mean of every channel of an image, [1, channels, 1, 1]."""
        if self.old:
            return self.b.add("GlobalAveragePool", x)
        return self.b.add("ReduceMean", x, self.b.numbers(-1, -2), keepdims=1)


def parts_for(network: str, spelling: str, epsilon: float) -> Parts:
    """What writes the layers of a new network; `epsilon` is that of its normalisation."""
    how = Spelling(spelling)
    return Parts(Builder(network, opset=how.opset, ir_version=how.ir_version), how, epsilon)


def layer_norm(b: Builder, x: str, name: str, *, fused: bool, epsilon: float) -> str:
    """Normalisation over the last dimension: one operator, or its arithmetic as before operator set 17."""
    shape = (b.channels(x),)
    scale, bias = b.random(f"{name}.scale", shape, 0.8, 1.2), b.random(f"{name}.bias", shape, -0.1, 0.1)
    if fused:
        return b.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)
    centred = b.add("Sub", x, b.add("ReduceMean", x, axes=[-1], keepdims=1))
    variance = b.add("ReduceMean", b.add("Pow", centred, b.number(2.0)), axes=[-1], keepdims=1)
    deviation = b.add("Sqrt", b.add("Add", variance, b.number(epsilon)))
    return b.add("Add", b.add("Mul", b.add("Div", centred, deviation), scale), bias)


def gelu_by_erf(b: Builder, x: str) -> str:
    """GELU spelt out: x / 2 * (1 + erf(x / sqrt 2))."""
    shifted = b.add("Add", b.add("Erf", b.add("Div", x, b.number(math.sqrt(2.0)))), b.number(1.0))
    return b.add("Mul", b.add("Mul", x, shifted), b.number(0.5))
