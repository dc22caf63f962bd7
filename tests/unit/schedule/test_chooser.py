"""Choosers: what fills the open decisions of a design space."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from compiler.schedule.chooser import AnalyticChooser, AskedOnce, Option, RandomChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from tests.support.sketch import NARROW
from tests.support.works import works_of

OPTIONS = (Option((1, 1), 5.0), Option((2, 1), 3.0), Option((1, 4), 3.0), Option((8,), 9.0))


class Recording(AnalyticChooser):
    """An analytic chooser that remembers what was on offer."""

    def __init__(self) -> None:
        super().__init__()
        self.offers: dict[str, tuple[Option, ...]] = {}

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        assert name not in self.offers, "every decision has a name of its own"
        self.offers[name] = tuple(options)
        return super().choose(name, options)


@given(st.lists(st.floats(0, 1e12, allow_nan=False), min_size=1, max_size=30))
def test_the_analytic_chooser_takes_the_cheapest(costs: list[float]) -> None:
    options = [Option((n,), cost) for n, cost in enumerate(costs)]
    (number,) = AnalyticChooser().choose("d", options)
    assert number == costs.index(min(costs))


def test_the_first_among_equals() -> None:
    assert AnalyticChooser().choose("d", OPTIONS) == (2, 1)


def test_decisions_are_kept() -> None:
    chooser = AnalyticChooser()
    chooser.choose("a", OPTIONS)
    chooser.choose("b", OPTIONS[3:])
    assert chooser.decisions == {"a": (2, 1), "b": (8,)}


def test_a_question_asked_again_has_the_answer_that_it_had() -> None:
    asked = AskedOnce(RandomChooser(random.Random(1)))
    assert len({asked.choose("d", OPTIONS) for _ in range(20)}) == 1


def test_another_question_of_a_name_has_a_name_of_its_own() -> None:
    recorded = {"d": (1, 1), "d.2": (8,)}
    replay = ReplayChooser(recorded, AnalyticChooser())
    asked = AskedOnce(replay)
    assert [asked.choose("d", OPTIONS), asked.choose("d", OPTIONS[2:])] == [(1, 1), (8,)]
    assert replay.decisions == recorded


def test_the_random_chooser_follows_its_seed() -> None:
    def draws(seed: int) -> list[tuple[int, ...]]:
        chooser = RandomChooser(random.Random(seed))
        return [chooser.choose(f"d{n}", OPTIONS) for n in range(20)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


def test_the_random_chooser_takes_each_option_about_equally_often() -> None:
    chooser = RandomChooser(random.Random(0))
    found = Counter(chooser.choose("d", OPTIONS) for _ in range(4000))
    assert found.keys() == {item.value for item in OPTIONS}
    assert all(850 < count < 1150 for count in found.values())


def test_replay_repeats_what_is_on_offer_and_leaves_the_rest_to_another() -> None:
    chooser = ReplayChooser({"a": (8,), "b": (7, 7)}, AnalyticChooser())
    assert [chooser.choose(name, OPTIONS) for name in "abc"] == [(8,), (2, 1), (2, 1)]
    assert chooser.decisions == {"a": (8,), "b": (2, 1), "c": (2, 1)}


def test_replayed_decisions_give_the_same_trace() -> None:
    for seed in range(10):
        for func, layouts in works_of("deep conv", 4):
            drawn = RandomChooser(random.Random(seed))
            first = schedule_func(func, layouts, NARROW, drawn)
            again = schedule_func(func, layouts, NARROW, ReplayChooser(drawn.decisions, AnalyticChooser()))
            assert again.trace == first.trace
            assert again.func == first.func


def test_one_changed_decision_gives_another_program_of_the_same_rules() -> None:
    ((func, layouts),) = works_of("conv 3x3", 4)
    chooser = Recording()
    first = schedule_func(func, layouts, NARROW, chooser)
    name, options = next(item for item in chooser.offers.items() if len(item[1]) > 1)
    other = next(item.value for item in options if item.value != chooser.decisions[name])
    changed = {**chooser.decisions, name: other}
    again = schedule_func(func, layouts, NARROW, ReplayChooser(changed, AnalyticChooser()))
    assert again.func != first.func


def test_the_untuned_choice_is_the_cheapest_on_offer() -> None:
    for name in ("conv 3x3", "dense", "deep depthwise", "attention"):
        offered = 0
        for func, layouts in works_of(name, 4):
            chooser = Recording()
            schedule_func(func, layouts, NARROW, chooser)
            offered += len(chooser.offers)
            for decision, options in chooser.offers.items():
                cost = {item.value: item.cost for item in options}
                assert cost[chooser.decisions[decision]] == min(cost.values())
                assert len(cost) == len(options), "no option is offered twice"
        assert offered
