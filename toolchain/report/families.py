"""The table of families and columns, the same in every form: the state of most, and what ended otherwise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from compiler import some
from toolchain.records.cells import Cell, mark_of, usual_state
from toolchain.records.record import State

NOT_TRIED = "not tried"
"""What is said of a model that a plan has and no record is of."""


class Member(Protocol):
    """A trial of the table. name: what it is called beside others of its family."""

    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def state(self) -> State: ...


T = TypeVar("T", bound=Member)


@dataclass(frozen=True, slots=True)
class Untried:
    """A model of a plan that has no record in a column."""

    family: str
    name: str
    column: str


@dataclass(frozen=True, slots=True)
class FamilyCell(Generic[T]):
    """A family in a column.

    state: of most of its trials; None where a plan has the family and nothing was tried. exceptions: all
    others. untried: names of the models that a plan has and that no record is of.
    """

    state: State | None
    exceptions: tuple[T, ...]
    trials: tuple[T, ...]
    untried: tuple[str, ...] = ()


def family_cells(
    trials: Iterable[T], column_of: Callable[[T], str], untried: Iterable[Untried] = ()
) -> dict[tuple[str, str], FamilyCell[T]]:
    """The cells of the table by family and column."""
    grouped: dict[tuple[str, str], list[T]] = defaultdict(list)
    for one in trials:
        grouped[one.family, column_of(one)].append(one)
    missing: dict[tuple[str, str], list[str]] = defaultdict(list)
    for gap in untried:
        missing[gap.family, gap.column].append(gap.name)
    places = dict.fromkeys((*grouped, *missing))
    return {place: _family_cell(grouped.get(place, ()), missing.get(place, ())) for place in places}


def _family_cell(trials: Sequence[T], untried: Sequence[str]) -> FamilyCell[T]:
    state = usual_state([one.state for one in trials]) if trials else None
    others = tuple(one for one in trials if one.state != state)
    return FamilyCell(state, others, tuple(trials), tuple(untried))


def family_rows(
    families: Iterable[str], columns: Sequence[str], cells: Mapping[tuple[str, str], FamilyCell[T]]
) -> list[tuple[str, ...]]:
    """A row for each family: its name, and what its cell in each column says; empty without a record."""
    return [
        (
            family,
            *(family_cell_words(cells[family, one]) if (family, one) in cells else "" for one in columns),
        )
        for family in families
    ]


def family_cell_words(cell: FamilyCell[T]) -> str:
    """The sign of a family in a column, and the exceptions, each with its own."""
    if cell.state is None:
        return NOT_TRIED
    word = "" if cell.state == State.VERIFIED else f" {cell.state.value}"
    each = "".join(f" ({one.name} {state_words(one.state)})" for one in cell.exceptions)
    rest = f" ({NOT_TRIED}: {some(cell.untried)})" if cell.untried else ""
    return f"{mark_of(cell.state)}{word}{each}{rest}"


def state_words(state: State) -> str:
    """The sign and the name of a state."""
    return f"{mark_of(state)} {state.value.replace('-', ' ')}"


def place_titles(cells: Iterable[Cell]) -> dict[Cell, str]:
    """A title for the place of each cell: the target, with what tells it from other places of the target."""
    every = list(cells)
    places: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for cell in every:
        places[cell.target].add(_place(cell))
    return {cell: " ".join((cell.target, *_apart(_place(cell), places[cell.target]))) for cell in every}


def _apart(place: Sequence[str], beside: Iterable[Sequence[str]]) -> list[str]:
    """The parts of a place that others do not share; empty ones are left out."""
    return [
        part
        for part, all_of in zip(place, zip(*beside, strict=True), strict=True)
        if part and len({*all_of}) > 1
    ]


def _place(cell: Cell) -> tuple[str, ...]:
    return cell.arch, cell.selector or "first device", cell.thread_words, cell.precision
