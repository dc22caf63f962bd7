"""The table of networks and targets as a team writes it: a family in a row, its exceptions by revision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from toolchain.records.cells import Cell, CellTrials, mark_of, usual_state
from toolchain.records.record import State


@dataclass(frozen=True, slots=True)
class FamilyTable:
    """Columns by their titles, and for each family the text of each column; empty where nothing was tried."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def family_table(trials: Mapping[Cell, CellTrials]) -> FamilyTable:
    """What is known by family and place: the state of most, and those that ended otherwise with their own."""
    titles = _column_titles(trials)
    columns = tuple(dict.fromkeys(titles[cell] for cell in sorted(trials, key=lambda one: titles[one])))
    families: dict[str, dict[str, list[CellTrials]]] = {}
    for cell, known in trials.items():
        name = known.result.subject.family or cell.network
        families.setdefault(name, {}).setdefault(titles[cell], []).append(known)
    rows = [
        (name, tuple(_text(of_family.get(column, ())) for column in columns))
        for name, of_family in sorted(families.items())
    ]
    return FamilyTable(columns, tuple(rows))


def trials_of(trials: Mapping[Cell, CellTrials], network: str, target: str = "") -> tuple[CellTrials, ...]:
    """The trials of a network, a family or a revision, at the targets that begin so."""
    found = (
        known
        for cell, known in trials.items()
        if network in (cell.network, cell.revision, known.result.subject.family)
        and cell.target.startswith(target)
    )
    return tuple(found)


def _text(known: Sequence[CellTrials]) -> str:
    """The state of most, those of others by name: `✓ (mnist-1 ✗ crashed)`."""
    if not known:
        return ""
    usual = usual_state([one.result.state for one in known])
    others = [f"{one.cell.model} {_said(one.result.state)}" for one in known if one.result.state != usual]
    return _said(usual) + (f" ({', '.join(others)})" if others else "")


def _said(state: State) -> str:
    return mark_of(state) if state == State.VERIFIED else f"{mark_of(state)} {state}"


def _column_titles(cells: Iterable[Cell]) -> dict[Cell, str]:
    """A title for the place of each cell: the target, with what tells it from other places of the target."""
    places: dict[str, set[tuple[str, ...]]] = {}
    for cell in cells:
        places.setdefault(cell.target, set()).add(_place(cell))
    differing = {
        target: [i for i in range(4) if len({place[i] for place in found}) > 1]
        for target, found in places.items()
    }
    return {
        cell: " ".join(filter(None, (cell.target, *(_place(cell)[i] for i in differing[cell.target]))))
        for cell in cells
    }


def _place(cell: Cell) -> tuple[str, ...]:
    threads = f"{cell.threads} threads" if cell.threads else ""
    return cell.arch, cell.selector or "first device", threads, cell.precision
