"""Whether an operator on the largest extents does, in the part a run has, what it does on that part alone.

Shown by experiment, at small sizes with the operators' references: what lies beyond is filled with what is no
number, then with arbitrary numbers, and the part within has to come out as it does without anything beyond.
Where it does not, operands are masked: what is beyond becomes a number that changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from compiler.graph.dtypes import Array, from_numpy, to_numpy
from compiler.graph.interpret import apply
from compiler.graph.ir import Node, Shape, TensorType

Mask = tuple[int, int]
"""An operand, by its place, and one of its axes."""
Filled = Mapping[Mask, float]
"""By what is beyond the part of an axis, where that is known for what is within the parts of the others."""

_FILLS = (0.0, -np.inf, np.inf, 1.0)
"""What changes no sum and product, maximum, minimum, product of all."""
_TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}
_LOOSE = 0.5
"""For floats of 8 bits, which have two or three of fraction."""
_SHIFT = 4
"""What makes almost all numbers of a normal distribution positive."""
SHIFTS = (0, -_SHIFT, _SHIFT)
"""Numbers of both signs, and of either."""
INTEGERS = (
    {0: (-2, -1, 1, 3), -_SHIFT: (-3, -2, -1), _SHIFT: (1, 2, 3)},
    {0: (-1, 1), -_SHIFT: (-1,), _SHIFT: (1,)},
    {0: (0,), -_SHIFT: (0,), _SHIFT: (0,)},
)
"""By sign: no zeros, which nothing is divided by; the next ones where a tensor has fewer places than that."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a node in an experiment.

    whole, part: its types at the larger and at the smaller size. known: what it holds at both, where that is
    known. natural: it holds no number below 0.
    """

    whole: TensorType
    part: TensorType
    known: tuple[Array, Array] | None = None
    natural: bool = False

    @property
    def varying(self) -> tuple[int, ...]:
        """Axes that the smaller size has less of."""
        sizes = zip(self.whole.shape, self.part.shape, strict=True)
        return tuple(axis for axis, (a, b) in enumerate(sizes) if a != b)


@dataclass(frozen=True, slots=True)
class Trial:
    """A node at a larger and at a smaller size, with its operands at both."""

    whole: Node
    part: Node
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Restriction:
    """What has to be done that a node computes each part by itself.

    masks: of which operands, along which axes, what is beyond becomes `fill`. beyond: what its results hold
    then beyond their part of an axis, by (result, axis), where that is one number.
    """

    masks: tuple[Mask, ...]
    fill: float
    beyond: Filled


def restriction(trials: Sequence[Trial], filled: Filled) -> Restriction | None:
    """The least masks with which all trials come out right; None where no masks do.

    filled: what is known to lie beyond the parts of operands.
    """
    if _comes_out(trials, filled, (), 0.0):
        return Restriction((), 0.0, _beyond(trials, filled, (), 0.0))
    every = tuple(
        (number, axis)
        for number, item in enumerate(trials[0].operands)
        for axis in _varying(trials, number)
        if item.known is None
    )
    for fill in _FILLS:
        if not every or not _comes_out(trials, filled, every, fill):
            continue
        masks = next(
            some
            for count in range(1, len(every) + 1)
            for some in combinations(every, count)
            if _comes_out(trials, filled, some, fill)
        )
        return Restriction(masks, fill, _beyond(trials, filled, masks, fill))
    return None


def _varying(trials: Sequence[Trial], number: int) -> list[int]:
    return sorted({axis for item in trials for axis in item.operands[number].varying})


def _comes_out(trials: Sequence[Trial], filled: Filled, masks: Sequence[Mask], fill: float) -> bool:
    for trial in trials:
        for whole, part in _results(trial, filled, masks, fill):
            for a, b in zip(whole, part, strict=True):
                if a.ndim != b.ndim or not close(a[_within(b.shape)], b):
                    return False
    return True


def _beyond(trials: Sequence[Trial], filled: Filled, masks: Sequence[Mask], fill: float) -> Filled:
    found: dict[Mask, set[float]] = {}
    for trial in trials:
        for whole, part in _results(trial, filled, masks, fill):
            for number, (a, b) in enumerate(zip(whole, part, strict=True)):
                for axis in (axis for axis in range(a.ndim) if a.shape[axis] != b.shape[axis]):
                    values = np.unique(a[_past(b.shape, axis)]).tolist()[:2]
                    found.setdefault((number, axis), set()).update(map(float, values))
    return {
        key: min(values) for key, values in found.items() if len(values) == 1 and not np.isnan(min(values))
    }


def _results(
    trial: Trial, filled: Filled, masks: Sequence[Mask], fill: float
) -> Iterator[tuple[Sequence[Array], Sequence[Array]]]:
    """What the node makes at both sizes, for numbers of both signs, and garbage that is no number."""
    for shift in SHIFTS:
        yield next(
            made
            for numbers in INTEGERS
            if (made := _tried(trial, filled, masks, fill, shift, numbers[shift]))
        )


def _tried(
    trial: Trial, filled: Filled, masks: Sequence[Mask], fill: float, shift: int, integers: Sequence[int]
) -> tuple[Sequence[Array], Sequence[Array]] | None:
    """None where integers are places that a tensor does not have."""
    rng = np.random.default_rng(20)
    pairs = [_operand(item, rng, shift, integers) for item in trial.operands]
    for (number, axis), value in filled.items():
        _fill(*pairs[number], axis, value, alone=True)
    for number, axis in masks:
        _fill(*pairs[number], axis, fill, alone=False)
    try:
        with np.errstate(all="ignore"):
            return applied(trial.whole, [a for a, _ in pairs]), applied(trial.part, [b for _, b in pairs])
    except IndexError:
        return None


def applied(node: Node, arrays: Sequence[Array]) -> Sequence[Array]:
    """What a node makes of these operands, by its reference."""
    return apply(node.op, arrays, node.attrs, [value.type for value in node.outputs])


def _operand(
    item: Operand, rng: np.random.Generator, shift: int, integers: Sequence[int]
) -> tuple[Array, Array]:
    """What the operand holds at both sizes: the same within the part, garbage beyond."""
    if item.known is not None:
        return item.known
    integers = [abs(number) for number in integers] if item.natural else integers
    part = random_array(item.part, rng, shift, integers)
    if item.whole == item.part:
        return part, part
    whole = random_array(item.whole, rng, -shift, integers)
    if not shift and item.whole.dtype.is_float and not item.whole.dtype.is_stored:
        whole = np.full_like(whole, np.nan)
    whole[_within(part.shape)] = part
    return whole, part


def random_array(kind: TensorType, rng: np.random.Generator, shift: int, integers: Sequence[int]) -> Array:
    """A tensor for an experiment: numbers around `shift`, or some of these integers."""
    dtype = to_numpy(kind.dtype)
    if kind.dtype.is_bool:
        return rng.integers(0, 2, kind.shape).astype(dtype)
    if kind.dtype.is_int:
        numbers = np.array(integers if kind.dtype.is_signed else [abs(item) for item in integers])
        return rng.choice(numbers, kind.shape).astype(dtype)
    return (rng.standard_normal(kind.shape, np.float32) + shift).astype(dtype)


def _fill(whole: Array, part: Array, axis: int, value: float, *, alone: bool) -> None:
    """Set what is beyond the part of an axis; alone: where other axes are within their parts."""
    if whole.shape[axis] == part.shape[axis]:
        return
    where = _past(part.shape, axis) if alone else _past((None,) * part.ndim, axis, part.shape[axis])
    whole[where] = fill_value(value, whole.dtype)


def fill_value(value: float, dtype: np.dtype[Any]) -> float | int | bool:
    """A fill as an element of a type: integers have no infinities, and take their least and largest."""
    if dtype.kind == "b":
        return bool(value > 0)
    if dtype.kind not in "iu" or np.isfinite(value):
        return value
    return int(np.iinfo(dtype).max if value > 0 else np.iinfo(dtype).min)


def _within(shape: Shape) -> tuple[slice, ...]:
    return tuple(slice(extent) for extent in shape)


def _past(shape: Sequence[int | None], axis: int, first: int | None = None) -> tuple[slice, ...]:
    """Beyond the part of an axis, within those of others."""
    begin = shape[axis] if first is None else first
    return tuple(slice(begin, None) if at == axis else slice(extent) for at, extent in enumerate(shape))


def close(a: Array, b: Array) -> bool:
    """Whether they are equal but for rounding."""
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "iub":
        return bool(np.array_equal(a, b))
    wide, other = a.astype(np.float64), b.astype(np.float64)
    finite = np.abs(other[np.isfinite(other)])
    rtol = _TOLERANCE.get(from_numpy(a.dtype).name, _LOOSE)
    scale = float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(wide, other, rtol=rtol, atol=rtol * scale, equal_nan=True))
