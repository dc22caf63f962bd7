"""Which application of a pass is to blame: all up to it show the fault, those before it do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.reduce.ddmin import smallest_prefix

Counts = Mapping[str, tuple[int, str]]
"""Of passes by their names: how often each was applied, and to what the last time."""


@dataclass(frozen=True, slots=True)
class Application:
    """The pass, the number of its application, of how many, and what the pass was applied to."""

    name: str
    number: int
    total: int
    what: str

    def text(self, model: str) -> str:
        """As it is told, of which model."""
        told = f": {self.what}" if self.what else ""
        return f"{self.name}, application {self.number} of {self.total} in {model}{told}"


def first_wrong_application(
    name: str, shows: Callable[[int], bool], count: Callable[[int | None], Counts]
) -> Application | None:
    """The first application of a pass with which a model that shows a fault shows it.

    `shows` is asked with so many applications at most, `count` for those that a compile makes with so many at
    most, None for no limit. None where the fault is there without the pass, too, or goes with every limit.
    """
    total = count(None).get(name, (0, ""))[0]
    if not total or shows(0) or not shows(total):
        return None
    number = smallest_prefix(total, shows)
    made, what = count(number).get(name, (0, ""))
    return Application(name, number, total, what if made == number else "")
