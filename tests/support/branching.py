"""Branches by chance, of steps with dependencies."""

from __future__ import annotations

import random
from collections.abc import Sequence

from compiler.graph.branches import Branches


def any_branches(needs: Sequence[int], count: int, chance: random.Random) -> Branches:
    """Each step on any branch, waiting for all that it needs on others."""
    of = [chance.randrange(count) for _ in needs]
    waits = [
        tuple(step for step in range(number) if need >> step & 1 and of[step] != of[number])
        for number, need in enumerate(needs)
    ]
    return Branches(tuple(of), tuple(waits))
