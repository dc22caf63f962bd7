"""Where the elements of a resized axis lie on the axis that they come from, and what they weigh there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.graph.dtypes import Array

Coordinate = Callable[[Array, Any, int, int], Any]
"""Positions of a resized axis, its factor, the extents before and after -> positions on the axis before."""


def _pytorch_half_pixel(at: Array, scale: Any, source: int, target: int) -> Any:
    return (at + 0.5) / scale - 0.5 if target > 1 else np.zeros_like(at)


def _align_corners(at: Array, scale: Any, source: int, target: int) -> Any:
    return at * (source - 1) / (target - 1) if target > 1 else np.zeros_like(at)


def _half_pixel_symmetric(at: Array, scale: Any, source: int, target: int) -> Any:
    adjustment = np.float32(target) / (scale * np.float32(source))  # how much rounding stretched the scale
    offset = np.float32(source / 2) * (1 - adjustment)
    return offset + (at + 0.5) / scale - 0.5


COORDINATES: dict[str, Coordinate] = {
    "half_pixel": lambda at, scale, _source, _target: (at + 0.5) / scale - 0.5,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": lambda at, scale, _source, _target: at / scale,
    "tf_half_pixel_for_nn": lambda at, scale, _source, _target: (at + 0.5) / scale,
}
ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}

Curve = Callable[[Any], Any]


def keys_kernel(a: float) -> tuple[Curve, Curve]:
    """Cubic convolution at distances up to 1, and from 1 to 2 (Keys 1981)."""

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return near, far


def cubic_weights(part: Any, a: float) -> list[Any]:
    """Of the four neighbours, where the first one after a position is 1 - `part` away."""
    near, far = keys_kernel(a)
    return [far(1 + part), near(part), near(1 - part), far(2 - part)]
