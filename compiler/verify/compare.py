"""Compare an output with its reference: the worst element, and its error as a part of the output's scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.verify.report import Comparison

Array = npt.NDArray[Any]


def compare(name: str, actual: Array, expected: Array, tolerance: float) -> Comparison:
    """Compare element by element; NaN equals NaN, an infinity itself; other mixes are infinitely far.

    Whole numbers and truth values must be equal, whatever the tolerance.
    """
    shell = Comparison(
        name=name,
        dtype=str(expected.dtype),
        shape=expected.shape,
        max_error=0.0,
        scale=1.0,
        where=(),
        actual=0.0,
        expected=0.0,
        tolerance=0.0 if expected.dtype.kind in "iub" else tolerance,
        needed=0.0,
    )
    if actual.shape != expected.shape:
        return dataclasses.replace(shell, problem=f"shape {actual.shape} instead of {expected.shape}")
    if actual.dtype != expected.dtype:
        return dataclasses.replace(shell, problem=f"type {actual.dtype} instead of {expected.dtype}")
    if expected.size == 0:
        return shell
    errors = _errors(actual, expected)
    where = np.unravel_index(int(np.argmax(errors)), expected.shape)
    scale = _scale(expected)
    return dataclasses.replace(
        shell,
        max_error=float(errors[where]),
        scale=scale,
        where=tuple(int(i) for i in where),
        actual=float(actual[where]),
        expected=float(expected[where]),
        needed=float(errors[where]) / scale,
    )


def worse(first: Comparison, second: Comparison) -> Comparison:
    """The one that is farther from passing."""
    if bool(first.problem) != bool(second.problem):
        return first if first.problem else second
    return first if first.needed >= second.needed else second


def worst_of(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
    """Of each name the comparison that is farthest from passing, in the order of the first of them."""
    worst: dict[str, Comparison] = {}
    for one in comparisons:
        worst[one.name] = worse(one, worst[one.name]) if one.name in worst else one
    return tuple(worst.values())


def _errors(actual: Array, expected: Array) -> npt.NDArray[np.float64]:
    """Absolute differences as float64; 0 where both are the same, infinite where only one is finite."""
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.asarray(np.abs(a - e))
    same = (actual == expected) | (np.isnan(a) & np.isnan(e))
    errors[np.isnan(errors)] = np.inf
    # Large whole numbers may differ although they are equal as float64; they differ by at least one.
    least = 1.0 if expected.dtype.kind in "iub" else np.finfo(np.float64).tiny
    return np.where(same, 0.0, np.maximum(errors, least))


def _scale(expected: Array) -> float:
    magnitudes = np.abs(expected.astype(np.float64))
    largest = float(np.max(magnitudes, where=np.isfinite(magnitudes), initial=0.0))
    return largest or 1.0
