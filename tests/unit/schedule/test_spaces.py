"""Random points of every rule's design space, in every language: allowed, replayed, printed, and right."""

from __future__ import annotations

import pytest

from tests.support.spaces import LANGUAGES, assert_right, points, rules_of

CASES = [(language, rule) for language in LANGUAGES for rule in rules_of(language)]
POINTS = 200


@pytest.mark.sample(4, each=("rule",))
@pytest.mark.parametrize(("language", "rule"), CASES)
def test_a_few_points(language: str, rule: str) -> None:
    found = list(points(language, rule, 2, seed=1))
    assert len(found) == 2
    for point in found:
        assert_right(point)


@pytest.mark.slow
@pytest.mark.parametrize(("language", "rule"), CASES)
def test_many_points(language: str, rule: str) -> None:
    found = points(language, rule, POINTS)
    assert sum(assert_right(point) is not None for point in found) == POINTS
