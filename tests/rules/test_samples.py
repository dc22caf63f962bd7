"""A sample of many cases has some of each test, from everywhere, and is the same for everybody."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.samples import Case, often


def cases_of(test: str, count: int, one_in: int, *values: str) -> list[Case]:
    """Cases with these values, as often as there are cases."""
    every = [frozenset({one}) for one in values] or [frozenset()]
    return [Case(f"{test}[{number}]", test, one_in, every[number % len(every)]) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "one_in", "left"), [(1, 9, 1), (8, 9, 1), (10, 9, 2), (100, 4, 25), (100, 1, 100)]
)
def test_one_in_some(count: int, one_in: int, left: int) -> None:
    assert len(often(cases_of("test", count, one_in))) == left


def test_it_is_spread() -> None:
    numbers = sorted(int(case.name[5:-1]) for case in often(cases_of("test", 100, 5)))
    assert len({number // 25 for number in numbers}) == 4
    assert len({number % 5 for number in numbers}) == 5


def test_the_order_of_the_cases_does_not_matter() -> None:
    cases = cases_of("test", 100, 3, *"abcdefgh")
    assert often(cases) == often(cases[::-1])


def test_tests_share_the_values_and_none_is_left_out() -> None:
    cases = cases_of("one", 200, 20, *map(str, range(20))) + cases_of("other", 20, 2, *map(str, range(20)))
    kept = often(cases)
    assert {value for case in kept for value in case.values} == {*map(str, range(20))}
    assert Counter(case.test for case in kept) == {"one": 10, "other": 10}, "no more than without values"


def test_there_are_more_where_one_in_some_leaves_out_a_value() -> None:
    kept = often(cases_of("test", 100, 20, *map(str, range(30))))
    assert {value for case in kept for value in case.values} == {*map(str, range(30))}
    assert len(kept) == 30


def test_of_several_parameters_each_has_its_values() -> None:
    cases = [
        Case(f"test[{number}]", "test", 10, frozenset({("first", number % 7), ("second", number % 4)}))
        for number in range(100)
    ]
    assert {value for case in often(cases) for value in case.values} == {
        *(("first", number) for number in range(7)), *(("second", number) for number in range(4)),
    }  # fmt: skip


@pytest.mark.sample(50)
@pytest.mark.parametrize("number", range(50))
def test_of_these_one_runs(number: int, request: pytest.FixtureRequest) -> None:
    others = [
        item
        for item in request.session.items
        if item.nodeid.startswith(request.node.nodeid.partition("[")[0])
    ]
    assert len([item for item in others if not item.get_closest_marker("slow")]) <= 1


@pytest.mark.sample(50, each=("letter",))
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("letter", "abc")
def test_of_these_each_letter_runs(letter: str, number: int, request: pytest.FixtureRequest) -> None:
    others = [item for item in request.session.items if item.originalname == request.node.originalname]
    running = [item.callspec.params["letter"] for item in others if not item.get_closest_marker("slow")]
    assert sorted(running) == sorted({*running})
