"""Rows, columns and steps of a matrix unit's tiles as modes: what of them lanes and registers number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mode:
    """A part of a row, column or step, and its stride in the numbers of lanes or registers (CuTe: a mode)."""

    extent: int
    lane: int = 0
    register: int = 0


Modes = tuple[Mode, ...]
"""A row, column or step as modes, the one with the highest value first."""


def size_of(modes: Modes) -> int:
    """How many values the modes count."""
    return math.prod(item.extent for item in modes)


def place_of(modes: Modes, lane: int, register: int) -> int:
    """The row, column or step of what a register of a lane holds."""
    total = 0
    for item in modes:
        own = lane // item.lane if item.lane else register // item.register
        total = total * item.extent + own % item.extent
    return total


# ---------------------------------------------------------------- as text


def digits_of(number: str, modes: Modes) -> list[str]:
    """The digits of a number within its tile, one for each mode."""
    found, weight = [], size_of(modes)
    number = number if number.isidentifier() else f"({number})"
    for item in modes:
        weight //= item.extent
        found.append(f"{number} // {weight} % {item.extent}" if weight > 1 else f"{number} % {item.extent}")
    return found


def number_text(digits: Sequence[str], modes: Modes) -> str:
    """The number that digits are."""
    terms, weight = [], size_of(modes)
    for digit, item in zip(digits, modes, strict=True):
        weight //= item.extent
        terms.append(f"{digit} * {weight}" if weight > 1 else digit)
    return " + ".join(terms)


def digit_of_lane(item: Mode, lanes: int) -> str:
    """The digit of a mode that lanes tell apart, from the number of the lane."""
    text = f"lane // {item.lane}" if item.lane > 1 else "lane"
    return text if item.lane * item.extent == lanes else f"{text} % {item.extent}"
