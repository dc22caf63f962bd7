"""Choose one option for each of many variables so that a sum of small cost tables is least.

Variable elimination (Bertelè and Brioschi, "Nonserial Dynamic Programming", 1972; Dechter, "Bucket
elimination", 1999): a variable is taken out by minimising the sum of all tables that know it, which leaves
one table over its neighbours. On chains and trees no table ever has more than two variables, so this is
plain dynamic programming; the residual connections of networks add one or two. The result is exact unless a
table would have more than `limit` entries.

Where one would, the variable with the most neighbours is parted from them: it takes the option that would
be best if each of its tables could choose the rest freely. In the end variables are changed one at a time
as long as the sum becomes less. Everything is deterministic; where no combination beats the first option of
every variable, that is the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LIMIT = 4096
"""Entries of the largest table; the networks of the zoo need 4 to 128."""

_MOST_ROUNDS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Costs of all combinations of options of some variables, one axis for each; inf: impossible."""

    variables: tuple[int, ...]
    costs: NDArray[np.float64]


def total(tables: Sequence[Table], options: Sequence[int]) -> float:
    """The sum of all tables for one option of each variable."""
    return float(sum(table.costs[tuple(options[item] for item in table.variables)] for table in tables))


def minimise(sizes: Sequence[int], tables: Sequence[Table], limit: int = LIMIT) -> list[int]:
    """An option (below `sizes`) for each variable with the least sum of the tables.

    Exact where elimination needs no table of more than `limit` entries; else no change of one variable makes
    the sum less.
    """
    work = _Elimination(sizes, tables)
    while work.waiting:
        item = min(work.waiting, key=lambda one: (work.entries[one], one))
        if work.entries[item] > limit:
            item = max(work.waiting, key=lambda one: (len(work.neighbours(one)), -one))
            work.part(item)
        work.eliminate(item)
    options = work.options()
    return options if work.exact else _improved(options, sizes, tables)


class _Elimination:
    """Tables that are left, by variable, and what was taken out."""

    def __init__(self, sizes: Sequence[int], tables: Sequence[Table]) -> None:
        self.sizes = sizes
        self.waiting = set(range(len(sizes)))
        self.exact = True
        self.tables: list[list[Table]] = [[] for _ in sizes]
        self.eliminated: list[tuple[int, Table]] = []
        for table in tables:
            self._add(table)
        self.entries = [self._entries(item) for item in range(len(sizes))]
        """Entries of the table that taking out a variable would need."""

    def neighbours(self, item: int) -> list[int]:
        """The variables that share a table with `item`, in order."""
        found = {other for table in self.tables[item] for other in table.variables}
        return sorted(found - {item})

    def eliminate(self, item: int) -> None:
        """Take out a variable: its best option for each combination of its neighbours' options."""
        known = self._sum(item)
        for table in self.tables[item]:
            self._remove(table, keep=item)
        self.tables[item] = []
        self.waiting.remove(item)
        self.eliminated.append((item, known))
        self._add(Table(known.variables[:-1], known.costs.min(axis=-1)))
        self._count(known.variables[:-1])

    def part(self, item: int) -> None:
        """Replace the tables of a variable by what is least for it alone, and for the others alone."""
        self.exact = False
        around = self.neighbours(item)
        for table in list(self.tables[item]):
            self._remove(table)
            axis = table.variables.index(item)
            others = tuple(other for other in range(table.costs.ndim) if other != axis)
            self._add(Table((item,), table.costs.min(axis=others)))
            rest = (*table.variables[:axis], *table.variables[axis + 1 :])
            self._add(Table(rest, table.costs.min(axis=axis)))
        self._count((item, *around))

    def options(self) -> list[int]:
        """The best option of each variable, once all are taken out."""
        options = [0] * len(self.sizes)
        for item, known in reversed(self.eliminated):
            at = tuple(options[other] for other in known.variables[:-1])
            options[item] = int(np.argmin(known.costs[at]))
        return options

    def _sum(self, item: int) -> Table:
        """The tables of a variable as one, in which it comes last."""
        order = [*self.neighbours(item), item]
        costs = np.zeros([self.sizes[one] for one in order])
        for table in self.tables[item]:
            axes = sorted(range(len(table.variables)), key=lambda axis: order.index(table.variables[axis]))
            shape = [self.sizes[one] if one in table.variables else 1 for one in order]
            costs = costs + table.costs.transpose(axes).reshape(shape)
        return Table(tuple(order), costs)

    def _add(self, table: Table) -> None:
        for item in table.variables:
            self.tables[item].append(table)

    def _remove(self, table: Table, keep: int | None = None) -> None:
        for item in table.variables:
            if item != keep:
                self.tables[item].remove(table)

    def _count(self, items: Sequence[int]) -> None:
        for item in items:
            self.entries[item] = self._entries(item)

    def _entries(self, item: int) -> int:
        return math.prod(self.sizes[other] for other in (item, *self.neighbours(item)))


def _improved(options: list[int], sizes: Sequence[int], tables: Sequence[Table]) -> list[int]:
    """Change one variable at a time while the sum becomes less."""
    own = [[table for table in tables if item in table.variables] for item in range(len(sizes))]
    for _ in range(_MOST_ROUNDS):
        before = list(options)
        for item, size in enumerate(sizes):
            costs = [total(own[item], [*options[:item], one, *options[item + 1 :]]) for one in range(size)]
            best = int(np.argmin(costs))
            if costs[best] < costs[options[item]]:
                options[item] = best
        if options == before:
            break
    return options
