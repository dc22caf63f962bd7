"""How well analytic costs of tiles for threads agree with times predicted from machine code.

    python benchmarks/gpu_costs.py LIBRARY [--kernels 2 19] [--tiles 24] [--seed 0] [--json FILE]
        [--known FILE]

LIBRARY is one for a GPU whose machine code can be read (docs/machine-code.md). For each of its kernels that
chose a tile, other tiles are drawn, all of them compiled in one module, and their predicted times put beside
the estimates: Kendall's tau, and the time of the tile with the least estimate over that of the best one
drawn. Nothing is measured: both sides rest on published numbers, one before and one behind the compiler.
`--known` takes predictions from what `--json` wrote before, so that a change of the estimates costs little.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from gpu_kernels import together
from support import rank_correlation

from compiler.core.files import write_atomic
from compiler.core.precision import precision_of
from compiler.core.settings import load_settings
from compiler.loops.parser import parse_func
from compiler.runtime.manifest import manifest_of
from compiler.schedule.chooser import Option
from compiler.schedule.rules import schedule_func
from compiler.stages.kernels import print_kernel
from compiler.targets import Target, get_target
from compiler.targets.device import Module
from compiler.targets.device_assembly import function_texts
from compiler.targets.machine_model import KINDS, LaunchShape, machine_code
from compiler.workbench.steps import lowered_for

_GOOD = 48
"""Of the tiles that are drawn, half are among so many with the least estimates."""

Tile = tuple[int, ...]


@dataclass(slots=True)
class Asked:
    """Takes the tile asked for, else the one with the least estimate, and keeps the estimates of all."""

    wanted: Tile | None = None
    taken: Tile = ()
    cycles: dict[Tile, float] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[Option]) -> Tile:
        """The tile, or what is cheapest of other decisions."""
        least = min(options, key=lambda option: option.cost).value
        if not name.endswith(".tile"):
            return least
        self.cycles = {option.value: option.cost for option in options}
        self.taken = self.wanted if self.wanted in self.cycles else least
        return self.taken


@dataclass(frozen=True, slots=True)
class Drawn:
    """A tile as the decisions have it, microseconds estimated and predicted, and the limiting resource."""

    tile: Tile
    estimated: float
    predicted: float
    by: str


@dataclass(frozen=True, slots=True)
class Compared:
    """What was drawn for a kernel; the first one has the least estimate."""

    kernel: int
    nodes: str
    drawn: tuple[Drawn, ...]

    @property
    def tau(self) -> float:
        """Kendall's rank correlation of estimates and predictions."""
        return rank_correlation(combinations([(one.estimated, one.predicted) for one in self.drawn], 2))

    @property
    def best(self) -> Drawn:
        """The tile with the least predicted time."""
        return min(self.drawn, key=lambda one: one.predicted)

    @property
    def loss(self) -> float:
        """The predicted time of the tile with the least estimate over the least one drawn."""
        return self.drawn[0].predicted / self.best.predicted


Known = dict[int, dict[Tile, tuple[float, str]]]
"""Predictions by kernel and tile."""


def compare(library: Path, kernels: Sequence[int], tiles: int, seed: int, known: Known) -> Iterator[Compared]:
    """Draw tiles for kernels of a library and predict what they take, those that are not known."""
    manifest = manifest_of(library)
    target = get_target(manifest["target"], manifest["arch"], precision=precision_of(manifest))
    for number, entry in enumerate(manifest["kernels"]):
        if kernels and number not in kernels:
            continue
        if any(name.endswith(".tile") for name in entry["decisions"]):
            source = random.Random(f"{seed} {number}")  # noqa: S311 - a sample
            drawn = _drawn(entry, target, tiles, source, known.get(number, {}))
            yield Compared(number, " ".join(entry["nodes"]), drawn)


def _drawn(
    entry: dict[str, Any],
    target: Target,
    tiles: int,
    source: random.Random,
    known: dict[Tile, tuple[float, str]],
) -> tuple[Drawn, ...]:
    func, facts, first = parse_func(entry["func"]), target.facts, Asked()
    schedule_func(func, {}, facts, first)
    ranked = sorted(first.cycles, key=first.cycles.__getitem__)
    some = [source.choice(ranked[:_GOOD] if draw % 2 else ranked) for draw in range(tiles - 1)]
    wanted = list(dict.fromkeys((first.taken, *(known or some))))
    wanted = [tile for tile in wanted if tile in first.cycles]
    new = [tile for tile in wanted if tile not in known]
    scheduled = [schedule_func(func, {}, facts, Asked(tile)).func for tile in new]
    printed = [print_kernel(n, lowered_for(one, target), target) for n, one in enumerate(scheduled)]
    found = {**known, **dict(zip(new, _predicted(printed, target, entry["bytes"]), strict=True))}
    return tuple(Drawn(tile, 1e6 * first.cycles[tile] / facts.hertz, *found[tile]) for tile in wanted)


def _predicted(printed: Sequence[Any], target: Target, moved: int) -> list[tuple[float, str]]:
    """Microseconds of each kernel's launches together, and what limits the longest one."""
    if not printed:
        return []
    assert target.device is not None
    text = target.vocabulary.module([one.text for one in printed])
    launches = tuple(launch for one in printed for launch in one.launches)
    settings = load_settings()
    built = target.device.build(Module(text, launches, "costs"), target, settings)
    image = next(one for one in built.images if one.kind in KINDS)
    texts = function_texts(image.kind, image.arch, image.data, settings)
    resources = {one.kernel: one for one in built.resources}
    found = []
    for one in printed:
        codes = []
        for launch in one.launches:
            resource = resources[launch.name]
            shared = (resource.shared_bytes or 0) or launch.shared_bytes
            shape = LaunchShape(launch.grid, launch.block, resource.registers or 0, shared)
            codes.append(machine_code(image.kind, image.arch, launch.name, texts[launch.name], shape, moved))
        found.append(together(codes))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each kernel, and the sums."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", type=Path)
    parser.add_argument("--kernels", type=int, nargs="*", default=[], metavar="N", help="default: all")
    parser.add_argument("--tiles", type=int, default=24, help="of each kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was drawn")
    parser.add_argument("--known", type=Path, metavar="FILE", help="predictions that `--json` wrote")
    options = parser.parse_args(arguments)
    known: Known = {}
    if options.known:
        known = {
            one["kernel"]: {tuple(item["tile"]): (item["predicted"], item["by"]) for item in one["drawn"]}
            for one in json.loads(options.known.read_text())
        }
    every = []
    for one in compare(options.library, options.kernels, options.tiles, options.seed, known):
        every.append(one)
        first, best = one.drawn[0], one.best
        print(
            f"{one.kernel:3} tau {one.tau:5.2f}  taken {first.predicted:7.2f} us of {first.tile} "
            f"({first.by}, estimated {first.estimated:.2f}), best {best.predicted:7.2f} us of {best.tile} "
            f"(estimated {best.estimated:.2f}), {one.loss:.2f} times  {one.nodes[:40]}",
            flush=True,
        )
    taken = sum(one.drawn[0].predicted for one in every)
    least = sum(one.best.predicted for one in every)
    tau = sum(one.tau for one in every) / len(every)
    print(f"taken {taken:.1f} us, best drawn {least:.1f} us; mean tau {tau:.2f}")
    if options.json:
        write_atomic(options.json, json.dumps([asdict(one) for one in every]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
