"""Random graphs of all operators and types, compiled, run and compared with oracles: `python -m tests.fuzz`.

A seed gives one graph, always the same. Graphs whose outcome is known for this compiler are not run again, so
that an interrupted run goes on where it was. Exit code 1 where a graph is wrong or ends in an error that is
none of its own; each of these is written to build/fuzz/seed-N, made small, with the command that shows it
again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import compiler
from compiler.core.cache import content_key
from compiler.core.process import run
from compiler.core.settings import child_environment, export
from tests.fuzz.attempt import PLAIN, SANITIZED, How
from tests.fuzz.graphs import TOGETHER, graph_of, profile_of
from tests.fuzz.outcome import FAULTS, Outcome, Outcomes, State
from tests.fuzz.processes import blocks, having, of_blocks, outcomes_of
from tests.fuzz.shrink import shrink

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "fuzz"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _options(arguments)
    how = SANITIZED if options.sanitize else PLAIN
    if options.sanitize and "LD_PRELOAD" not in os.environ:
        return _again_with_sanitizers(arguments)
    export({"TK_DEBUG": "1"})  # programs are verified after every pass
    alone = options.seed is not None
    found = outcomes_of([graph_of(options.seed)], how) if alone else _many(options, how)
    _say(_summary(found))
    faults = [one for one in found if one.state in FAULTS]
    for outcome in faults:
        _say([_line(outcome)])
        if options.shrink:
            _say(
                f"    {text}"
                for text in shrink(graph_of(outcome.seed), outcome, FOLDER / f"seed-{outcome.seed}")
            )
    return 1 if faults else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="just fuzz", description="random graphs, compiled and compared with oracles"
    )
    parser.add_argument(
        "--seconds", type=float, help="end after so long; default: 60 where no --graphs are given"
    )
    parser.add_argument("--graphs", type=int, help="end after so many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first graph")
    parser.add_argument(
        "--each",
        type=int,
        default=TOGETHER,
        help=f"of {TOGETHER} graphs with the same types; fewer: more types",
    )
    parser.add_argument("--having", metavar="OP", help="only graphs with this operator")
    parser.add_argument("--seed", type=int, help="run this one graph again")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="processes; default: one a processor"
    )
    parser.add_argument(
        "--sanitize", action="store_true", help="with the address and undefined-behaviour sanitizers"
    )
    parser.add_argument("--stop", action="store_true", help="end with the first fault")
    parser.add_argument("--again", action="store_true", help="run what has an outcome, too")
    parser.add_argument(
        "--no-shrink", dest="shrink", action="store_false", help="only say which graphs are wrong"
    )
    return parser.parse_args(arguments)


def _say(lines: Any) -> None:
    for text in lines:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _again_with_sanitizers(arguments: Sequence[str] | None) -> int:
    """The same in a process that has the sanitizers' runtime from its beginning."""
    library = run(["g++", "-print-file-name=libasan.so"]).stdout.strip()
    # Python frees little at its end, and onnxruntime's exceptions are no business of ours.
    env = child_environment(
        LD_PRELOAD=library, ASAN_OPTIONS="detect_leaks=0", UBSAN_OPTIONS="print_stacktrace=1"
    )
    words = list(sys.argv[1:] if arguments is None else arguments)
    os.execve(sys.executable, [sys.executable, "-W", "ignore", "-m", "tests.fuzz", *words], env)


# ---------------------------------------------------------------- many


def _many(options: argparse.Namespace, how: How) -> list[Outcome]:
    """Outcomes of seeds from the first one on, block by block, until time or count is reached."""
    seconds = options.seconds or (None if options.graphs else 60.0)
    count = options.graphs or 10**9
    parts = (compiler.package_digest(), compiler.package_digest(ROOT / "tests" / "fuzz"), *how.flags)
    kept = Outcomes(FOLDER / "outcomes.jsonl", content_key("fuzz", *parts))
    known = {} if options.again else kept.read()
    export({"TK_JOBS": "1"})  # of each process
    found: list[Outcome] = []
    wanted = blocks(options.first, count, options.each)
    if options.having:
        wanted = having(options.having, blocks(options.first, 10**9, options.each), count)
    for outcome in of_blocks(wanted, known, options.jobs, how, seconds):
        found.append(outcome)
        if outcome.seed not in known or options.again:
            kept.add(outcome)
        if outcome.state in FAULTS:
            sys.stderr.write(f"{_line(outcome)}\n")
            if options.stop:
                break
    return found


# ---------------------------------------------------------------- what is said


def _line(outcome: Outcome) -> str:
    profile = profile_of(outcome.seed // TOGETHER)
    company = f"; only beside {list(outcome.company)}" if outcome.company else ""
    reason = " ".join(outcome.reason.split())[:400]
    return f"seed {outcome.seed} (opset {profile.opset}, {profile.arch}): {outcome.state}: {reason}{company}"


def _summary(found: Sequence[Outcome]) -> Iterator[str]:
    count = Counter(one.state for one in found)
    sums = ", ".join(f"{count[state]} {state.value}" for state in State)
    seeds = [one.seed for one in found]
    yield f"{len(found)} graphs (seeds {min(seeds, default=0)} to {max(seeds, default=0)}): {sums}"
    why = Counter(_kind(one) for one in found if one.state in (State.UNDECIDED, State.UNSUPPORTED))
    yield from (f"  {number} {text}" for text, number in why.most_common())


def _kind(outcome: Outcome) -> str:
    """A reason without what is of one graph only."""
    reason = outcome.reason
    for words in ("oracles disagree", "rounding of intermediates", "no oracle"):
        if words in reason:
            return f"{outcome.state}: {words}"
    if "cannot stay free" in reason:
        return f"{outcome.state}: the batch cannot stay free"
    return f"{outcome.state}: {' '.join(reason.split())[:100]}"


if __name__ == "__main__":
    sys.exit(main())
