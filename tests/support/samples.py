"""Which of many cases of a test run with every run of the tests: the marker `sample`."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Case:
    """A case of a test of which one in `one_in` runs always; each of `values` is to be in one that does."""

    name: str
    test: str
    one_in: int
    values: frozenset[object] = frozenset()


def mark_rare(items: Iterable[pytest.Item]) -> None:
    """Mark as slow what `@pytest.mark.sample(n, each=(...))` leaves to `bin/just test-all`.

    Cases that are slow by themselves are no candidates.
    """
    quick = (item for item in items if not item.get_closest_marker("slow"))
    cases = {_case(item, marker): item for item in quick if (marker := item.get_closest_marker("sample"))}
    for case in cases.keys() - often(cases):
        cases[case].add_marker("slow")


def often(cases: Collection[Case]) -> set[Case]:
    """One in `one_in` of the cases of each test, which look as if drawn and are the same for everybody.

    First come those with a value that none before has: more than one in `one_in` where there are many values.
    """
    drawn = sorted(cases, key=lambda case: zlib.crc32(case.name.encode()))
    sizes = Counter(case.test for case in cases)
    room = {case.test: -(-sizes[case.test] // case.one_in) for case in cases}
    kept: set[Case] = set()
    seen: set[object] = set()
    for if_new, if_room in ((True, True), (True, False), (False, True)):
        for case in drawn:
            is_new, has_room = not case.values <= seen, room[case.test] > 0
            if case in kept or (if_new and not is_new) or (if_room and not has_room):
                continue
            kept.add(case)
            seen |= case.values
            room[case.test] -= 1
    return kept


def _case(item: pytest.Item, marker: pytest.Mark) -> Case:
    """The values are those of parameters in `each`; tests of a file share them."""
    (one_in,) = marker.args
    file, test = item.nodeid.partition("::")[0], item.nodeid.partition("[")[0]
    values = {(file, name, item.callspec.params[name]) for name in marker.kwargs.get("each", ())}
    return Case(item.nodeid, test, one_in, frozenset(values))
