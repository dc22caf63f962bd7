"""Plants faults in our own compiler, one at a time, and tells which the fuzzer finds: `python -m
tests.fuzz.hunt`.

Each mutant is a copy of `compiler/` with one line changed, which is fuzzed until a graph is wrong, or with so
many graphs: those with the operator, where the fault is in one. Exit code 1 where more than one in twenty
survives.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from compiler.core.diagnostics import CrashError
from compiler.core.files import private_directory
from compiler.core.process import run
from compiler.core.settings import child_environment
from tests.fuzz.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
GRAPHS = 100
EACH = 4
"""Of graphs with the same types: 25 sets of types in all."""
NEEDED = 0.95
_SECONDS = 1800.0


@dataclass(frozen=True)
class Hunted:
    """A mutant, and the first line that the fuzzer says of it; empty where it survives."""

    mutant: Mutant
    found: str
    graphs: int


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="just fuzz-mutants", description="faults in our compiler, found by fuzzing"
    )
    parser.add_argument("--only", default="", help="mutants with this in their name")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="seed of the first graph")
    options = parser.parse_args(arguments)
    wanted = [one for one in MUTANTS if options.only in one.name]
    hunted: list[Hunted] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for one in pool.map(lambda mutant: hunt(mutant, options.first), wanted):
            hunted.append(one)
            sys.stdout.write(f"{_line(one)}\n")
            sys.stdout.flush()
    sys.stdout.write("".join(f"{text}\n" for text in _summary(hunted)))
    return 0 if sum(bool(one.found) for one in hunted) >= NEEDED * len(hunted) else 1


def hunt(mutant: Mutant, first: int = 0) -> Hunted:
    """Fuzz a mutant."""
    with private_directory("tk-mutant") as directory:
        plant(mutant, directory)
        words = f"--graphs {GRAPHS} --each {EACH} --first {first} --stop --again --no-shrink --jobs 1"
        argv = [sys.executable, "-W", "ignore", "-m", "tests.fuzz", *words.split()]
        argv += ["--having", mutant.op] if mutant.op else []
        try:
            done = run(
                argv, cwd=directory, env=child_environment(PYTHONPATH=str(directory)), timeout=_SECONDS
            )
        except CrashError as error:
            return Hunted(mutant, f"did not end: {error.what}", 0)
    lines = done.stdout.splitlines()
    tried = re.match(r"(\d+) graphs", lines[0]) if lines else None
    if done.returncode not in (0, 1) or tried is None:
        return Hunted(mutant, f"the fuzzer itself ended: {done.stderr.strip().splitlines()[-1:]}", 0)
    found = next((line for line in lines if line.startswith("seed ")), "")
    return Hunted(mutant, found, int(tried[1]))


def plant(mutant: Mutant, directory: Path) -> None:
    """A copy of the compiler with the mutant's line, beside the tests."""
    shutil.copytree(ROOT / "compiler", directory / "compiler")
    (directory / "tests").symlink_to(ROOT / "tests")
    path = directory / "compiler" / mutant.file
    path.write_text(path.read_text().replace(mutant.before, mutant.after))


def _line(one: Hunted) -> str:
    return (
        f"{'found' if one.found else 'SURVIVED':9} {one.mutant.name}: {one.graphs} graphs; {one.found[:220]}"
    )


def _summary(hunted: Sequence[Hunted]) -> Iterator[str]:
    yield f"{sum(bool(one.found) for one in hunted)} of {len(hunted)} found within {GRAPHS} graphs"
    yield from (f"survived: {one.mutant.name} ({one.mutant.file})" for one in hunted if not one.found)


if __name__ == "__main__":
    sys.exit(main())
