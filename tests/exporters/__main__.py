"""Every model of an exporter at five sizes beside onnxruntime: `python -m tests.exporters [NAME ...]`.

With --write a page is made of it. Exit code 1 where one fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import wrap

import compiler
from tests.exporters.trial import MOST_ERROR, Outcome, attempt
from toolchain import zoo

_WIDTH = 120
PAGE = Path(__file__).resolve().parents[2] / "docs" / "exporters.md"
_HEAD = f"""# Models that exporters write

Tiny models with free dimensions, as exporters wrote them (`tk zoo list`, `tk zoo make NAME`), on target
`cpu`: each is compiled, run at five sizes and compared with onnxruntime, element by element, within
{MOST_ERROR} of an output's largest one. Written by `just exporters --write`; do not edit.
"""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="just exporters", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models, or patterns; default: all")
    parser.add_argument("--sizes", type=int, default=5, metavar="N", help="the first so many; default: 5")
    parser.add_argument("--target", default="cpu", help="TARGET or TARGET@DEVICE; default: cpu")
    parser.add_argument("--write", action="store_true", help="write docs/exporters.md, for cpu")
    given = parser.parse_args()
    target, _, device = given.target.partition("@")
    if given.write and target != "cpu":
        parser.error("the page is of cpu")
    patterns = given.names or ["*"]
    names = [one for one in zoo.exported() if any(fnmatchcase(one, pattern) for pattern in patterns)]
    outcomes = []
    for name in names:
        with compiler.private_directory("tk-exporters") as folder:
            outcomes.append(attempt(name, folder, given.sizes, target, device or None))
        sys.stdout.write(_line(outcomes[-1]))
        sys.stdout.flush()
    if given.write:
        compiler.write_atomic(PAGE, page(outcomes).encode())
    sys.stdout.write(f"{summary(outcomes)}\n")
    return 0 if all(one.passed for one in outcomes) else 1


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many of each kind."""
    passed = [one for one in outcomes if one.passed]
    free = [one for one in passed if not one.fixed]
    batch = [one for one in passed if one.fixed and "batch" not in one.fixed]
    return (
        f"{len(outcomes)} models: {len(free)} compile without flags and are equal to onnxruntime, "
        f"{len(batch)} more with a free batch and other dimensions given, "
        f"{len(passed) - len(free) - len(batch)} more with all given; {len(outcomes) - len(passed)} fail"
    )


def page(outcomes: Sequence[Outcome]) -> str:
    """The table as a page."""
    rows = []
    for one in outcomes:
        record = zoo.network(one.name)
        sizes = "; ".join(f"{symbol} {', '.join(map(str, values))}" for symbol, values in record.free)
        result = one.problem or (f"with `--dim` for {', '.join(one.fixed)}" if one.fixed else "without flags")
        cells = (one.name, record.family, record.exporter, sizes, result, f"{one.error:.0e}", one.why)
        rows.append("| " + " | ".join(cells) + " |")
    titles = ("model", "family", "exporter", "sizes", "compiled", "worst error", "why flags")
    head = f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}"
    return "\n".join([_HEAD, *wrap(f"{summary(outcomes)}.", _WIDTH), "", head, *rows, ""])


def _line(one: Outcome) -> str:
    state = one.problem or (f"given: {', '.join(one.fixed)} ({one.why})" if one.fixed else "without flags")
    return f"{one.name:28} {one.error:.0e}  {state}\n"


if __name__ == "__main__":
    sys.exit(main())
