"""Einsum: sums of products by labels of axes, as transpositions, matrix products, products and sums.

Two operands at a time become one, in the order that needs the fewest multiplications.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
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
    Values,
    rounded_once,
    same_dtype,
)
from compiler.graph.ops.elementwise import FLOATS, INTS, check_kind

Labels = tuple[str, ...]
"""One label for each axis; the axes of an ellipsis are `.0`, `.1`, ... counted from its end."""


# ---------------------------------------------------------------- the equation


@dataclass(frozen=True, slots=True)
class _Equation:
    """What the axes of the operands and of the result are called, and how long they are."""

    terms: tuple[Labels, ...]
    result: Labels
    extents: Mapping[str, int]


_TERM = re.compile(r"([A-Za-z]*)(\.\.\.)?([A-Za-z]*)")


def _labels(term: str, hidden: int) -> Labels:
    """The labels of a term whose ellipsis stands for so many axes."""
    found = _TERM.fullmatch(term)
    if found is None:
        raise InvalidError(f"term {term!r} of its equation is no list of letters with at most one ellipsis")
    middle = tuple(f".{number}" for number in reversed(range(hidden))) if found[2] else ()
    return (*found[1], *middle, *found[3])


def _parsed(equation: str, shapes: Sequence[Sequence[int]]) -> _Equation:
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(shapes):
        raise InvalidError(f"equation {equation!r} has {len(texts)} terms for {len(shapes)} inputs")
    hidden = [len(shape) - sum(map(str.isalpha, text)) for text, shape in zip(texts, shapes, strict=True)]
    for text, count, shape in zip(texts, hidden, shapes, strict=True):
        if count < 0 or (count and "..." not in text):
            raise InvalidError(f"term {text!r} of its equation does not fit the shape {list(shape)}")
    terms = tuple(_labels(text, count) for text, count in zip(texts, hidden, strict=True))
    most = max((count for text, count in zip(texts, hidden, strict=True) if "..." in text), default=0)
    result = _labels(right, most) if arrow else _implied(terms, most)
    extents = _extents(terms, shapes)
    unknown = [label for label in result if label not in extents]
    if unknown or len(set(result)) < len(result):
        raise InvalidError(f"the result of equation {equation!r} has axes of which there is not one each")
    return _Equation(terms, result, extents)


def _implied(terms: Sequence[Labels], hidden: int) -> Labels:
    """The result of an equation that names none: what an ellipsis stands for, then labels that occur once."""
    count = Counter(label for term in terms for label in term if label.isalpha())
    once = sorted(label for label, times in count.items() if times == 1)
    return (*(f".{number}" for number in reversed(range(hidden))), *once)


def _extents(terms: Sequence[Labels], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """The extent of each label; an axis of extent 1 goes with any other one."""
    found: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(term, shape, strict=True):
            known = found.get(label, 1)
            if extent != known and 1 not in (extent, known):
                raise InvalidError(f"axes {label!r} of its equation have extents {known} and {extent}")
            found[label] = extent if known == 1 else known
    return found


# ---------------------------------------------------------------- the record


def _import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return inputs, {"equation": "".join(Attrs(attrs).text("equation").split())}


def _equation_of(types: Types, attrs: Attrs) -> _Equation:
    return _parsed(attrs.text("equation"), [item.shape for item in types])


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    check_kind("Einsum", same_dtype(types), FLOATS + INTS)
    found = _equation_of(types, attrs)
    return (types[0].with_shape(tuple(found.extents[label] for label in found.result)),)


@rounded_once
def _reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    return np.asarray(np.einsum(attrs.text("equation"), *arrays))


def _flops(info: NodeInfo) -> int:
    found = _equation_of(info.in_types, info.attrs)
    return 2 * math.prod(found.extents.values())


# ---------------------------------------------------------------- its expansion


@dataclass(frozen=True, slots=True)
class _Operand:
    """A tensor whose axes have labels, each once."""

    value: Value
    labels: Labels


def _expand(e: Emitter, item: Node) -> Values:
    equation = _equation_of([value.type for value in item.inputs], item.attrs)
    operands = [
        _prepared(e, value, labels, equation)
        for value, labels in zip(item.inputs, equation.terms, strict=True)
    ]
    for first, second in _order([operand.labels for operand in operands], equation):
        b, a = operands.pop(second), operands.pop(first)
        kept = {*equation.result, *(label for other in operands for label in other.labels)}
        operands.append(_multiplied(e, a, b, kept, equation.extents))
    (last,) = operands
    return (_arranged(e, _summed(e, last, equation.result), equation),)


def _prepared(e: Emitter, value: Value, labels: Labels, equation: _Equation) -> _Operand:
    """An operand whose labels differ, without axes of extent 1 that meet longer ones."""
    for label, times in Counter(labels).items():
        for _ in range(times - 1):
            value, labels = _diagonal(e, value, labels, label)
    shape = value.type.shape
    kept = [at for at, label in enumerate(labels) if shape[at] == equation.extents[label]]
    if len(kept) < len(labels):
        value = e.emit("Reshape", value, shape=tuple(shape[at] for at in kept))
    return _Operand(value, tuple(labels[at] for at in kept))


def _diagonal(e: Emitter, value: Value, labels: Labels, label: str) -> tuple[Value, Labels]:
    """The elements at equal places of the first two axes of a label, as the last axis."""
    first = labels.index(label)
    second = labels.index(label, first + 1)
    rest = [at for at in range(len(labels)) if at not in (first, second)]
    shape = value.type.shape
    extent, outer = max(shape[first], shape[second]), tuple(shape[at] for at in rest)
    moved = _transposed(e, value, (*rest, first, second))
    kept = (*(labels[at] for at in rest), label)
    if shape[first] != shape[second]:  # one of them is 1: every element meets it
        return e.emit("Reshape", moved, shape=(*outer, extent)), kept
    flat = e.emit("Reshape", moved, shape=(*outer, extent * extent))
    begin, step = (0,) * (len(rest) + 1), (*(1 for _ in rest), extent + 1)
    return e.emit("Slice", flat, begin=begin, step=step, size=(*outer, extent)), kept


def _transposed(e: Emitter, value: Value, perm: Sequence[int]) -> Value:
    return value if list(perm) == sorted(perm) else e.emit("Transpose", value, perm=tuple(perm))


def _summed(e: Emitter, operand: _Operand, kept: Iterable[str]) -> _Operand:
    """The sum over all axes whose labels nothing else needs."""
    wanted = set(kept)
    axes = tuple(at for at, label in enumerate(operand.labels) if label not in wanted)
    if not axes:
        return operand
    total = e.emit("ReduceSum", operand.value, axes=axes, keepdims=False)
    return _Operand(total, tuple(label for label in operand.labels if label in wanted))


def _multiplied(e: Emitter, a: _Operand, b: _Operand, kept: set[str], extents: Mapping[str, int]) -> _Operand:
    """The product of two operands, summed over the labels that only they have: a matrix product, if any."""
    a = _summed(e, a, kept.union(b.labels))
    b = _summed(e, b, kept.union(a.labels))
    common = [label for label in a.labels if label in b.labels]
    batch = [label for label in common if label in kept]
    inner = [label for label in common if label not in kept]
    rows = [label for label in a.labels if label not in common]
    columns = [label for label in b.labels if label not in common]
    size = {"batch": batch, "rows": rows, "inner": inner, "columns": columns}
    count = {name: math.prod(extents[label] for label in labels) for name, labels in size.items()}
    left = _ordered(e, a, (*batch, *rows, *inner), (count["batch"], count["rows"], count["inner"]))
    right = _ordered(e, b, (*batch, *inner, *columns), (count["batch"], count["inner"], count["columns"]))
    product = e.emit("MatMul" if inner else "Mul", left, right)
    labels = (*batch, *rows, *columns)
    return _Operand(e.emit("Reshape", product, shape=tuple(extents[label] for label in labels)), labels)


def _ordered(e: Emitter, operand: _Operand, labels: Labels, shape: tuple[int, ...]) -> Value:
    """An operand with its axes in the given order, seen as of this shape."""
    value = _transposed(e, operand.value, [operand.labels.index(label) for label in labels])
    return e.emit("Reshape", value, shape=shape)


def _arranged(e: Emitter, operand: _Operand, equation: _Equation) -> Value:
    """The axes in the order of the result; extents that only axes of 1 had, come back."""
    present = [label for label in equation.result if label in operand.labels]
    value = _transposed(e, operand.value, [operand.labels.index(label) for label in present])
    shape = tuple(equation.extents[label] for label in equation.result)
    return value if value.type.shape == shape else e.emit("Reshape", value, shape=shape)


# ---------------------------------------------------------------- the order of products

_MOST_TRIED = 6
"""Of so many operands all orders are looked at; of more, the cheapest product comes first."""


def _order(terms: Sequence[Labels], equation: _Equation) -> list[tuple[int, int]]:
    """Which two operands are multiplied next, by their places (the smaller first); products go to the end."""
    sets = [frozenset(term) for term in terms]
    steps: list[tuple[int, int]] = []
    while len(sets) > 1:
        first, second = _best_pair(tuple(sets), frozenset(equation.result), equation.extents)
        steps.append((first, second))
        b, a = sets.pop(second), sets.pop(first)
        sets.append((a | b) & frozenset(equation.result).union(*sets))
    return steps


def _best_pair(
    sets: tuple[frozenset[str], ...], result: frozenset[str], extents: Mapping[str, int]
) -> tuple[int, int]:
    """The pair whose product begins the cheapest order; of many operands the cheapest product."""

    def work(labels: frozenset[str]) -> int:
        return math.prod(extents[label] for label in labels)

    @cache
    def least(rest: tuple[frozenset[str], ...]) -> int:
        if len(rest) < 2 or len(rest) > _MOST_TRIED:
            return 0
        return min(cost(rest, pair) for pair in _pairs(len(rest)))

    def cost(now: tuple[frozenset[str], ...], pair: tuple[int, int]) -> int:
        a, b = (now[at] for at in pair)
        others = [item for at, item in enumerate(now) if at not in pair]
        made = (a | b) & result.union(*others)
        return work(a | b) + least(tuple(sorted((*others, made), key=sorted)))

    return min(_pairs(len(sets)), key=lambda pair: cost(sets, pair))


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(first, second) for first in range(count) for second in range(first + 1, count)]


EINSUM = Op(
    "Einsum", Kind.ANCHOR, _infer, _reference, (1, None),
    (Signature(12, {"equation": None}, adapt=_import),), expand=_expand, flops=_flops,
)  # fmt: skip

OPS = (EINSUM,)
