"""How well kernels for GPUs use memory and the chip, without a GPU: beside bars and beside golden tables.

    python benchmarks/gpu_lint.py [--networks squeezenet ... | all] [--targets cuda:sm_90+tf32 ...]
                                  [--update] [--summary FILE] [--no-code]

Accesses are counted in the emulator (docs/emulator.md). Where the vendor's compiler and disassembler are
there, the machine code is read, too (docs/machine-code.md). `gpu_lint/TARGET.txt` has a line for each launch
as it was, `gpu_lint/machine_code/TARGET.txt` one with what the vendor's compiler made of it: what a change
of a rule does is the difference, and `--update` writes it down. Exit code 1 where a bar does not hold or a
line differs.
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_kernels import CODE_COLUMNS, SUMMARY, Network, findings, lines_of, lint, summary_row
from support import ROOT, WORK

import compiler
from compiler.core.files import write_atomic
from toolchain import zoo

SMALL = ("mnist", "squeezenet", "shufflenet", "mobilenetv2", "transformer-encoder")
TARGETS = ("cuda:sm_80", "cuda:sm_90", "cuda:sm_90+tf32", "rocm:gfx90a")
GOLDEN = ROOT / "benchmarks" / "gpu_lint"

# ---------------------------------------------------------------- the golden table


def golden_path(target: str, directory: Path = GOLDEN) -> Path:
    """The file of a target's lines."""
    return directory / f"{target.partition(':')[2]}.txt"


def code_path(target: str, directory: Path = GOLDEN) -> Path:
    """The file of its lines on machine code; the first names the compiler."""
    return golden_path(target, directory / "machine_code")


def golden_lines(path: Path, network: str) -> list[str]:
    """What a file has of a network."""
    text = path.read_text() if path.exists() else ""
    return [line for line in text.splitlines() if line.partition(" ")[0] == network]


def update(path: Path, network: str, lines: Sequence[str]) -> None:
    """Replace a network's lines; networks stand in the order of their names."""
    text = path.read_text() if path.exists() else ""
    others = [line for line in text.splitlines() if line.partition(" ")[0] != network]
    every = sorted([*others, *lines], key=lambda line: line.partition(" ")[0])  # keeps the order of kernels
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, "".join(f"{line}\n" for line in every))


def check(found: Network, target: str, *, keep: bool, golden: Path = GOLDEN) -> bool:
    """Print what there is to say of a network on a target; whether nothing was wrong."""
    problems = findings(found.launches)
    print(f"{found.name} {target}: {compiler.counted(len(found.launches), 'launch', 'launches')}", end="")
    print(f", {found.microseconds:.0f} us predicted" if found.microseconds else "", end="")
    print(", all bars hold" if not problems else "\n  ".join([":", *problems]), flush=True)
    if found.unread:
        print(f"  machine code: not read: {found.unread}")
    path, lines = golden_path(target, golden), lines_of(found.name, found.launches)
    same = _compared(path, found.name, lines, keep=keep)
    if any(one.code for one in found.launches):
        same &= _compared_code(found, target, keep=keep, golden=golden)
    return not problems and same


def _compared_code(found: Network, target: str, *, keep: bool, golden: Path) -> bool:
    """The same for machine code: another release of the compiler makes other code, which is said only."""
    path, lines = code_path(target, golden), lines_of(found.name, found.launches, CODE_COLUMNS)
    (was,) = golden_lines(path, "#") or (f"# {found.toolchain}",)
    if was == f"# {found.toolchain}" or keep:
        if keep:
            update(path, "#", [f"# {found.toolchain}"])
        return _compared(path, found.name, lines, keep=keep)
    print(f"  machine code: not compared: the golden table is of {was[2:]}, this of {found.toolchain}")
    return True


def _compared(path: Path, network: str, lines: Sequence[str], *, keep: bool) -> bool:
    """Whether a file has these lines; prints the difference, or writes them down."""
    if keep:
        update(path, network, lines)
        return True
    changes = list(difflib.unified_diff(golden_lines(path, network), lines, "was", "is", lineterm="", n=0))
    for change in changes[2:]:
        print(f"  {change}")
    return not changes


def write_summary(path: Path, rows: Mapping[str, Sequence[Network]]) -> None:
    """A table of networks for each target, in Markdown."""
    lines = []
    for target, networks in rows.items():
        lines += [f"| {target}: {' | '.join(SUMMARY)} |", f"|---|{'---:|' * (len(SUMMARY) - 1)}"]
        lines += [*(f"| {' | '.join(summary_row(one))} |" for one in networks), ""]
    write_atomic(path, "\n".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Lint all networks for all targets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks", nargs="+", default=SMALL, metavar="NAME", help="or `all`; default: small ones"
    )
    parser.add_argument("--targets", nargs="+", default=TARGETS, metavar="NAME:ARCH[+PRECISION]")
    parser.add_argument("--update", action="store_true", help="write the golden tables")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write a row for each network")
    parser.add_argument("--no-code", action="store_true", help="do not compile to machine code")
    options = parser.parse_args(arguments)
    networks = tuple(zoo.networks()) if "all" in options.networks else options.networks
    found: dict[str, list[Network]] = {target: [] for target in options.targets}
    good = []
    for network, target in itertools.product(networks, options.targets):
        try:
            one = lint(network, target, WORK / "models", code=not options.no_code)
        except compiler.TkError as error:
            print(f"{network} {target}: not counted: {'; '.join(error.lines())}", flush=True)
            good.append(False)
            continue
        found[target].append(one)
        good.append(check(one, target, keep=options.update))
        if options.summary:
            write_summary(options.summary, found)
    print(f"{sum(good)} of {len(good)} without findings")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
