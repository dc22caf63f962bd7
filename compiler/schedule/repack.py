"""Arrays from one layout to another, as an index map says: of weights at compile time, and for checks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from compiler.loops.index_map import IndexMap, IterSplit, iter_split
from compiler.loops.ir import Binary, Const, Expr, Var

Array = np.ndarray[Any, Any]


def repack(index_map: IndexMap, array: Array, pad: float) -> Array:
    """The array in the output layout of the map (of shape `IndexMap.shape`), not always contiguous."""
    parts = [iter_split(item) for item in index_map.outputs]
    if all(item is not None for item in parts):
        plan = _plan(index_map.inputs, [item for item in parts if item is not None], array.shape)
        if plan is not None:
            return _by_reshape(array, *plan, pad)
    return _by_indices(index_map, array, pad)


def unpack(index_map: IndexMap, array: Array, shape: Sequence[int]) -> Array:
    """The array of shape `shape` that `repack` would turn into `array`; padding is dropped."""
    numbers = repack(index_map, np.arange(np.prod(shape)).reshape(shape), -1)
    made = np.empty(np.prod(shape), array.dtype)
    made[numbers[numbers >= 0]] = array[numbers >= 0]
    return made.reshape(shape)


def _plan(
    inputs: Sequence[str], parts: Sequence[IterSplit], shape: Sequence[int]
) -> tuple[list[int], list[int], list[int]] | None:
    """(padded shape, shape of the parts, their order) when each input is cut into parts without overlap."""
    padded: list[int] = []
    cut: list[int] = []
    numbers: dict[IterSplit, int] = {}
    for name, extent in zip(inputs, shape, strict=True):
        own = sorted((item for item in parts if item.input == name), key=lambda item: -item.step)
        if not own or own[-1].step != 1:
            return None
        counts = _counts(own, extent)
        if counts is None:
            return None
        for item, count in zip(own, counts, strict=True):
            numbers[item] = len(cut)
            cut.append(count)
        padded.append(own[0].step * counts[0])
    if len(numbers) != len(parts):
        return None
    return padded, cut, [numbers[item] for item in parts]


def _counts(own: Sequence[IterSplit], extent: int) -> list[int] | None:
    """How many values each part of one input takes, largest step first."""
    top = own[0]
    first = -(-extent // top.step)
    if top.count is not None:
        if top.count * top.step < extent:
            return None
        first = min(first, top.count)
    counts = [first]
    for above, item in pairwise(own):
        if item.count is None or item.count * item.step != above.step:
            return None
        counts.append(item.count)
    return counts


def _by_reshape(
    array: Array, padded: Sequence[int], cut: Sequence[int], order: Sequence[int], pad: float
) -> Array:
    if tuple(padded) != array.shape:
        missing = [(0, new - old) for new, old in zip(padded, array.shape, strict=True)]
        array = np.pad(array, missing, constant_values=pad)
    return array.reshape(cut).transpose(order)


def _by_indices(index_map: IndexMap, array: Array, pad: float) -> Array:
    values: dict[str, Array] = dict(zip(index_map.inputs, np.indices(array.shape, sparse=True), strict=True))
    places = tuple(np.broadcast_to(_evaluate(item, values), array.shape) for item in index_map.outputs)
    result = np.full(index_map.shape(array.shape), pad, dtype=array.dtype)
    result[places] = array
    return result


def _evaluate(item: Expr, values: dict[str, Array]) -> Any:
    if isinstance(item, Var):
        return values[item.name]
    if isinstance(item, Const):
        return int(item.value)
    assert isinstance(item, Binary)
    return _OPERATORS[item.op](_evaluate(item.a, values), _evaluate(item.b, values))


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
}
