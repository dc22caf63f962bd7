"""How well analytic costs of tiles agree with times on a GPU, and which constants agree better.

    python benchmarks/gpu_fit.py [--units] [--measured FILE] [--arch sm_90] [--search 3000]

FILE has a row for each sum of products and tile that ran: the matrix unit where it did (`--units`), sizes,
tile, chunks and microseconds of all its launches (benchmarks/measured). Printed are the spread of estimates
over times, Kendall's tau over all pairs, and the same by sum of products where several tiles of it ran.
`--search` draws constants around today's.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from support import rank_correlation

from compiler.core.target import TargetFacts
from compiler.loops.matrix_units import UNITS
from compiler.schedule.rules.threads.matrix_tile import ON_UNITS, MatrixTile, UnitCosts, matrix_tile_cycles
from compiler.schedule.rules.threads.tile import ON_THREADS, FetchCosts, GemmProblem, ThreadTile, tile_cycles
from compiler.targets import get_target

Costs = TypeVar("Costs", bound=FetchCosts | UnitCosts)

_FOLDER = Path(__file__).parent / "measured"
OF_THREADS, OF_UNITS = _FOLDER / "h100_tiles.json", _FOLDER / "h100_unit_tiles.json"
_LAUNCH, _SECOND = 3.5, 3.0
"""Microseconds of a launch beside its work, and of the launch that adds up chunks (as measured there)."""


@dataclass(frozen=True, slots=True)
class Point:
    """A sum of products with a tile, and microseconds of its work alone."""

    problem: GemmProblem
    tile: ThreadTile | MatrixTile
    microseconds: float

    def estimate(self, facts: TargetFacts, costs: FetchCosts | UnitCosts) -> float:
        """Microseconds by the analytic cost."""
        if isinstance(self.tile, MatrixTile):
            assert isinstance(costs, UnitCosts)
            return 1e6 * matrix_tile_cycles(self.tile, self.problem, facts, costs) / facts.hertz
        assert isinstance(costs, FetchCosts)
        return 1e6 * tile_cycles(self.tile, self.problem, facts, costs) / facts.hertz


def points(path: Path) -> list[Point]:
    """The rows of a file."""
    return [_point(row) for row in json.loads(path.read_text())["rows"]]


def _point(row: Sequence[Any]) -> Point:
    unit = UNITS[row[0]] if isinstance(row[0], str) else None
    *sizes, a, b, c, d, depth, stages, copied, chunks, time = row if unit is None else row[1:]
    batch, rows, columns, inner, steps, lanes, plain, *gathered = sizes
    problem = GemmProblem(batch, rows, columns, inner, steps, lanes, bool(plain), window=int(any(gathered)))
    own = (a, b, c, d, depth, stages, copied)
    tile = ThreadTile(*own) if unit is None else MatrixTile(unit, *own)
    return Point(problem, tile, max(time - _LAUNCH - (_SECOND if chunks > 1 else 0.0), 0.4))


def judged(
    found: Sequence[Point], facts: TargetFacts, costs: FetchCosts | UnitCosts
) -> tuple[float, float, float, float]:
    """(mean of log ratios, root of their mean square, tau over all, tau within a sum of products).

    The last is no number where only one tile of each ran.
    """
    both = [(one.estimate(facts, costs), one.microseconds) for one in found]
    logs = [math.log(estimate / time) for estimate, time in both]
    own: defaultdict[GemmProblem, list[tuple[float, float]]] = defaultdict(list)
    for one, pair in zip(found, both, strict=True):
        own[one.problem].append(pair)
    inside = [pair for group in own.values() for pair in combinations(group, 2)]
    square = math.sqrt(statistics.fmean(one * one for one in logs))
    return statistics.fmean(logs), square, rank_correlation(combinations(both, 2)), rank_correlation(inside)


def searched(found: Sequence[Point], facts: TargetFacts, today: Costs, draws: int, seed: int) -> Costs:
    """The constants with the least mean square of logarithms, of so many drawn around the best so far."""
    source = random.Random(seed)  # noqa: S311 - a search keeps no secret
    best, least = today, judged(found, facts, today)[1]
    names = [one.name for one in fields(today)]
    for _ in range(draws):
        some = source.sample(names, source.choice((1, 1, 2, 3)))
        drawn = replace(best, **{name: getattr(best, name) * math.exp(source.gauss(0, 0.3)) for name in some})
        logs = [math.log(one.estimate(facts, drawn) / one.microseconds) for one in found]
        square = math.sqrt(statistics.fmean(one * one for one in logs))
        best, least = (drawn, square) if square < least else (best, least)
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how today's constants do, and those that a search finds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", action="store_true", help="costs of matrix units, not of threads alone")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="default: an H100's")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--search", type=int, default=0, metavar="N", help="draw so many sets of constants")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    default, today = (OF_UNITS, ON_UNITS) if options.units else (OF_THREADS, ON_THREADS)
    found, facts = points(options.measured or default), get_target("cuda", options.arch).facts
    tried: list[FetchCosts | UnitCosts] = [today]
    if options.search:
        tried.append(searched(found, facts, today, options.search, options.seed))
    for costs in tried:
        mean, square, every, inside = judged(found, facts, costs)
        print(costs)
        print(
            f"{len(found)} tiles: estimates are {math.exp(mean):.2f} of times, "
            f"spread {math.exp(square):.2f}; tau {every:.2f}, within a sum of products {inside:.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
