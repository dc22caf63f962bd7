"""Which of many cases of a test run with every run of the tests: the marker `sample`."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pytest


def mark_rare(items: Iterable[pytest.Item]) -> None:
    """Mark as slow what `@pytest.mark.sample(n)` leaves to `bin/just test-all`: all but one case in n."""
    cases: dict[tuple[str, int], dict[str, pytest.Item]] = {}
    for item in items:
        if marker := item.get_closest_marker("sample"):
            (one_in,) = marker.args
            cases.setdefault((item.nodeid.partition("[")[0], one_in), {})[item.nodeid] = item
    for (_, one_in), found in cases.items():
        for name in rare(found, one_in):
            found[name].add_marker("slow")


def rare(names: Iterable[str], one_in: int) -> list[str]:
    """All names but one in `one_in` and at least one, which look as if drawn and are the same everywhere."""
    drawn = sorted(names, key=lambda name: zlib.crc32(name.encode()))
    return drawn[-(-len(drawn) // one_in) :]
