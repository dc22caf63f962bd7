"""Support vector machines of ai.onnx.ml: distances from support vectors, and sums of them.

Source: ONNX's page of the domain (Operators-ml.md); where it is silent, what onnxruntime computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np

from compiler.core.types import BOOL, F32, I64
from compiler.frontend.composites.writer import BodyWriter, Write
from compiler.graph.dtypes import Array
from compiler.graph.ir import TensorType
from compiler.graph.op import InvalidError, UnsupportedError

_F32, _I64 = TensorType(F32, ()), TensorType(I64, ())
_LEAST = 1e-7
"""Of a probability that one class is chosen and not the other."""
_NEAR = 0.005
"""How near probabilities of classes have to fit those of pairs, divided by the number of classes."""
_ROUNDS = 8
"""That a row may take; of a million rows with random probabilities none took more than four."""


class _Kernel(NamedTuple):
    """How far a row is from a support vector; which of the numbers count depends on the kind."""

    kind: str
    gamma: float
    offset: float
    degree: float


def _kernel(w: BodyWriter) -> _Kernel:
    kind, given = w.attribute("kernel_type", "LINEAR"), tuple(w.attribute("kernel_params", ()))
    if kind not in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        raise InvalidError(f"there is no kernel_type {kind!r}")
    if len(given) not in (0, 3):
        raise InvalidError(f"kernel_params are {len(given)} numbers, expected gamma, coef0 and degree")
    return _Kernel(kind, *(given or (0.0, 0.0, 0.0)))


def _rows(w: BodyWriter) -> tuple[str, int]:
    """The rows of features in f32, and how many features there are."""
    kind = w.type(0)
    if kind.rank not in (1, 2):
        raise InvalidError(f"rows of features are expected, not {kind}")
    rows = w.cast(w.input(0), _F32)
    features = kind.shape[-1]
    return (rows if kind.rank == 2 else w.emit("Reshape", rows, w.constant([1, features]))), features


def _vectors(w: BodyWriter, count: int, features: int) -> Array:
    found = np.asarray(w.attribute("support_vectors", ()), np.float32)
    if found.size != count * features:
        raise InvalidError(f"{found.size} numbers of {count} support vectors do not fit {w.type(0)}")
    return found.reshape(count, features)


def _distances(w: BodyWriter, rows: str, vectors: Array) -> str:
    """One column for each support vector."""
    kernel = _kernel(w)
    if kernel.kind == "RBF":
        away = w.emit("Sub", w.emit("Unsqueeze", rows, w.constant([1])), w.constant(vectors[None], _F32))
        squares = w.emit("ReduceSum", w.emit("Mul", away, away), w.constant([2]), keepdims=0)
        return w.emit("Exp", w.scaled(squares, -kernel.gamma, _F32))
    product = w.emit("MatMul", rows, w.constant(np.ascontiguousarray(vectors.T), _F32))
    if kernel.kind == "LINEAR":
        return product
    shifted = w.emit("Add", w.scaled(product, kernel.gamma, _F32), w.constant(kernel.offset, _F32))
    if kernel.kind == "SIGMOID":
        return w.emit("Tanh", shifted)
    return w.emit("Pow", shifted, w.constant(kernel.degree, _F32))


def _numbers(w: BodyWriter, name: str, least: int) -> Array:
    found = np.asarray(w.attribute(name, ()), np.float32)
    if found.size < least:
        raise InvalidError(f"{name} are {found.size} numbers, expected {least}")
    return found


def _regressor(w: BodyWriter) -> tuple[str, ...]:
    """`post_transform` is not applied, as onnxruntime does not either."""
    w.attribute("post_transform", "NONE")
    rows, features = _rows(w)
    count = w.attribute("n_supports", 0)
    if count > 0:
        rows = _distances(w, rows, _vectors(w, count, features))
    else:
        w.given("kernel_type", "kernel_params", "support_vectors")
    factors = _numbers(w, "coefficients", count or features)[: count or features]
    found = w.emit("MatMul", rows, w.constant(factors[:, None], _F32))
    found = w.emit("Add", found, w.constant(_numbers(w, "rho", 1)[:1], _F32))
    if w.attribute("one_class", 0):
        inside = w.emit("Greater", found, w.constant(0, _F32))
        found = w.emit("Where", inside, w.constant(1, _F32), w.constant(-1, _F32))
    return (found,)


def _classifier(w: BodyWriter) -> tuple[str, ...]:
    """Each two classes have a score that says which of them it is; the class with most votes is chosen."""
    labels = tuple(w.attribute("classlabels_ints"))
    sizes = tuple(w.attribute("vectors_per_class", ()))
    if not sizes or len(labels) < 2:
        raise UnsupportedError("without support vectors, or of fewer than two classes, it is not supported")
    if len(sizes) != len(labels) or min(sizes) < 0:
        raise InvalidError(f"vectors_per_class are {len(sizes)} numbers for {len(labels)} labels")
    rows, features = _rows(w)
    distances = _distances(w, rows, _vectors(w, sum(sizes), features))
    pairs = tuple(combinations(range(len(labels)), 2))
    scores = w.emit("MatMul", distances, w.constant(_pair_factors(w, sizes, pairs), _F32))
    scores = w.emit("Add", scores, w.constant(_numbers(w, "rho", len(pairs))[: len(pairs)], _F32))
    voted = w.emit("ArgMax", _votes(w, scores, len(labels), pairs), axis=1, keepdims=0)
    found = w.emit("Gather", w.constant(labels, _I64), voted)
    return found, _classifier_scores(w, scores, len(labels))


def _pair_factors(w: BodyWriter, sizes: tuple[int, ...], pairs: tuple[tuple[int, int], ...]) -> Array:
    """What the distance from each support vector counts in each pair's score.

    The coefficients are a row less than there are classes: those of class i's vectors against class j are in
    row j - 1 for i < j, else in row j.
    """
    count, ends = sum(sizes), np.cumsum((0, *sizes))
    given = _numbers(w, "coefficients", (len(sizes) - 1) * count)[: (len(sizes) - 1) * count]
    table, found = given.reshape(-1, count), np.zeros((count, len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        for own, row in ((i, j - 1), (j, i)):
            found[ends[own] : ends[own + 1], column] = table[row, ends[own] : ends[own + 1]]
    return found


def _votes(w: BodyWriter, scores: str, classes: int, pairs: tuple[tuple[int, int], ...]) -> str:
    """How many pairs each class has won: their first class does where the score is above 0."""
    first, second = (np.eye(classes, dtype=np.float32)[[pair[end] for pair in pairs]] for end in (0, 1))
    won = w.cast(w.emit("Greater", scores, w.constant(0, _F32)), _F32)
    more = w.emit("MatMul", won, w.constant(first - second, _F32))
    return w.emit("Add", more, w.constant(second.sum(axis=0), _F32))


def _classifier_scores(w: BodyWriter, scores: str, classes: int) -> str:
    transform = w.attribute("post_transform", "NONE")
    if transform not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise UnsupportedError(f"post_transform {transform} is not supported")
    slopes, offsets = (np.asarray(w.attribute(name, ()), np.float32) for name in ("prob_a", "prob_b"))
    if slopes.size or offsets.size:
        scores = _probabilities(w, scores, slopes, offsets, classes)
    elif classes == 2:
        scores = w.emit("Concat", w.emit("Neg", scores), scores, axis=1)
    if transform == "SOFTMAX":
        return w.emit("Softmax", scores, axis=1)
    return w.emit("Sigmoid", scores) if transform == "LOGISTIC" else scores


def _probabilities(w: BodyWriter, scores: str, slopes: Array, offsets: Array, classes: int) -> str:
    """Of each class, from those that a pair's first class is chosen and not its second (Platt's method)."""
    pairs = classes * (classes - 1) // 2
    if slopes.size != pairs or offsets.size != pairs:
        raise InvalidError(
            f"prob_a and prob_b are {slopes.size} and {offsets.size} numbers, expected {pairs}"
        )
    level = w.emit("Add", w.emit("Mul", scores, w.constant(slopes, _F32)), w.constant(offsets, _F32))
    first = w.emit("Sigmoid", w.emit("Neg", level))
    first = w.emit("Clip", first, w.constant(_LEAST, _F32), w.constant(1 - _LEAST, _F32))
    both = w.emit("Concat", first, w.emit("Sub", w.constant(1, _F32), first), axis=1)
    return _coupled(w, both, classes)


def _coupled(w: BodyWriter, both: str, classes: int) -> str:
    """Probabilities of classes that fit those of pairs best: `both` has pairs (i, j), then (j, i), i < j.

    Source: Wu, Lin, Weng, "Probability estimates for multi-class classification by pairwise coupling" (2004),
    algorithm 2 as LIBSVM has it: rows that are near enough stay, so that a fixed number of rounds does.
    """
    square, diagonal = _coupling(w, both, classes)
    found = w.constant(np.full((1, classes), 1 / classes), _F32)
    for _ in range(_ROUNDS):
        found = _round(w, square, diagonal, found, classes)
    return found


def _coupling(w: BodyWriter, both: str, classes: int) -> tuple[str, str]:
    """The matrix of each row, and its diagonal, as columns."""
    pairs = list(combinations(range(classes), 2))
    place = np.zeros((classes, classes), np.int64)
    for at, (i, j) in enumerate(pairs):
        place[i, j], place[j, i] = at, at + len(pairs)
    against = [[place[j, i] for j in range(classes) if j != i] for i in range(classes)]
    others = w.emit("Gather", both, w.constant(against), axis=1)
    diagonal = w.emit("ReduceSum", w.emit("Mul", others, others), w.constant([2]), keepdims=0)
    there, back = (w.emit("Gather", both, w.constant(table), axis=1) for table in (place, place.T))
    beside = w.emit("Neg", w.emit("Mul", there, back))
    own = w.cast(w.constant(np.eye(classes, dtype=np.int64)), TensorType(BOOL, ()))
    return w.emit("Where", own, w.emit("Unsqueeze", diagonal, w.constant([1])), beside), diagonal


def _round(w: BodyWriter, square: str, diagonal: str, found: str, classes: int) -> str:
    """One step for each class, where a row is not near enough yet; `found`: probabilities so far."""

    def column(value: str, at: int) -> str:
        return w.emit("Gather", value, w.constant([at]), axis=1)

    one = w.constant(1, _F32)
    product = w.emit("Mul", square, w.emit("Unsqueeze", found, w.constant([1])))
    sums = w.emit("ReduceSum", product, w.constant([2]), keepdims=0)
    mean = w.emit("ReduceSum", w.emit("Mul", found, sums), w.constant([1]), keepdims=1)
    away = w.emit("Abs", w.emit("Sub", sums, mean))
    away = w.emit("ReduceMax", away, w.constant([1]), keepdims=1)
    unsettled = w.emit("GreaterOrEqual", away, w.constant(_NEAR / classes, _F32))
    for at in range(classes):
        own, sum_here = column(diagonal, at), column(sums, at)
        step = w.emit("Div", w.emit("Sub", mean, sum_here), own)
        step = w.emit("Where", unsettled, step, w.constant(0, _F32))
        grown = w.emit("Add", step, one)
        change = w.emit(
            "Mul", step, w.emit("Add", w.emit("Mul", step, own), w.emit("Add", sum_here, sum_here))
        )
        mean = w.emit("Div", w.emit("Div", w.emit("Add", mean, change), grown), grown)
        row = w.emit("Squeeze", w.emit("Gather", square, w.constant([at]), axis=1), w.constant([1]))
        sums = w.emit("Div", w.emit("Add", sums, w.emit("Mul", step, row)), grown)
        moved = w.emit("Mul", step, w.constant(np.eye(classes)[at], _F32))
        found = w.emit("Div", w.emit("Add", found, moved), grown)
    return found


BODIES: Mapping[tuple[str, str], Write] = {
    ("ai.onnx.ml", "SVMClassifier"): _classifier,
    ("ai.onnx.ml", "SVMRegressor"): _regressor,
}
