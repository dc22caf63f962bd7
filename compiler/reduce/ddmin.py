"""Delta debugging: a small part of a list that still passes a test.

Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def ddmin(items: Sequence[T], test: Callable[[Sequence[T]], bool]) -> list[T]:
    """A part of `items` in their order that passes `test`, of which no single item can be left out.

    `test` is given parts only, and is taken to hold for all of them.
    """
    current, parts = list(items), 2
    while len(current) > 1:
        chunks = _chunks(current, min(parts, len(current)))
        kept = next((chunk for chunk in chunks if test(chunk)), None) if len(chunks) > 1 else None
        if kept is not None:
            current, parts = kept, 2
            continue
        rests = ([one for other in chunks if other is not chunk for one in other] for chunk in chunks)
        rest = next((rest for rest in rests if test(rest)), None) if len(chunks) > 2 else None
        if rest is not None:
            current, parts = rest, max(len(chunks) - 1, 2)
        elif len(chunks) == len(current):
            break
        else:
            parts = min(2 * len(chunks), len(current))
    return current


def smallest_prefix(length: int, test: Callable[[int], bool]) -> int:
    """The least number that passes `test` by bisection, where those above pass, too; `length` is taken to."""
    low, high = 0, length
    while low + 1 < high:
        middle = (low + high) // 2
        if test(middle):
            high = middle
        else:
            low = middle
    return high


def _chunks(items: list[T], count: int) -> list[list[T]]:
    size, more = divmod(len(items), count)
    ends = [number * size + min(number, more) for number in range(count + 1)]
    return [items[begin:end] for begin, end in pairwise(ends)]
