"""Whether an operator on the largest extents does, in the part a run has, what it does on that part alone.

Shown by experiment, at small sizes with the operators' references: what lies beyond is filled with what is no
number, then with arbitrary numbers, and the part within has to come out as it does without anything beyond.
Where it does not, operands are masked: what is beyond becomes a number that changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from compiler.graph.dtypes import Array, from_numpy, to_numpy
from compiler.graph.interpret import apply
from compiler.graph.ir import Node, Shape, TensorType

Mask = tuple[int, int]
"""An operand, by its place, and one of its axes."""
Filled = Mapping[Mask, float]
"""By what is beyond the part of an axis, where that is known for what is within the parts of the others."""

_FEW = 64
"""Elements, or fewer, of which a few kinds may come out right by chance."""
_FILLS = (0.0, -np.inf, np.inf, 1.0)
"""What changes no sum and product, maximum, minimum, product of all."""
_TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}
_LOOSE = 0.5
"""For floats of 8 bits, which have two or three of fraction."""
_TRUE = {0: 0.5, -1: 0.1, 1: 0.9}
"""How many truth values hold, by the sign of the shift."""
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
    beyond = _comes_out(trials, filled, (), 0.0)
    if beyond is not None:
        return Restriction((), 0.0, beyond)
    every = tuple(
        (number, axis)
        for number, item in enumerate(trials[0].operands)
        for axis in _varying(trials, number)
        if item.known is None
    )
    for fill in _FILLS:
        if not every or _comes_out(trials, filled, every, fill) is None:
            continue
        fewest = (some for count in range(1, len(every) + 1) for some in combinations(every, count))
        for masks in fewest:
            beyond = _comes_out(trials, filled, masks, fill)
            if beyond is not None:
                return Restriction(masks, fill, beyond)
    return None


def _varying(trials: Sequence[Trial], number: int) -> list[int]:
    return sorted({axis for item in trials for axis in item.operands[number].varying})


def _comes_out(trials: Sequence[Trial], filled: Filled, masks: Sequence[Mask], fill: float) -> Filled | None:
    """What lies beyond parts of results, where that is one number; None where a part comes out otherwise."""
    found: dict[Mask, set[float]] = {}
    for trial in trials:
        for whole, part in _results(trial, filled, masks, fill):
            for number, (a, b) in enumerate(zip(whole, part, strict=True)):
                if a.ndim != b.ndim or not close(a[_within(b.shape)], b):
                    return None
                for axis in (axis for axis in range(a.ndim) if a.shape[axis] != b.shape[axis]):
                    known = found.setdefault((number, axis), set())
                    if len(known) <= 1:
                        known.update(map(float, np.unique(a[_past(b.shape, axis)]).tolist()[:2]))
    return {
        key: min(values) for key, values in found.items() if len(values) == 1 and not np.isnan(min(values))
    }


def _results(
    trial: Trial, filled: Filled, masks: Sequence[Mask], fill: float
) -> Iterator[tuple[Sequence[Array], Sequence[Array]]]:
    """What the node makes at both sizes, for numbers of both signs, and garbage that is no number."""
    for seed, shift in draws(trial.part):
        yield next(
            made
            for numbers in INTEGERS
            if (made := _tried(trial, filled, masks, fill, np.random.default_rng(seed), shift, numbers))
        )


def draws(node: Node) -> Iterator[tuple[int, int]]:
    """A seed and a shift for each experiment: more of them where few elements may be alike by chance."""
    kinds = [value.type for value in (*node.inputs, *node.outputs)]
    few = any(value.type.size < _FEW for value in node.outputs)
    coarse = any(kind.dtype.is_int or kind.dtype.is_bool for kind in kinds)
    return product(range(20, 24 if few and coarse else 21), SHIFTS)


def _tried(
    trial: Trial,
    filled: Filled,
    masks: Sequence[Mask],
    fill: float,
    rng: np.random.Generator,
    shift: int,
    integers: Mapping[int, Sequence[int]],
) -> tuple[Sequence[Array], Sequence[Array]] | None:
    """None where integers are places that a tensor does not have."""
    extents = (item.part.shape[axis] for item in trial.operands for axis in item.varying)
    natural = _natural(integers, min(extents, default=_FEW))
    pairs = [_operand(item, rng, shift, natural if item.natural else integers) for item in trial.operands]
    for (number, axis), value in filled.items():
        _fill(*pairs[number], axis, value, alone=True)
    for number, axis in masks:
        _fill(*pairs[number], axis, fill, alone=False)
    try:
        with np.errstate(all="ignore"):
            return applied(trial.whole, [a for a, _ in pairs]), applied(trial.part, [b for _, b in pairs])
    except IndexError:
        return None


def _natural(integers: Mapping[int, Sequence[int]], places: int) -> Mapping[int, Sequence[int]]:
    """What may be places of an axis that has so many."""
    return {
        shift: sorted({0, *(abs(number) for number in numbers if abs(number) < places)})
        for shift, numbers in integers.items()
    }


def applied(node: Node, arrays: Sequence[Array]) -> Sequence[Array]:
    """What a node makes of these operands, by its reference."""
    return apply(node.op, arrays, node.attrs, [value.type for value in node.outputs])


def _operand(
    item: Operand, rng: np.random.Generator, shift: int, integers: Mapping[int, Sequence[int]]
) -> tuple[Array, Array]:
    """What the operand holds at both sizes: the same within the part, garbage beyond."""
    if item.known is not None:
        return item.known
    part = random_array(item.part, rng, shift, integers[shift])
    if item.whole == item.part:
        return part, part
    if not shift and item.whole.dtype.is_float and not item.whole.dtype.is_stored:
        whole = np.full(item.whole.shape, np.nan, part.dtype)
    else:
        whole = random_array(item.whole, rng, -shift, integers[-shift])
    whole[_within(part.shape)] = part
    return whole, part


def random_array(kind: TensorType, rng: np.random.Generator, shift: int, integers: Sequence[int]) -> Array:
    """A tensor for an experiment: numbers around `shift`, or some of these integers."""
    dtype = to_numpy(kind.dtype)
    if kind.dtype.is_bool:
        return (rng.random(kind.shape) < _TRUE[np.sign(shift)]).astype(dtype)
    if kind.dtype.is_int:
        more = 0 if kind.dtype.is_signed or shift <= 0 else len(integers)
        numbers = np.array(integers if kind.dtype.is_signed else [abs(item) + more for item in integers])
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
