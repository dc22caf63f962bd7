"""Choosers: what fills the open decisions of a design space.

Rules offer `Option`s with an estimated cost and take the one that comes back. The analytic chooser
takes the cheapest, so an untuned compile is already good; the random chooser is what search starts from; the
replay chooser repeats recorded decisions. There is no other path to a schedule.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Option:
    """One way to go: what it is, as numbers, and its estimated cost in a unit that all options share."""

    value: tuple[int, ...]
    cost: float


class Chooser(Protocol):
    """Picks one of several options for the decision called `name`."""

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        """Return the value of the chosen option; `options` is never empty."""
        ...


@dataclass(slots=True)
class AnalyticChooser:
    """Takes the cheapest option; the first one among equals."""

    decisions: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        value = min(options, key=lambda option: option.cost).value
        self.decisions[name] = value
        return value


@dataclass(slots=True)
class ConservativeChooser:
    """Takes the smallest option of the decisions named, and leaves the rest to another chooser.

    The smallest numbers are the first form of a record, no packing, the smallest tile.
    """

    names: Collection[str]
    otherwise: AnalyticChooser = field(default_factory=AnalyticChooser)
    decisions: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        if name in self.names:
            value = min((option.value for option in options), key=lambda item: (sum(item), item))
        else:
            value = self.otherwise.choose(name, options)
        self.decisions[name] = value
        return value


@dataclass(slots=True)
class RandomChooser:
    """Takes any option, all with the same probability, from a seeded source."""

    source: random.Random
    decisions: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        value = self.source.choice(options).value
        self.decisions[name] = value
        return value


@dataclass(slots=True)
class ReplayChooser:
    """Takes recorded decisions where they are still on offer, and leaves the rest to another chooser."""

    recorded: Mapping[str, tuple[int, ...]]
    otherwise: Chooser
    decisions: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        wanted = self.recorded.get(name)
        offered = any(option.value == wanted for option in options)
        value = wanted if offered and wanted is not None else self.otherwise.choose(name, options)
        self.decisions[name] = value
        return value


@dataclass(slots=True)
class RecordingChooser:
    """Chooses as another one does, and keeps what was asked: what was taken, and what else was on offer."""

    chooser: Chooser
    decisions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    offered: dict[str, tuple[Option, ...]] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        value = self.chooser.choose(name, options)
        self.decisions[name], self.offered[name] = value, tuple(options)
        return value


@dataclass(slots=True)
class AskedOnce:
    """Asks another chooser what the rules of one schedule ask, each question once.

    Where a try is refused, rules ask again. The same question has the answer that it had; another one of the
    same name has a name of its own, `NAME.2`, so that whoever records or replays decisions has both.
    """

    chooser: Chooser
    _asked: dict[str, list[tuple[list[Option], tuple[int, ...]]]] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        before = self._asked.setdefault(name, [])
        for asked, value in before:
            if asked == [*options]:
                return value
        value = self.chooser.choose(f"{name}.{len(before) + 1}" if before else name, options)
        before.append(([*options], value))
        return value
