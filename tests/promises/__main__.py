"""Tries to break promises: `python -m tests.promises [P7 ...]`, all of them without a name.

`--share` runs a part of the cases, drawn by `--seed`; `--only` those whose names fit a pattern. `--write`
keeps what came of all cases and writes docs/reliability.md. A run that was stopped goes on where it was,
unless code has changed or `--again` is given. Exit code 1 where a promise was broken or too few cases were
tried.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable

from compiler import package_digest
from compiler.core.cache import content_key
from compiler.core.files import sha256_file, write_atomic
from compiler.core.settings import export, usable_processors
from tests.promises.promise import MODULES, Kept, Promise, Selection, Sums, promise_of, try_promise
from tests.promises.record import PAGE, ROOT, Record, page, read_records, write_record

_TELL_SECONDS = 10.0


def main() -> int:
    """The command."""
    options = _options()
    selection = Selection(options.share, options.seed, tuple(options.only or ()))
    if options.write and not selection.is_all:
        sys.stderr.write("only what was tried in full is written: leave out --share and --only\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="promise-cache-") as folder:
        # Compiles count what their cache holds: the user's may hold a lot.
        export({"TK_CACHE_DIR": folder})
        bad = _try_all(options, selection)
    if options.write:
        write_atomic(PAGE, page(read_records()))
    return 1 if bad else 0


def _try_all(options: argparse.Namespace, selection: Selection) -> int:
    """Try each of the promises that are wanted; how many were broken."""
    bad = 0
    for name in options.names or MODULES:
        promise = promise_of(name)
        sums = try_promise(promise, selection, _teller(name), options.jobs, _kept(name, options))
        bad += _show(promise, selection, sums)
        if options.write:
            write_record(Record.of(promise, sums))
    return bad


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="just promises", description="try to break what tk promises")
    parser.add_argument(
        "names", nargs="*", metavar="PROMISE", choices=[[], *MODULES], help=", ".join(MODULES)
    )
    parser.add_argument("--share", type=float, default=1.0, help="part of the cases; default: 1, all")
    parser.add_argument("--seed", type=int, default=0, help="draws the cases; default: 0")
    parser.add_argument("--only", action="append", help="names of cases, or patterns; repeatable")
    parser.add_argument("--jobs", type=int, default=usable_processors(), help="cases at a time")
    parser.add_argument("--again", action="store_true", help="run what has an end, too")
    parser.add_argument("--write", action="store_true", help="write the record and docs/reliability.md")
    return parser.parse_args()


def _kept(name: str, options: argparse.Namespace) -> Kept:
    """The ends of cases that were run before with this code."""
    folder = ROOT / "build" / "promises"
    ours = [package_digest(ROOT / top) for top in ("compiler", "toolchain")]
    tests = [path for top in ("promises", "support") for path in sorted((ROOT / "tests" / top).rglob("*.py"))]
    made_with = content_key("promise", name, str(options.seed), *ours, *map(sha256_file, tests))
    kept = Kept(folder / f"{name}.jsonl", made_with)
    if options.again:
        kept.path.unlink(missing_ok=True)
    return kept


def _teller(name: str) -> Callable[[str, str], None]:
    told = time.monotonic()

    def tell(done: str, fault: str) -> None:
        nonlocal told
        if fault or time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            sys.stderr.write(f"{name}: {done} {fault}\n")

    return tell


def _show(promise: Promise, selection: Selection, sums: Sums) -> bool:
    """Print what came of a promise; whether it was broken."""
    sys.stdout.write(f"{promise.name}: {promise.promised}: {sums.trials} {promise.trials}, ")
    sys.stdout.write(f"{len(sums.faults)} faults, {sums.seconds:.0f} s\n")
    for how, count in sums.ended.items():
        sys.stdout.write(f"  {count:7} {how}\n")
    for name, fault in sums.faults.items():
        sys.stdout.write(f"  FAULT {name}: {fault}\n")
    few = selection.is_all and sums.trials < promise.least
    if few:
        sys.stdout.write(f"  FEWER than the {promise.least} that there should be\n")
    sys.stdout.flush()
    return bool(sums.faults) or few


if __name__ == "__main__":
    sys.exit(main())
