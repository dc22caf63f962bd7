"""Attention as `com.microsoft` has it: written as ONNX's own Attention and RotaryEmbedding.

Source: onnxruntime's page of contributed operators (docs/ContribOperators.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.core.types import BOOL, I32, I64
from compiler.frontend.composites.writer import BodyWriter, Write
from compiler.graph.ir import TensorType
from compiler.graph.op import InvalidError, UnsupportedError

_BOOL, _I32, _I64 = (TensorType(kind, ()) for kind in (BOOL, I32, I64))


def _scale(w: BodyWriter) -> dict[str, Any]:
    """0 stands for the usual one."""
    given = w.given("scale")
    return {name: value for name, value in given.items() if value}


def _parts(w: BodyWriter, value: str, sizes: tuple[int, ...]) -> tuple[str, ...]:
    """A tensor cut along its last axis."""
    return w.emit_all("Split", len(sizes), value, w.constant(sizes), axis=-1)


def _mask(w: BodyWriter, at: int, keys: int, kind: TensorType) -> str:
    """What is added to the scores (batch, heads, queries, keys) for mask input `at`; "" without one.

    A mask of one axis holds how many keys each row has; others are 0 where a key does not count.
    """
    if not w.has(at):
        return ""
    name, shape = w.input(at), w.type(at).shape
    if len(shape) == 1:
        numbers = w.constant(range(keys), _I32)
        counts = w.emit("Less", numbers, w.emit("Reshape", w.cast(name, _I32), w.constant([-1, 1])))
        shape = (shape[0], keys)
    else:
        counts = w.cast(name, _BOOL)
    if len(shape) not in (2, 3) or (shape[0], shape[-1]) != (w.type(0).shape[0], keys):
        raise UnsupportedError(f"a mask of shape {list(w.type(at).shape)} is not supported with {keys} keys")
    counts = w.emit("Reshape", counts, w.constant([shape[0], 1, -1, keys]))
    filtered = w.attribute("mask_filter_value", -10000.0)
    return w.emit("Where", counts, w.constant(0, kind), w.constant(filtered, kind))


def _attention(w: BodyWriter) -> tuple[str, ...]:
    """Queries, keys and values are one product of the input; the cache is one tensor of keys and values."""
    w.most_inputs(6)
    w.refuse(do_rotary=0, past_present_share_buffer=0)
    kind, heads = w.type(0), w.attribute("num_heads")
    width = w.type(1).shape[1]
    sizes = tuple(w.attribute("qkv_hidden_sizes", [width // 3] * 3))
    w.given("rotary_embedding_dim")
    whole = w.sum(w.emit("MatMul", w.input(0), w.input(1)), w.input(2))
    past = _cache(w, 4) if w.has(4) else ()
    keys = kind.shape[1] + (w.type(4).shape[3] if past else 0)
    mask = w.sum_given(_mask(w, 3, keys, kind), w.input(5))
    made, *present = w.emit_all(
        "Attention", 3, *_parts(w, whole, sizes), mask, *past,
        q_num_heads=heads, kv_num_heads=heads, is_causal=w.attribute("unidirectional", 0), **_scale(w),
    )  # fmt: skip
    pair = [w.emit("Unsqueeze", one, w.constant([0])) for one in present]
    return made, w.emit("Concat", *pair, axis=0) if sizes[1] == sizes[2] else ""


def _cache(w: BodyWriter, at: int) -> tuple[str, ...]:
    """Keys and values that lie side by side along the first axis."""
    return tuple(w.emit("Gather", w.input(at), w.constant(number), axis=0) for number in (0, 1))


def _multi_head(w: BodyWriter) -> tuple[str, ...]:
    """Queries, keys and values by themselves, or keys and values by heads as another call made them."""
    w.most_inputs(8)
    kind, heads = w.type(0), w.attribute("num_heads")
    if kind.rank != 3 or not w.has(1) or not w.has(2):
        raise UnsupportedError("queries, keys and values in one tensor are not supported")
    q, k, v = w.input(0), w.input(1), w.input(2)
    if w.has(3):
        sizes = (kind.shape[2], *(_width(w.type(at)) for at in (1, 2)))
        biases = _parts(w, w.input(3), sizes)
        q = w.emit("Add", q, biases[0])
        k, v = (
            w.emit("Add", name, bias) if w.type(at).rank == 3 else name
            for at, (name, bias) in enumerate(zip((k, v), biases[1:], strict=True), 1)
        )
    by_heads = w.type(1).rank == 4
    if by_heads:
        q = _by_heads(w, q, kind, heads)
    past = [w.input(at) for at in (6, 7)] if w.has(6) else []
    keys = w.type(1).shape[2 if by_heads else 1] + (w.type(6).shape[2] if past else 0)
    mask = w.sum_given(_mask(w, 4, keys, kind), w.input(5))
    counts = {} if by_heads else {"q_num_heads": heads, "kv_num_heads": heads}
    made, *present = w.emit_all(
        "Attention", 3, q, k, v, mask, *past,
        is_causal=w.attribute("unidirectional", 0), **counts, **_scale(w),
    )  # fmt: skip
    return _by_tokens(w, made, kind) if by_heads else made, *present


def _width(kind: TensorType) -> int:
    """Of all heads."""
    return kind.shape[2] if kind.rank == 3 else kind.shape[1] * kind.shape[3]


def _by_heads(w: BodyWriter, value: str, kind: TensorType, heads: int) -> str:
    """(batch, tokens, heads * size) as (batch, heads, tokens, size)."""
    batch, tokens, width = kind.shape
    apart = w.emit("Reshape", value, w.constant([batch, tokens, heads, width // heads]))
    return w.emit("Transpose", apart, perm=[0, 2, 1, 3])


def _by_tokens(w: BodyWriter, value: str, kind: TensorType) -> str:
    """The reverse of `_by_heads`, for as many tokens as `kind` has."""
    batch, tokens, _ = kind.shape
    return w.emit("Reshape", w.emit("Transpose", value, perm=[0, 2, 1, 3]), w.constant([batch, tokens, -1]))


# ---------------------------------------------------------------- rotary embedding


def _rotary(w: BodyWriter) -> tuple[str, ...]:
    w.refuse(is_packed_batching=0, scale=1.0)
    kind, part = w.type(0), w.attribute("rotary_embedding_dim", 0)
    heads = w.attribute("num_heads", 0) or 0
    if kind.rank == 3 and not heads:
        if part:
            raise InvalidError("rotary_embedding_dim needs num_heads")
        heads = kind.shape[2] // (2 * w.type(2).shape[1])
    batch, tokens = kind.shape[0], kind.shape[1 if kind.rank == 3 else 2]
    at = w.input(1)
    if w.type(1).size == 1:
        numbers = w.constant([list(range(tokens))] * batch)
        at = w.emit("Add", w.emit("Reshape", at, w.constant([1, 1])), numbers)
    more: dict[str, Any] = {"num_heads": heads} if kind.rank == 3 else {}
    return (_rotated(w, w.input(0), at, (2, 3), rotary_embedding_dim=part, **more),)


def _rotated(w: BodyWriter, value: str, at: str, tables: tuple[int, int], **attrs: Any) -> str:
    """`value` turned by the angles of positions `at`; `tables`: the inputs of cosines and sines."""
    cosines, sines = (w.input(table) for table in tables)
    name = "rotary_interleaved" if tables[0] > 2 else "interleaved"
    return w.emit("RotaryEmbedding", value, cosines, sines, at, interleaved=w.attribute(name, 0), **attrs)


# ---------------------------------------------------------------- groups of queries


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of a GroupQueryAttention: `past` keys have room in the cache, `total` in that of the result."""

    batch: int
    tokens: int
    heads: int
    groups: int
    size: int
    past: int
    total: int


def _group_query(w: BodyWriter) -> tuple[str, ...]:
    """Rows have lengths of their own; keys and values of new tokens are put behind those of a row.

    Input 5 has one less than how many keys each row has, the new ones among them, and input 6 the most of
    all rows: where that is as many as there are new tokens the cache is empty.
    """
    w.most_inputs(11)
    w.refuse(smooth_softmax=0, qk_output=0, k_quant_type="NONE", v_quant_type="NONE", kv_cache_bit_width=0)
    w.refuse(sliding_window_cache=0, causal=1)
    sizes = _group_sizes(w)
    q, k, v = _group_operands(w, sizes)
    lengths = w.emit("Add", w.emit("Reshape", w.cast(w.input(5), _I64), w.constant([-1, 1])), w.constant(1))
    is_first = sizes.tokens == int(w.known(6, "total_sequence_length").reshape(()))
    before = w.emit("Sub", lengths, w.constant(0 if is_first else sizes.tokens))
    before = w.constant([[0]] * sizes.batch) if is_first else before
    places = w.emit("Add", before, w.constant([list(range(sizes.tokens))]))
    if w.attribute("do_rotary", 0):
        at = w.input(9) or places
        q, k = (_rotated(w, name, at, (7, 8)) for name in (q, k))
    keys, values = (_appended(w, past, new, before, sizes) for past, new in ((3, k), (4, v)))
    mask = w.sum(_window(w, places, lengths, sizes), w.input(10))
    made = w.emit("Attention", q, keys, values, mask, **_scale(w), **_softcap(w))
    return _by_tokens(w, made, TensorType(w.type(0).dtype, (sizes.batch, sizes.tokens, 1))), keys, values


def _softcap(w: BodyWriter) -> dict[str, Any]:
    cap = w.attribute("softcap", 0.0)
    return {"softcap": cap} if cap else {}


def _group_sizes(w: BodyWriter) -> _Sizes:
    batch, tokens, width = w.type(0).shape
    heads, groups = w.attribute("num_heads"), w.attribute("kv_num_heads")
    size = width // heads if w.has(1) else width // (heads + 2 * groups)
    past = w.type(3).shape[2] if w.has(3) else 0
    total = max(past, int(w.known(6, "total_sequence_length").reshape(())))
    return _Sizes(batch, tokens, heads, groups, size, past, total)


def _group_operands(w: BodyWriter, sizes: _Sizes) -> list[str]:
    """Queries, keys and values by heads; without keys all are in one tensor."""
    counts = (sizes.heads, sizes.groups, sizes.groups)
    names: tuple[str, ...] = (w.input(0), w.input(1), w.input(2))
    if not w.has(1):
        names = _parts(w, w.input(0), tuple(count * sizes.size for count in counts))
    kind = w.type(0)
    return [
        _by_heads(w, name, kind.with_shape((sizes.batch, sizes.tokens, count * sizes.size)), count)
        for name, count in zip(names, counts, strict=True)
    ]


def _appended(w: BodyWriter, past: int, new: str, before: str, sizes: _Sizes) -> str:
    """The cache with the new tokens of each row behind those that were there; 0 behind them."""
    kind, rows = w.type(0), []
    numbers = w.constant(range(sizes.total))
    for row in range(sizes.batch):
        first = w.emit("Gather", before, w.constant([row]), axis=0)
        place = w.emit("Sub", numbers, w.emit("Reshape", first, w.constant([1])))
        inside = w.emit("Clip", place, w.constant(0), w.constant(sizes.tokens - 1))
        fresh = w.emit("Gather", _row(w, new, row), inside, axis=2)
        rows.append(_kept(w, past, row, fresh, place, sizes, kind))
    return w.emit("Concat", *rows, axis=0)


def _row(w: BodyWriter, value: str, row: int) -> str:
    return w.emit("Gather", value, w.constant([row]), axis=0)


def _kept(w: BodyWriter, past: int, row: int, fresh: str, place: str, sizes: _Sizes, kind: TensorType) -> str:
    """One row of a cache: before place 0 what was there, from there on `fresh`, nothing behind it."""
    column = w.emit("Reshape", place, w.constant([-1, 1]))
    is_new = w.emit("Less", column, w.constant(sizes.tokens))
    found = w.emit("Where", is_new, fresh, w.constant(0, kind))
    if not sizes.past:
        return found
    old = _row(w, w.input(past), row)
    missing = sizes.total - sizes.past
    if missing:
        shape = (1, sizes.groups, missing, sizes.size)
        old = w.emit("Concat", old, w.constant(np.zeros(shape), kind), axis=2)
    return w.emit("Where", w.emit("Less", column, w.constant(0)), old, found)


def _window(w: BodyWriter, places: str, lengths: str, sizes: _Sizes) -> str:
    """What is added to scores: a token sees those up to itself, of the last ones only where that is said."""
    kind = w.type(0)
    keys = w.constant(range(sizes.total))
    at = w.emit("Unsqueeze", places, w.constant([2]))
    seen = w.emit("LessOrEqual", keys, at)
    window = w.attribute("local_window_size", -1)
    if window > 0:
        seen = w.emit("And", seen, w.emit("Greater", keys, w.emit("Sub", at, w.constant(window))))
    seen = w.emit("And", seen, w.emit("Less", keys, w.emit("Unsqueeze", lengths, w.constant([2]))))
    mask = w.emit("Where", seen, w.constant(0, kind), w.constant(-np.inf, kind))
    return w.emit("Unsqueeze", mask, w.constant([1]))


_DOMAIN = "com.microsoft"

BODIES: Mapping[tuple[str, str], Write] = {
    (_DOMAIN, "Attention"): _attention,
    (_DOMAIN, "GroupQueryAttention"): _group_query,
    (_DOMAIN, "MultiHeadAttention"): _multi_head,
    (_DOMAIN, "RotaryEmbedding"): _rotary,
}
