"""TfIdfVectorizer: how often given sequences of numbers occur in each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.core.types import F32
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import (
    Emitter,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Signature,
    Types,
    UnsupportedError,
    Values,
)
from compiler.graph.ops.indexing import emit_slice

_MODES = ("TF", "IDF", "TFIDF")


@dataclass(frozen=True, slots=True)
class _Grams:
    """The sequences of one length: one row each, and to which result each one counts."""

    rows: Array
    results: tuple[int, ...]

    @property
    def length(self) -> int:
        return int(self.rows.shape[1])


def _grams(attrs: Attrs) -> list[_Grams]:
    """The sequences that are looked for, by their lengths, which lie one behind the other in the pool."""
    pool, starts = attrs.integers("pool_int64s"), attrs.integers("ngram_counts")
    results, found = list(attrs.integers("ngram_indexes")), []
    for number, start in enumerate(starts):
        length = number + 1
        end = starts[length] if length < len(starts) else len(pool)
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise InvalidError(f"ngram_counts {list(starts)} do not divide a pool of {len(pool)} numbers")
        rows = np.array(pool[start:end], np.int64).reshape(-1, length)
        mine, results = results[: len(rows)], results[len(rows) :]
        if len(mine) < len(rows):
            raise InvalidError("there are more sequences in the pool than ngram_indexes")
        if attrs.integer("min_gram_length") <= length <= attrs.integer("max_gram_length") and len(rows):
            found.append(_Grams(rows, tuple(mine)))
    return found


def _import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    if given.text("mode") not in _MODES:
        raise InvalidError(f"TfIdfVectorizer has no mode {given.text('mode')!r}")
    if "pool_int64s" not in given:
        raise UnsupportedError("TfIdfVectorizer of strings is not supported")
    indexes = given.integers("ngram_indexes")
    if (
        not indexes
        or min(indexes) < 0
        or len(given.numbers("weights", (0.0,) * len(indexes))) != len(indexes)
    ):
        raise InvalidError(f"ngram_indexes {list(indexes)} are none, below 0, or not as many as weights")
    _grams(given)
    return inputs, attrs


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (source,) = types
    if not source.dtype.is_int or source.rank not in (1, 2):
        raise InvalidError(f"TfIdfVectorizer of {source}, expected a row or rows of integers")
    return (TensorType(F32, (*source.shape[:-1], max(attrs.integers("ngram_indexes")) + 1)),)


def _steps(attrs: Attrs, length: int) -> Iterator[int]:
    """The distances of neighbours in a sequence; single numbers have none."""
    return iter(range(1, 2 if length == 1 else attrs.integer("max_skip_count") + 2))


def _weights(attrs: Attrs, count: int) -> Array:
    """One factor for each result."""
    given = attrs.numbers("weights", (1.0,) * count)
    made = np.ones(count, np.float32)
    made[: len(given)] = given[:count]
    return made


def _reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    rows = np.atleast_2d(arrays[0])
    made = np.zeros((len(rows), max(attrs.integers("ngram_indexes")) + 1), np.float32)
    for grams in _grams(attrs):
        for step in _steps(attrs, grams.length):
            reach = step * (grams.length - 1)
            for number, row in enumerate(rows):
                for start in range(len(row) - reach):
                    seen = row[start : start + reach + 1 : step]
                    for gram, result in zip(grams.rows, grams.results, strict=True):
                        made[number, result] += np.array_equal(seen, gram)
    if attrs.text("mode") != "TF":
        frequency = np.minimum(made, 1) if attrs.text("mode") == "IDF" else made
        made = frequency * _weights(attrs, made.shape[1])
    return (made.reshape(*arrays[0].shape[:-1], made.shape[1]),)


def _expand(e: Emitter, item: Node) -> Values:
    """Windows compared with each sequence, and counted; then sorted into the results."""
    source, attrs, shape = item.inputs[0], item.attrs, item.output.type.shape
    rows = e.emit(
        "Reshape", source, shape=(source.type.size // max(source.type.shape[-1], 1), source.type.shape[-1])
    )
    parts: list[Value] = []
    results: list[int] = []
    for grams in _grams(attrs):
        counts = [_occurrences(e, rows, grams.rows, step) for step in _steps(attrs, grams.length)]
        known = [one for one in counts if one is not None]
        if known:
            total = known[0]
            for more in known[1:]:
                total = e.emit("Add", total, more)
            parts.append(total)
            results += grams.results
    if not parts:
        return (e.constant(np.zeros(shape, np.float32)),)
    sorted_in = np.zeros((len(results), shape[-1]), np.float32)
    sorted_in[np.arange(len(results)), results] = 1
    joined = e.emit("Concat", *parts, axis=1)
    made = e.emit("MatMul", joined, e.constant(sorted_in))
    if attrs.text("mode") == "IDF":
        made = e.emit("Min", made, e.constant(np.asarray(1, np.float32)))
    if attrs.text("mode") != "TF":
        made = e.emit("Mul", made, e.constant(_weights(attrs, shape[-1])))
    return (e.emit("Reshape", made, shape=shape),)


def _occurrences(e: Emitter, rows: Value, grams: Array, step: int) -> Value | None:
    """How often each sequence occurs in each row, its numbers `step` apart; None where rows are too short."""
    count, extent = rows.type.shape
    length, places = grams.shape[1], extent - step * (grams.shape[1] - 1)
    if places < 1:
        return None
    same = None
    for number in range(length):
        window = e.emit("Reshape", emit_slice(e, rows, 1, number * step, places), shape=(count, places, 1))
        wanted = e.constant(grams[:, number].astype(np.int64 if rows.type.dtype.bits == 64 else np.int32))
        found = e.emit("Equal", window, wanted)
        same = found if same is None else e.emit("And", same, found)
    assert same is not None
    return e.emit("ReduceSum", e.emit("Cast", same, to=F32), axes=(1,), keepdims=False)


_ATTRIBUTES = (
    "min_gram_length", "max_gram_length", "max_skip_count", "mode", "ngram_counts", "ngram_indexes",
    "pool_int64s", "weights",
)  # fmt: skip
TF_IDF = Op(
    "TfIdfVectorizer", Kind.REDUCTION, _infer, _reference, (1, 1),
    (Signature(9, dict.fromkeys(_ATTRIBUTES), adapt=_import),), expand=_expand,
)  # fmt: skip

OPS = (TF_IDF,)
