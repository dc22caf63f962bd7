"""Runs ONNX's cases on targets and writes what came of it: `python -m tests.conformance [TARGET ...]`.

What has an outcome for the same case, compiler and target is not run again, so an interrupted run goes on
where it was. Exit code 1 where a case is wrong, crashes or ends in an internal error.
"""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import compiler
from compiler.core.cache import content_key
from compiler.core.forked import Forked, run_forked
from compiler.core.forked import Tell as TellForked
from tests.conformance.attempt import Place, attempt
from tests.conformance.cases import OnnxCase, all_cases
from tests.conformance.outcome import Outcome, Outcomes, State
from tests.conformance.page import write_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
_TOGETHER = 24
_CASE_SECONDS = 60.0
_MEMORY = 8 << 30
_BAD = (State.WRONG, State.CRASHED, State.INTERNAL, State.FAILED, State.TIMED_OUT)


def main() -> int:
    """The command."""
    options = _options()
    cases = [case for case in all_cases() if _wanted(case, options)]
    bad = 0
    for target in () if options.stored else map(_for_the_device, options.targets):
        bad += _run_target(target, cases, options)
    if options.write or options.stored:
        by_target = {target: Outcomes.of(target, ROOT).read() for target in options.targets}
        write_page(PAGE, by_target, all_cases(), {target: _keys(target) for target in by_target})
    return 1 if bad else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="just conformance", description="ONNX's own cases on targets")
    parser.add_argument(
        "targets", nargs="*", default=["cpu"], help="NAME, NAME:ARCH or NAME@DEVICE; default: cpu"
    )
    parser.add_argument(
        "--only", action="append", help="names of cases or operators, or patterns; repeatable"
    )
    parser.add_argument("--kind", action="append", help="node, simple, pytorch-converted, pytorch-operator")
    parser.add_argument("--shard", default="1/1", help="K/N: every N-th case, beginning with the K-th")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="processes; default: one a processor"
    )
    parser.add_argument("--again", action="store_true", help="run what has an outcome, too")
    parser.add_argument("--quiet", action="store_true", help="only the sum")
    parser.add_argument("--write", action="store_true", help="write docs/conformance.md")
    parser.add_argument("--stored", action="store_true", help="write it of stored outcomes, and run nothing")
    return parser.parse_args()


def _wanted(case: OnnxCase, options: argparse.Namespace) -> bool:
    if options.kind and case.kind not in options.kind:
        return False
    names = (case.name, *case.operators)
    return not options.only or any(fnmatch.fnmatchcase(name, one) for one in options.only for name in names)


def _place(text: str) -> Place:
    text, _, device = text.partition("@")
    target, _, arch = text.partition(":")
    return Place(target, arch or None, device or None)


def _for_the_device(target: str) -> str:
    """With the architecture of the device here, where neither that nor a device is named."""
    arch = None if ":" in target or "@" in target else compiler.arch_here(target)
    return f"{target}:{arch}" if arch else target


def _run_target(target: str, cases: Sequence[OnnxCase], options: argparse.Namespace) -> int:
    outcomes, keys = Outcomes.of(target, ROOT), _keys(target)
    known = {} if options.again else outcomes.read()
    part, parts = map(int, options.shard.split("/"))
    mine = list(cases)[part - 1 :: parts]
    left = [case for case in mine if case.name not in known or known[case.name].key != keys[case.name]]
    sys.stderr.write(f"{target}: {len(left)} of {len(mine)} cases to run\n")
    _in_processes(left, _place(target), keys, outcomes, options.jobs)
    found = outcomes.read()
    ended = [found[case.name] for case in mine]
    if not options.quiet:
        for one in ended:
            if one.state is not State.PASSED:
                sys.stdout.write(f"{one.state.value:<14} {one.case}: {' '.join(one.reason.split())[:200]}\n")
    count = Counter(one.state for one in ended)
    sums = ", ".join(f"{count[state]} {state.value}" for state in State if count[state])
    sys.stdout.write(f"{target}: {sums}\n")
    return sum(count[state] for state in _BAD)


def _keys(target: str) -> Mapping[str, str]:
    """What the outcome of each case depends on, by its name."""
    ours = [compiler.package_digest(ROOT / one) for one in ("compiler", "tests/conformance")]
    return {case.name: content_key(case.digest, *ours, target) for case in all_cases()}


def _in_processes(
    cases: Sequence[OnnxCase], place: Place, keys: Mapping[str, str], outcomes: Outcomes, jobs: int
) -> None:
    context = multiprocessing.get_context("fork")
    batches = context.SimpleQueue()
    by_name = {case.name: case for case in cases}
    work = partial(_work, batches, by_name, place, keys, outcomes)
    processes = [context.Process(target=work) for _ in range(jobs)]
    for process in processes:
        process.start()
    for batch in _batches(cases):  # a pipe, which holds no more than some of them
        batches.put([case.name for case in batch])
    for _ in processes:
        batches.put(None)
    for process in processes:
        process.join()


def _batches(cases: Sequence[OnnxCase]) -> Iterator[Sequence[OnnxCase]]:
    """Cases of the same opsets side by side."""
    ordered = sorted(cases, key=lambda case: (case.opsets, case.model.ir_version))
    yield from (ordered[at : at + _TOGETHER] for at in range(0, len(ordered), _TOGETHER))


def _work(
    batches: Any, by_name: Mapping[str, OnnxCase], place: Place, keys: Mapping[str, str], outcomes: Outcomes
) -> None:
    while (names := batches.get()) is not None:
        started = time.monotonic()
        for one in _outcomes([by_name[name] for name in names], place):
            outcomes.add(Outcome(one.case, one.state, one.reason, keys[one.case]))
        seconds = time.monotonic() - started
        sys.stderr.write(f"{len(names)} cases to {names[-1]}, {seconds:.0f} s\n")


def _outcomes(cases: Sequence[OnnxCase], place: Place) -> list[Outcome]:
    """How cases end, each batch in a copy of this process, which may crash or hang; then in halves."""
    ended = run_forked(
        partial(_answer, cases, place), seconds=_CASE_SECONDS * max(2, len(cases) / 4), memory=_MEMORY
    )
    if ended.answer is not None:
        return [Outcome(name, State(state), reason) for name, state, reason in ended.answer["outcomes"]]
    if len(cases) == 1:
        return [Outcome(cases[0].name, *_end(ended))]
    middle = len(cases) // 2
    return [*_outcomes(cases[:middle], place), *_outcomes(cases[middle:], place)]


def _answer(cases: Sequence[OnnxCase], place: Place, tell: TellForked) -> Mapping[str, Any]:
    found = attempt(cases, place, tell)
    return {"outcomes": [(one.case, one.state.value, one.reason) for one in found]}


def _end(ended: Forked) -> tuple[State, str]:
    if ended.timed_out:
        return State.TIMED_OUT, f"after {ended.seconds:.0f} s"
    return State.CRASHED, f"signal {ended.signal}: {ended.said[-300:]}"


if __name__ == "__main__":
    sys.exit(main())
