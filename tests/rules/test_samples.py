"""A sample of many cases has some of each test, from everywhere, and is the same for everybody."""

from __future__ import annotations

import pytest

from tests.support.samples import rare

NAMES = [f"test[{number}]" for number in range(100)]


@pytest.mark.parametrize(
    ("count", "one_in", "left"), [(1, 9, 1), (8, 9, 1), (10, 9, 2), (100, 4, 25), (100, 1, 100)]
)
def test_one_in_some(count: int, one_in: int, left: int) -> None:
    often = {*NAMES[:count]} - {*rare(NAMES[:count], one_in)}
    assert len(often) == left


def test_it_is_spread() -> None:
    often = sorted({*range(100)} - {int(name[5:-1]) for name in rare(NAMES, 5)})
    assert len({number // 25 for number in often}) == 4
    assert len({number % 5 for number in often}) == 5


def test_the_order_of_the_cases_does_not_matter() -> None:
    assert rare(NAMES, 3) == rare(NAMES[::-1], 3)


@pytest.mark.sample(50)
@pytest.mark.parametrize("number", range(50))
def test_of_these_one_runs(number: int, request: pytest.FixtureRequest) -> None:
    others = [
        item
        for item in request.session.items
        if item.nodeid.startswith(request.node.nodeid.partition("[")[0])
    ]
    assert len([item for item in others if not item.get_closest_marker("slow")]) <= 1
