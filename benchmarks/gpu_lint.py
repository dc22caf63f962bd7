"""How well kernels for GPUs use memory and the chip, without a GPU: beside bars and beside a golden table.

    python benchmarks/gpu_lint.py [--networks squeezenet ... | all] [--targets cuda:sm_90+tf32 ...] [--update]

Kernels are compiled to text and counted in the emulator (docs/emulator.md); no vendor's compiler takes part.
`gpu_lint/TARGET.txt` has a line for each launch as it was: what a change of a rule does is the difference,
and `--update` writes it down. Exit code 1 where a bar does not hold or a line differs.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from support import ROOT, WORK, model_path

import compiler
from compiler.core.files import private_directory, write_atomic
from compiler.schedule.rules.threads.common import units
from compiler.targets import get_target
from compiler.verify.access import access_of_module
from toolchain import zoo

SMALL = ("mnist", "squeezenet", "shufflenet", "mobilenetv2", "transformer-encoder")
TARGETS = ("cuda:sm_80", "cuda:sm_90", "cuda:sm_90+tf32", "rocm:gfx90a")
GOLDEN = ROOT / "benchmarks" / "gpu_lint"

GOOD_FETCH = 0.9
"""The ideal sectors of a launch's fetches as a part of those that they take."""
GOOD_BYTES = 0.95
"""The part of a network's fetched bytes that launches as good as that must fetch."""
MOST_WAYS = 2
"""Of a bank conflict in an innermost loop."""
LEAST_WORK = 4096
"""Multiply-adds, or elements of 4 bytes, that are worth a block of their own: 128 for each of 32 lanes."""


@dataclass(frozen=True, slots=True)
class Linted:
    """A launch of a network's kernel; units: multiprocessors of the card; work: as in LEAST_WORK."""

    launch: compiler.LaunchAccess
    least_bytes: int
    units: int
    work: float

    @property
    def fetches_well(self) -> bool:
        found = self.launch.fetch_efficiency
        return found is None or found >= GOOD_FETCH

    @property
    def grid_too_small(self) -> bool:
        return self.launch.blocks < min(self.units, self.work / LEAST_WORK)


@dataclass(frozen=True, slots=True)
class Column:
    """A value of every launch in the golden table; further instruments add further columns."""

    name: str
    value: Callable[[Linted], str]


def _waits(one: Linted) -> str:
    waits, at_once = one.launch.waits
    return f"{100 * at_once / waits:.0f}%" if waits else "-"


def _fetch(one: Linted) -> str:
    found = one.launch.fetch_efficiency
    return "-" if found is None else f"{100 * found:.0f}%"


COLUMNS = (
    Column("calls", lambda one: f"{one.launch.calls}"),
    Column("grid", lambda one: "x".join(map(str, one.launch.grid))),
    Column("block", lambda one: "x".join(map(str, one.launch.block))),
    Column("fetch", _fetch),
    Column("moved", lambda one: f"{one.launch.moved / 1e6:.2f}MB"),
    Column("least", lambda one: f"{one.least_bytes / 1e6:.2f}MB"),
    Column("conflict", lambda one: f"{one.launch.worst_conflict}"),
    Column("idle", lambda one: f"{100 * one.launch.idle:.0f}%"),
    Column("barriers", lambda one: f"{one.launch.barriers:.0f}"),
    Column("at-once", _waits),
)


def lines_of(network: str, found: Sequence[Linted]) -> list[str]:
    """A network's lines of the golden table: columns by name, so that a new one leaves the others alone."""
    return [
        f"{network} {one.launch.function} " + " ".join(f"{item.name}={item.value(one)}" for item in COLUMNS)
        for one in found
    ]


def findings(found: Sequence[Linted]) -> list[str]:
    """The bars that do not hold for a network, each with what is in the way, the worst first."""
    return [*_fetch_findings(found), *_conflict_findings(found), *_grid_findings(found)]


def _fetch_findings(found: Sequence[Linted]) -> list[str]:
    fetched = {one.launch.function: one.launch.fetched * one.launch.calls for one in found}
    good = sum(fetched[one.launch.function] for one in found if one.fetches_well)
    whole = sum(fetched.values())
    if not whole or good >= GOOD_BYTES * whole:
        return []
    bad = sorted(
        (one for one in found if not one.fetches_well), key=lambda one: -fetched[one.launch.function]
    )
    shown = _some(f"{one.launch.function} ({_fetch(one)})" for one in bad)
    part = f"{100 * good / whole:.0f} % of the bytes, not {100 * GOOD_BYTES:.0f} %"
    return [f"fetches: launches with {100 * GOOD_FETCH:.0f} % of ideal sectors fetch {part}: {shown}"]


def _conflict_findings(found: Sequence[Linted]) -> list[str]:
    bad = sorted(
        (one.launch for one in found if one.launch.worst_conflict > MOST_WAYS),
        key=lambda one: -one.worst_conflict,
    )
    shown = _some(f"{one.function} ({one.worst_conflict} ways)" for one in bad)
    return [f"bank conflicts in innermost loops: {shown}"] if bad else []


def _grid_findings(found: Sequence[Linted]) -> list[str]:
    bad = [one for one in found if one.grid_too_small]
    shown = _some(f"{one.launch.function} ({one.launch.blocks} blocks)" for one in bad)
    return [f"grids smaller than {bad[0].units} units: {shown}"] if bad else []


def _some(texts: Iterable[str], most: int = 6) -> str:
    every = list(texts)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


# ---------------------------------------------------------------- measuring


def lint(network: str, target: str, models: Path) -> list[Linted]:
    """Compile a network to text and count its accesses; raises TkError where that cannot be done."""
    name, _, mode = target.partition("+")
    record = zoo.network(network)
    dims = {key: (size, size) for key, size in record.sizes[0].items()} if record.sizes else {}
    with private_directory("tk-gpu-lint") as directory:
        options = compiler.CompileOptions(
            output=directory / "source",
            target=name,
            emit="source",
            dump=directory / "dump",
            tf32=mode == "tf32",
            dims=dims,
        )
        compiler.compile_model(model_path(network, models), options)
        manifest = json.loads((directory / "dump" / "62-manifest.json").read_text())
        (source,) = (directory / "source").glob("kernels.*")
        report = access_of_module(source, manifest, source.read_text())
    of_card = units(get_target(name).facts)
    return [
        Linted(
            one,
            report.least[one.kernel],
            of_card,
            _work(one, report, manifest["kernels"][one.kernel]["flops"]),
        )
        for one in report.launches
    ]


def _work(one: compiler.LaunchAccess, report: compiler.AccessReport, flops: int) -> float:
    """Multiply-adds of the kernel count for the launch of it that moves most."""
    beside = [other for other in report.launches if other.kernel == one.kernel]
    products = flops / 2 if one == max(beside, key=lambda other: other.moved) else 0.0
    return max(one.moved / 4, products)


# ---------------------------------------------------------------- the golden table


def golden_path(target: str, directory: Path = GOLDEN) -> Path:
    """The file of a target's lines."""
    return directory / f"{target.partition(':')[2]}.txt"


def golden_lines(path: Path, network: str) -> list[str]:
    """What a file has of a network."""
    text = path.read_text() if path.exists() else ""
    return [line for line in text.splitlines() if line.partition(" ")[0] == network]


def update(path: Path, network: str, lines: Sequence[str]) -> None:
    """Replace a network's lines; networks stand in the order of their names."""
    text = path.read_text() if path.exists() else ""
    others = [line for line in text.splitlines() if line.partition(" ")[0] != network]
    every = sorted([*others, *lines], key=lambda line: line.partition(" ")[0])  # keeps the order of kernels
    write_atomic(path, "".join(f"{line}\n" for line in every))


def check(network: str, target: str, models: Path, *, keep: bool, golden: Path = GOLDEN) -> bool:
    """Lint a network for a target and print what there is to say; whether nothing was wrong."""
    try:
        found = lint(network, target, models)
    except compiler.TkError as error:
        print(f"{network} {target}: not counted: {'; '.join(error.lines())}", flush=True)
        return False
    problems, path, lines = findings(found), golden_path(target, golden), lines_of(network, found)
    print(f"{network} {target}: {compiler.counted(len(found), 'launch', 'launches')}, ", end="")
    print("all bars hold" if not problems else "\n  ".join(["", *problems]).lstrip(), flush=True)
    if keep:
        update(path, network, lines)
        return not problems
    changes = list(difflib.unified_diff(golden_lines(path, network), lines, "was", "is", lineterm="", n=0))
    for change in changes[2:]:
        print(f"  {change}")
    return not problems and not changes


def main(arguments: Sequence[str] | None = None) -> int:
    """Lint all networks for all targets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks", nargs="+", default=SMALL, metavar="NAME", help="or `all`; default: small ones"
    )
    parser.add_argument("--targets", nargs="+", default=TARGETS, metavar="NAME:ARCH[+tf32]")
    parser.add_argument("--update", action="store_true", help="write the golden table")
    options = parser.parse_args(arguments)
    networks = tuple(zoo.networks()) if "all" in options.networks else options.networks
    good = [
        check(network, target, WORK / "models", keep=options.update)
        for network in networks
        for target in options.targets
    ]
    print(f"{sum(good)} of {len(good)} without findings")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
