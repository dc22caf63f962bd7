"""The tree of decisions: what was made, what is open, what is known without making it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from compiler.schedule.chooser import AnalyticChooser, Chooser, Option, RandomChooser, ReplayChooser
from compiler.tune.strategies.tree import DecisionTree, FirstChooser, Offer, OpenChooser


def options(*costs: float) -> tuple[Option, ...]:
    return tuple(Option((number,), cost) for number, cost in enumerate(costs))


def make(tree: DecisionTree, chooser: Chooser) -> dict[str, tuple[int, ...]]:
    """A rule of two forms: one asks for a tile and, for large ones, an order; the other for a plan."""
    decisions: dict[str, tuple[int, ...]] = {}
    offered = {}

    def ask(name: str, found: Sequence[Option]) -> int:
        decisions[name], offered[name] = chooser.choose(name, found), tuple(found)
        return decisions[name][0]

    if ask("form", options(2.0, 1.0)) == 0:
        if ask("tile", options(4.0, 1.0, 2.0)) > 0:
            ask("order", options(1.0, 8.0))
    else:
        ask("plan", options(1.0, 16.0))
    tree.add(decisions, offered)
    return decisions


ALL = 1 + 2 * 2 + 2


def test_open_choosers_make_each_schedule_once() -> None:
    for inner in (FirstChooser(), AnalyticChooser(), RandomChooser(random.Random(3))):
        tree = DecisionTree()
        made = set()
        while not tree.is_closed:
            made.add(tuple(make(tree, OpenChooser(tree, inner)).items()))
            assert len(made) <= ALL
        assert len(made) == ALL


def test_first_options_come_first() -> None:
    tree = DecisionTree()
    made = [make(tree, OpenChooser(tree, FirstChooser())) for _ in range(3)]
    assert made == [
        {"form": (0,), "tile": (0,)},
        {"form": (0,), "tile": (1,), "order": (0,)},
        {"form": (0,), "tile": (1,), "order": (1,)},
    ]


def test_the_cheapest_open_way() -> None:
    tree = DecisionTree()
    made = []
    while not tree.is_closed:
        wanted = tree.cheapest()
        made.append(make(tree, OpenChooser(tree, ReplayChooser(wanted, AnalyticChooser()))))
    costs = [sum(COST[name][value] for name, (value,) in item.items()) for item in made]
    assert costs == sorted(costs)


COST = {"form": (1, 0), "tile": (2, 0, 1), "order": (0, 3), "plan": (0, 4)}
"""Binary logarithms of the ratios above."""


def test_a_walk_ends_where_nobody_has_been() -> None:
    tree = DecisionTree()
    make(tree, ReplayChooser({"form": (0,), "tile": (2,)}, AnalyticChooser()))
    known = tree.walk(ReplayChooser({"form": (0,), "tile": (2,)}, AnalyticChooser()))
    assert known.complete
    assert known.decisions == {"form": (0,), "tile": (2,), "order": (0,)}
    other = tree.walk(ReplayChooser({"form": (0,), "tile": (1,)}, AnalyticChooser()))
    assert not other.complete
    assert other.decisions == {"form": (0,), "tile": (1,)}
    assert not tree.root.children[0,].is_closed((1,)), "walks close nothing"


def test_surpluses_are_finite() -> None:
    found = Offer(options(0.0, 1.0, float("inf"), 4.0)).surplus
    assert list(found.values()) == [0.0, 10.0, 10.0, 10.0]
    assert Offer(options(2.0, 1.0, 8.0)).surplus == {(0,): 1.0, (1,): 0.0, (2,): 3.0}
