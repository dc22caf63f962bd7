"""How rules offer what their model of a machine would not take: the first guess stays, search may differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.loops.ir import Iter
from compiler.loops.queries import extent_of
from compiler.schedule.chooser import Chooser, Option

Value = tuple[int, ...]

MOST_COPIES = 16
"""Steps of a loop that unrolling may write out."""

_FACTORS = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Named:
    """Asks by names of its own: other rules ask for tiles of the same block where this one does not fit."""

    chooser: Chooser
    name: str

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        """What the chooser takes."""
        return self.chooser.choose(f"{self.name}.{name}", options)


def beyond(options: Sequence[Option], others: Iterable[Option]) -> list[Option]:
    """All options, `others` at the cost of the best one at least: none of them is the first guess."""
    best = min((option.cost for option in options), default=0.0)
    return [*options, *(Option(option.value, max(option.cost, best)) for option in others)]


def guessed(guess: int, others: Iterable[int]) -> list[Option]:
    """Options without a model: a first guess, and the others at a higher cost, all alike."""
    return [Option((guess,), 0.0), *(Option((value,), 1.0) for value in others if value != guess)]


def decide(chooser: Chooser, name: str, guess: int, others: Iterable[int]) -> int:
    """A decision without a model; what leaves no choice is not asked."""
    options = guessed(guess, others)
    return chooser.choose(name, options)[0] if len(options) > 1 else guess


def takes_threads(chooser: Chooser, name: str, *, guess: bool) -> bool:
    """Whether threads share the outer loops of a block."""
    return bool(decide(chooser, f"{name}.threads", int(guess), (0, 1)))


def shares_of(guess: int, numbers: Sequence[int]) -> list[Option]:
    """Groups of tiles that threads share, and whether a group is outside of the blocks of lanes."""
    inside = [Option((*item.value, 0), item.cost) for item in guessed(guess, (1, *numbers))]
    return [*inside, *(Option((number, 1), 1.0) for number in numbers)]


def later_places(axes: Sequence[Iter]) -> list[int]:
    """Behind how many of the others the first axis of a sum may come, where that is another order."""
    if extent_of(axes[0].extent) == 1:
        return []
    return [number for number in range(1, len(axes)) if extent_of(axes[number].extent) > 1]


def unroll_factors(extents: Sequence[int], most: int = MOST_COPIES) -> list[int]:
    """How many steps of nested loops (outermost first) may be written out: inner loops, a part of one."""
    found, inner = {1}, 1
    for extent in reversed(extents):
        found |= {inner * n for n in _FACTORS if extent % n == 0 and n < extent and inner * n <= most}
        inner *= extent
        if inner > most:
            break
        found.add(inner)
    return sorted(found)
