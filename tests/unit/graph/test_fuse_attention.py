"""Which products and softmaxes become one kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.frontend.onnx import import_proto
from compiler.graph.fuse import fuse
from compiler.graph.fuse_attention import MOST_KEYS, fuse_attention
from compiler.graph.ir import Value
from compiler.graph.rewrites import rewrite_graph
from tests.support.onnx_models import single
from tests.support.sketch import Sketch
from tests.support.works import shared_keys

Make = Callable[[Sketch], Value | tuple[Value, Value]]


@pytest.fixture
def s() -> Sketch:
    return Sketch()


def softmax(s: Sketch, x: Value, axis: int = 2) -> Value:
    return s.emit("Softmax", x, axis=axis, flatten=False)


def scores(s: Sketch, keys: int = 7) -> Value:
    return s.emit("MatMul", s.input(2, 5, 4), s.input(2, 4, keys))


def values(s: Sketch, keys: int = 7) -> Value:
    return s.input(2, keys, 6)


def limited(s: Sketch) -> Value:
    x = s.emit("Max", scores(s), s.weights(5, 7))
    return s.emit("MatMul", softmax(s, x), values(s))


def by_tokens(s: Sketch) -> Value:
    """Transposes around it, of every operand and of the result."""
    q = s.emit("Transpose", s.input(1, 5, 2, 4), perm=(0, 2, 1, 3))
    k = s.emit("Transpose", s.input(1, 7, 2, 4), perm=(0, 2, 3, 1))
    v = s.emit("Transpose", s.input(1, 7, 2, 6), perm=(0, 2, 1, 3))
    return s.emit("Transpose", s.emit("MatMul", softmax(s, s.emit("MatMul", q, k), 3), v), perm=(0, 2, 1, 3))


def by_views(s: Sketch) -> Value:
    """q, k and v cut out of one tensor, seen under other shapes on the way."""
    x = s.input(5, 3, 2, 4)
    parts = [s.emit("Slice", x, begin=(0, n, 0, 0), step=(1,) * 4, size=(5, 1, 2, 4)) for n in range(3)]
    q, k, v = (
        s.emit("Reshape", s.emit("Transpose", part, perm=(1, 2, 0, 3)), shape=(2, 5, 4)) for part in parts
    )
    return s.emit("MatMul", softmax(s, s.emit("MatMul", q, s.emit("Transpose", k, perm=(0, 2, 1)))), v)


def scaled_before_views(s: Sketch) -> Value:
    """k by tokens, seen as one matrix for each head, transposed, scaled by a constant tensor."""
    k = s.emit("Transpose", s.input(1, 7, 2, 4), perm=(0, 2, 1, 3))
    k = s.emit("Transpose", s.emit("Reshape", k, shape=(2, 7, 4)), perm=(0, 2, 1))
    x = s.emit("MatMul", s.input(2, 5, 4), s.emit("Mul", k, s.weights(7)))
    return s.emit("MatMul", softmax(s, x), values(s))


def replaced(s: Sketch) -> Value:
    """What follows the softmax element by element, as where no number is made 0."""
    weights = softmax(s, scores(s))
    none = s.emit("IsNaN", weights)
    return s.emit("MatMul", s.emit("Where", none, s.weights(), weights), values(s))


def masked(s: Sketch) -> Value:
    x = s.emit("Add", s.emit("Mul", scores(s), s.weights()), s.input(2, 1, 7))
    return s.emit("MatMul", softmax(s, x), values(s))


JOINED: dict[str, Make] = {
    "plain": lambda s: s.emit("MatMul", softmax(s, scores(s)), values(s)),
    "scale and mask": masked,
    "by tokens": by_tokens,
    "another operator on scores": limited,
    "through views": by_views,
    "scaled before views": scaled_before_views,
    "keys that heads share": shared_keys,
    "weights changed": replaced,
    "operands computed": lambda s: s.emit(
        "MatMul",
        softmax(
            s, s.emit("MatMul", s.emit("Mul", s.input(2, 5, 4), s.weights()), s.emit("Exp", s.input(2, 4, 7)))
        ),
        s.emit("Tanh", values(s)),
    ),
    "followed elementwise": lambda s: s.emit("Relu", s.emit("MatMul", softmax(s, scores(s)), values(s))),
}


@pytest.mark.parametrize("make", JOINED.values(), ids=JOINED)
def test_one_kernel(make: Make, s: Sketch) -> None:
    made = make(s)
    (group,) = fuse_attention(s.fused(made)).groups  # type: ignore[arg-type]
    names = [item.op.name for item in group.nodes]
    assert names.count("MatMul") == 2
    assert names.count("Softmax") == 1
    assert group.outputs == (made,)


def seen_scores(s: Sketch) -> tuple[Value, Value]:
    x = scores(s)
    return s.emit("MatMul", softmax(s, x), values(s)), x


def seen_weights(s: Sketch) -> tuple[Value, Value]:
    x = softmax(s, scores(s))
    return s.emit("MatMul", x, values(s)), x


APART: dict[str, Make] = {
    "scores are an output": seen_scores,
    "weights are an output": seen_weights,
    "softmax of another axis": lambda s: s.emit("MatMul", softmax(s, scores(s), 1), values(s)),
    "values are constant": lambda s: s.emit("MatMul", softmax(s, scores(s)), s.weights(2, 7, 6)),
    "too many keys": lambda s: s.emit(
        "MatMul", softmax(s, scores(s, MOST_KEYS + 1)), values(s, MOST_KEYS + 1)
    ),
    "weights on the right": lambda s: s.emit("MatMul", s.input(2, 3, 5), softmax(s, scores(s))),
}


@pytest.mark.parametrize("make", APART.values(), ids=APART)
def test_several_kernels(make: Make, s: Sketch) -> None:
    made = make(s)
    fused = s.fused(*made) if isinstance(made, tuple) else s.fused(made)
    assert fuse_attention(fused) == fused
    assert len(fused.groups) == 3


def test_groups_stay_in_order(s: Sketch) -> None:
    """The joined group runs where the last of its parts stood, behind what makes its operands."""
    q = s.emit("MatMul", s.input(10, 3), s.weights(3, 4))
    k = s.emit("ReduceSum", s.input(2, 4, 7, 3), axes=(3,), keepdims=False)
    y = s.emit("MatMul", softmax(s, s.emit("MatMul", s.emit("Reshape", q, shape=(2, 5, 4)), k)), values(s))
    groups = fuse_attention(s.fused(s.emit("MatMul", y, s.weights(6, 3)))).groups
    assert [len(group.nodes) for group in groups] == [1, 1, 3, 1]
    assert groups[2].outputs[0] in groups[3].inputs


HEADS = np.zeros((2, 8, 16, 4), np.float32)
GROUPS = np.zeros((2, 2, 16, 4), np.float32)
TOKENS = np.zeros((2, 16, 32), np.float32)
MASK = np.zeros((16, 16), np.float32)


@pytest.mark.parametrize(
    ("inputs", "attrs", "before"),
    [
        ([HEADS] * 3, {}, 0),
        ([HEADS] * 3, {"is_causal": 1}, 0),
        ([HEADS] * 3, {"softcap": 3.0, "scale": 0.1}, 0),
        ([HEADS, GROUPS, GROUPS], {}, 0),
        ([TOKENS] * 3, {"q_num_heads": 8, "kv_num_heads": 8}, 0),
        ([HEADS] * 3 + [MASK], {}, 1),
        ([HEADS] * 3 + [MASK > 0], {}, 2),
        ([HEADS[:, :, :1]] * 3 + [None, HEADS, HEADS], {"is_causal": 1}, 2),
    ],
    ids=["plain", "causal", "capped", "groups", "tokens", "mask", "bool mask", "cache"],
)
def test_attention_as_onnx_writes_it(
    inputs: list[np.ndarray | None], attrs: dict[str, Any], before: int
) -> None:
    """One kernel for the products; others say which rows are masked, or lay the cache before the new keys."""
    proto, _ = single("Attention", inputs, attrs, 23)
    fused = fuse_attention(fuse(rewrite_graph(import_proto(proto, Path(), {}, {}))))
    *first, last = fused.groups
    names = [item.op.name for item in last.nodes]
    assert (names.count("MatMul"), names.count("Softmax"), len(first)) == (2, 1, before)
    assert ("Where" in names) == any(array is not None and array.ndim == 2 for array in inputs)


def test_on_threads_where_rows_fill_a_tile() -> None:
    """What blocks of threads can weigh; without the scores, or with them."""
    for rows, keys, scores, count in (
        (16, 9, True, 1),
        (16, 9, False, 2),
        (15, 9, True, 3),
        (16, 1025, True, 1),
        (16, 1025, False, 3),
    ):
        s = Sketch()
        x = s.emit("MatMul", s.input(2, rows, 4), s.input(2, 4, keys))
        fused = s.fused(s.emit("MatMul", softmax(s, x), s.input(2, keys, 6)))
        assert len(fuse_attention(fused, threads=True, scores=scores).groups) == count
