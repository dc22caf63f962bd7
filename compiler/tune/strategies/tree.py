"""What is known of a design space: which decisions were asked for after which, and what is still open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Self

from compiler.schedule.chooser import Chooser, Option
from compiler.stages.tuned import Decisions
from compiler.tune.candidate import KernelCandidate

Value = tuple[int, ...]


@dataclass(frozen=True, eq=False)  # not compared: there are many, and long ones
class Offer:
    """What a rule offered for one decision."""

    options: tuple[Option, ...] = ()
    _neighbours: dict[Value, tuple[list[Value], list[float]]] = field(default_factory=dict)

    def neighbours(self, value: Value) -> tuple[list[Value], list[float]]:
        """The other options, and sums of their weights up to each: near and cheap ones have large weights."""
        if value not in self._neighbours:
            others = [item.value for item in self.options if item.value != value]
            weights = (
                _LEAST + 2.0 ** -self.surplus[item] / (1.0 + value_distance(item, value)) ** 2
                for item in others
            )
            self._neighbours[value] = others, list(accumulate(weights))
        return self._neighbours[value]

    @cached_property
    def surplus(self) -> Mapping[Value, float]:
        """How much dearer each one is than the cheapest: the binary logarithm of the ratio, 10 at most."""
        least = min((item.cost for item in self.options), default=0.0)
        return {item.value: _surplus(item.cost, least) for item in self.options}


_MOST, _LEAST = 10.0, 0.01
"""Of surpluses; of weights."""


def value_distance(a: Value, b: Value) -> float:
    """How far two values lie apart: the sum of the binary logarithms of their numbers' ratios."""
    pairs = zip(a, b, strict=False)
    return sum(abs(math.log2(1 + abs(x)) - math.log2(1 + abs(y))) for x, y in pairs) + abs(len(a) - len(b))


def _surplus(cost: float, least: float) -> float:
    if cost <= least:
        return 0.0
    if least <= 0 or not math.isfinite(cost):
        return _MOST
    return min(math.log2(cost / least), _MOST)


@dataclass(slots=True)
class Branching:
    """A place in the tree of decisions.

    name, offer: what is asked for here; empty where nobody has been, and where a schedule was complete.
    closed: nothing is left below that was not made.
    """

    name: str = ""
    offer: Offer = field(default_factory=Offer)
    children: dict[Value, Branching] = field(default_factory=dict)
    closed: bool = False

    def below(self, value: Value) -> Branching:
        """The place that an option leads to: one of its own where nobody has been."""
        return self.children.get(value) or Branching()

    def open_options(self) -> list[Option]:
        """Options below which something is left to make."""
        return [item for item in self.offer.options if not self.is_closed(item.value)]

    def is_closed(self, value: Value) -> bool:
        """Whether all below an option was made."""
        return value in self.children and self.children[value].closed


@dataclass(frozen=True, slots=True)
class Walk:
    """A way through the known part of the tree.

    complete: it ends where a schedule was complete; else nobody knows what is asked for next. wanted: what is
    to be decided then, as far as it is asked for.
    """

    decisions: Decisions
    offers: Mapping[str, Offer]
    complete: bool
    wanted: Decisions = field(default_factory=dict)

    @classmethod
    def of(cls, candidate: KernelCandidate) -> Self:
        """The way to a candidate that was made."""
        offers = {name: Offer(options) for name, options in candidate.offered.items()}
        return cls(candidate.decisions, offers, complete=True)

    @property
    def all_decisions(self) -> Decisions:
        """Those taken, and those wanted."""
        return {**self.wanted, **self.decisions} if self.wanted else self.decisions

    @property
    def surplus(self) -> float:
        """How much dearer the options taken are than the cheapest ones, in all."""
        return sum(offer.surplus[self.decisions[name]] for name, offer in self.offers.items())


class DecisionTree:
    """The decisions of a design space, as far as schedules were made.

    What a rule asks for follows from the answers before, so the same answers lead to the same place.
    """

    def __init__(self) -> None:
        self.root = Branching()

    @property
    def is_closed(self) -> bool:
        """Whether everything was made."""
        return self.root.closed

    def add(self, decisions: Decisions, offered: Mapping[str, tuple[Option, ...]]) -> None:
        """Add a schedule that was made, or refused after these decisions; its place is closed."""
        way = [self.root]
        for name, value in decisions.items():
            if not way[-1].name:
                way[-1].name, way[-1].offer = name, Offer(offered[name])
            way.append(way[-1].children.setdefault(value, Branching()))
        way[-1].closed = True
        for node in reversed(way[:-1]):
            node.closed = not node.open_options()

    def walk(self, chooser: Chooser, wanted: Decisions | None = None) -> Walk:
        """Where a chooser goes in the known part: costs no schedule. `wanted` is kept for what is unknown."""
        node = self.root
        decisions: dict[str, Value] = {}
        offers: dict[str, Offer] = {}
        while node.name:
            value = chooser.choose(node.name, node.offer.options)
            decisions[node.name], offers[node.name] = value, node.offer
            node = node.below(value)
        left = {} if node.closed or not wanted else {k: v for k, v in wanted.items() if k not in decisions}
        return Walk(decisions, offers, node.closed, left)

    def cheapest(self) -> Decisions:
        """The open way whose options cost least by the analytic estimates, as far as it is known."""
        return _cheapest(self.root)[1]


def _cheapest(node: Branching) -> tuple[float, dict[str, Value]]:
    """(what an open way costs in all, its decisions) below a place that is not closed."""
    least, found = math.inf, {}
    surplus = node.offer.surplus
    for option in node.open_options():
        own = surplus[option.value]
        if own >= least:
            continue
        rest, decisions = _cheapest(node.below(option.value))
        if own + rest < least:
            least, found = own + rest, {node.name: option.value, **decisions}
    return (least, found) if found else (0.0, {})


class OpenChooser:
    """Chooses as another one does, among those options below which something is left to make."""

    def __init__(self, tree: DecisionTree, chooser: Chooser) -> None:
        self._node, self._chooser = tree.root, chooser
        self.decisions: dict[str, Value] = {}

    def choose(self, name: str, options: Sequence[Option]) -> Value:
        closed = {value for value, child in self._node.children.items() if child.closed}
        left = [item for item in options if item.value not in closed] if closed else options
        value = self._chooser.choose(name, left or options)
        self._node = self._node.below(value)
        self.decisions[name] = value
        return value


class FirstChooser:
    """Takes what the rules offer first."""

    def __init__(self) -> None:
        self.decisions: dict[str, Value] = {}

    def choose(self, name: str, options: Sequence[Option]) -> Value:
        self.decisions[name] = options[0].value
        return options[0].value
