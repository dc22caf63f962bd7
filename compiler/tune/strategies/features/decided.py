"""Decisions as numbers: what was taken, and how dear it is estimated to be."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.tune.strategies.features.loops import logarithm
from compiler.tune.strategies.tree import Walk

SURPLUS = "surplus"
"""Column with how much dearer all options taken are than the cheapest ones."""


def decided(walk: Walk) -> dict[str, float]:
    """Columns by name: each number of each decision, its surplus, and the surplus of all.

    Decisions are called without the block they are about, so that kernels of one kind share columns; of
    several of a kind the later ones have a number.
    """
    return {SURPLUS: walk.surplus, **dict(_of_decisions(walk))}


def _of_decisions(walk: Walk) -> Iterator[tuple[str, float]]:
    seen: dict[str, int] = {}
    for name, value in (*walk.decisions.items(), *walk.wanted.items()):
        kind = name.rpartition(".")[2]
        seen[kind] = seen.get(kind, 0) + 1
        column = kind if seen[kind] == 1 else f"{kind}#{seen[kind]}"
        if name in walk.offers:
            yield f"{column}.{SURPLUS}", walk.offers[name].surplus[value]
        for place, number in enumerate(value):
            yield f"{column}.{place}", logarithm(number)
