"""Delta debugging: what is left passes the test, and no single item of it can go."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from compiler.reduce.ddmin import ddmin, smallest_prefix


@pytest.mark.parametrize("seed", range(30))
def test_all_that_is_needed_and_nothing_else(seed: int) -> None:
    source = random.Random(seed)
    items = list(range(source.randrange(1, 60)))
    needed = set(source.sample(items, source.randrange(1, min(len(items), 6) + 1)))
    asked = []

    def test(part: Sequence[int]) -> bool:
        asked.append(part)
        return needed <= set(part)

    assert ddmin(items, test) == sorted(needed)
    assert len(asked) < 6 * len(needed) * (len(items).bit_length() + len(needed)) + 8


def test_where_the_fault_is_not_monotone() -> None:
    """An even number of items: parts that pass are never given up for those that do not."""
    found = ddmin(range(10), lambda part: len(part) % 2 == 0 and 3 in part)
    assert 3 in found
    assert len(found) % 2 == 0
    assert all(len([one for one in found if one != gone]) % 2 for gone in found)


def test_order_is_kept() -> None:
    assert ddmin("abcdef", lambda part: {"e", "b"} <= set(part)) == ["b", "e"]


@pytest.mark.parametrize(("length", "needed"), [(1, 1), (2, 1), (17, 5), (64, 64), (100, 1)])
def test_smallest_prefix(length: int, needed: int) -> None:
    asked = []

    def test(count: int) -> bool:
        asked.append(count)
        return count >= needed

    assert smallest_prefix(length, test) == needed
    assert len(asked) <= length.bit_length()
