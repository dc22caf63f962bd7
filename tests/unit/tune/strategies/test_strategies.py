"""Strategies: what they propose, that it is new, and that it follows from the seed and the times alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from compiler.core.diagnostics import UsageError
from compiler.schedule.chooser import AnalyticChooser
from compiler.stages.tuned import Decisions
from compiler.tune.candidate import make_candidate
from compiler.tune.strategies.choice import STRATEGIES as STRATEGY_NAMES
from compiler.tune.strategies.choice import make_strategy
from compiler.tune.strategies.evolution import Evolution
from compiler.tune.strategies.mutate import crossed, mutated
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.strategy import ExhaustiveSearch, RandomSearch, ReplaySearch, Strategy
from compiler.tune.strategies.tree import Walk
from tests.support.searches import hear, narrow, searched, seconds_of, toy_programs, toy_space, workload

Make = Callable[[Space], Strategy]
STRATEGIES: dict[str, Make] = {
    "random": lambda of: RandomSearch(of, seed=3),
    "exhaustive": ExhaustiveSearch,
    "evolution": lambda of: Evolution(of, seed=3),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_each_kernel_once_then_none(name: str) -> None:
    strategy = STRATEGIES[name](toy_space())
    found = [item.program for item in searched(strategy, 5)]
    assert len(found) == len(set(found))
    assert set(found) == toy_programs()
    assert strategy.propose(3) == []


@pytest.mark.parametrize("name", STRATEGIES)
def test_kernels_of_the_rules(name: str) -> None:
    of = Space(workload("dense one row"), narrow())
    found = searched(STRATEGIES[name](of), 3, most=6)
    default = make_candidate(of.workload, of.target, AnalyticChooser())
    assert found[0].program == default.program
    assert len({item.program for item in found}) == len(found) > 1


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_default_comes_first(name: str) -> None:
    (first,) = STRATEGIES[name](toy_space()).propose(1)
    assert first.decisions == {"form": (0,), "dense.tile": (3, 3), "dense.order": (0,)}


@pytest.mark.parametrize(
    "kind", [lambda of, it: RandomSearch(of, 1, it), ExhaustiveSearch, lambda of, it: Evolution(of, 1, it)]
)
def test_then_come_guesses(kind: Callable[[Space, list[Decisions]], Strategy]) -> None:
    guess = {"form": (1,), "plan": (5,)}
    assert kind(toy_space(), [guess]).propose(2)[1].decisions == guess


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_same_seed_and_times_give_the_same_candidates(name: str) -> None:
    def run() -> list[Decisions]:
        return [item.decisions for item in searched(STRATEGIES[name](toy_space()), 4, most=60)]

    assert run() == run()


@pytest.mark.parametrize("kind", [RandomSearch, Evolution])
def test_another_seed_gives_others(kind: Callable[[Space, int], Strategy]) -> None:
    def run(seed: int) -> list[str]:
        return [item.program for item in searched(kind(toy_space(), seed), 4, most=40)]

    assert run(1) != run(2)


@pytest.mark.parametrize("name", STRATEGIES)
def test_nothing_that_a_database_tells_of_is_proposed(name: str) -> None:
    before = searched(RandomSearch(toy_space(), seed=8), 8, most=40)
    strategy = STRATEGIES[name](toy_space())
    hear(strategy, before)
    found = {item.program for item in searched(strategy, 4)}
    assert found == toy_programs() - {item.program for item in before}


def test_evolution_goes_on_from_what_it_is_told() -> None:
    """Its first children are near to the best of those, which a search that knows nothing is not."""
    before = searched(RandomSearch(toy_space(), seed=5), 8, most=40)
    told, alone = Evolution(toy_space(), seed=1), Evolution(toy_space(), seed=1)
    hear(told, before)
    mean = [sum(map(seconds_of, strategy.propose(24)[9:])) for strategy in (told, alone)]
    assert mean[0] < mean[1]


def test_replay_takes_what_is_recorded_only() -> None:
    recorded = [item.decisions for item in searched(RandomSearch(toy_space(), seed=5), 8, most=6)[1:]]
    strategy = ReplaySearch(toy_space(), recorded)
    assert [item.decisions for item in strategy.propose(3)[1:]] == recorded[:2]
    assert [item.decisions for item in strategy.propose(9)] == recorded[2:]
    assert strategy.propose(1) == []


# ---------------------------------------------------------------- what no kernel comes of


def wide(decisions: Decisions) -> bool:
    return decisions.get("dense.tile", (0,))[0] > 2


@pytest.mark.parametrize("name", STRATEGIES)
def test_refusals_are_counted_and_handed_out(name: str) -> None:
    of = toy_space(refuses=wide)
    found = searched(STRATEGIES[name](of), 5)
    assert {item.program for item in found} == toy_programs(refuses=wide)
    rejections = of.take_rejections()
    assert len(rejections) == of.refused["UsageError"] > 0
    assert of.first_refusals["UsageError"].startswith("no room for")
    assert {item.measured.status for item in rejections} == {"limit"}
    assert rejections[0].measured.message == f"UsageError: {of.first_refusals['UsageError']}"
    assert len({tuple(item.decisions.items()) for item in rejections}) == len(rejections)
    assert of.take_rejections() == []


def test_refusals_from_before_are_not_told_again() -> None:
    before, after = toy_space(refuses=wide), toy_space(refuses=wide)
    searched(ExhaustiveSearch(before), 5)
    for item in before.take_rejections():
        after.tell(Told(item.decisions), item.measured)
    assert searched(ExhaustiveSearch(after), 5)
    assert after.take_rejections() == []


class Told:
    """A record of what was refused."""

    def __init__(self, decisions: Decisions) -> None:
        self.decisions, self.program = decisions, ""


# ---------------------------------------------------------------- mutation


def parents() -> tuple[Walk, Walk]:
    of = toy_space()
    tiles = [{"form": (0,), "dense.tile": tile, "dense.order": (1,)} for tile in ((2, 3), (4, 1))]
    a, b = (of.revisit(item) for item in tiles)
    assert a is not None
    assert b is not None
    return Walk.of(a), Walk.of(b)


def test_mutations_change_one_decision_to_what_is_on_offer() -> None:
    parent, _ = parents()
    source = random.Random(4)
    changed: set[str] = set()
    for _ in range(100):
        child = mutated(parent, "form", source)
        names = [name for name in child if child[name] != parent.decisions[name]]
        assert len(names) == 1
        changed.update(names)
        assert child[names[0]] in [option.value for option in parent.offers[names[0]].options]
    assert changed == {name for name, offer in parent.offers.items() if len(offer.options) > 1}


def test_the_form_is_changed_seldom() -> None:
    parent, _ = parents()
    source = random.Random(4)
    forms = sum(mutated(parent, "form", source)["form"] != (0,) for _ in range(1000))
    assert 10 < forms < 120


def test_crossed_decisions_are_of_either_parent() -> None:
    a, b = parents()
    source = random.Random(4)
    for _ in range(20):
        child = crossed(a, b, "form", source)
        assert all(value in (a.decisions.get(name), b.decisions.get(name)) for name, value in child.items())
        assert child["form"] == a.decisions["form"]


def test_strategies_by_name() -> None:
    made = [type(make_strategy(name, toy_space(), 1)).__name__ for name in STRATEGY_NAMES]
    assert made == ["Evolution", "RandomSearch", "ExhaustiveSearch", "ReplaySearch"]
    with pytest.raises(UsageError, match="unknown strategy `evolutoin`") as error:
        make_strategy("evolutoin", toy_space(), 1)
    assert "evolution" in error.value.hint
