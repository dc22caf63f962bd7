"""docs/conformance.md, written from outcomes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from compiler.core.files import write_atomic
from tests.conformance.cases import NODE, OnnxCase
from tests.conformance.outcome import Outcome, State

_HEAD = """# ONNX conformance

The cases that ONNX itself has: {node} of single operators and their expansions, and {model} small models, of
onnx {version}. Written by `just conformance {targets} --write`; do not edit.

- passed: compiled without options, and every output equals ONNX's within the tolerance of the case
- bound: passes when inputs that decide shapes are known to the compiler (`--bind`)
- unsupported: refused with the reason below
- wrong, failed, internal error, crashed, timed out: our defects

Of operators that draw random numbers shapes and types are compared. Floats of 16 bits may differ by two units
in the last place, as it is open where a sum of theirs is rounded.
"""


def write_page(path: Path, by_target: Mapping[str, Mapping[str, Outcome]], cases: Sequence[OnnxCase]) -> None:
    """Write the page of these outcomes, by target and name of a case."""
    node = sum(case.kind == NODE for case in cases)
    head = _HEAD.format(
        node=node, model=len(cases) - node, version=onnx.__version__, targets=" ".join(by_target)
    )
    write_atomic(path, "\n".join([head, *_sums(by_target, cases), *_rest(by_target, cases)]).encode())


def _sums(by_target: Mapping[str, Mapping[str, Outcome]], cases: Sequence[OnnxCase]) -> Iterator[str]:
    yield "| target | cases | " + " | ".join(state.value for state in State) + " |"
    yield "|---|---" + "|---" * len(State) + "|"
    for target, outcomes in by_target.items():
        for kind, found in (
            ("node", _of(outcomes, cases, node=True)),
            ("model", _of(outcomes, cases, node=False)),
        ):
            count = Counter(one.state for one in found)
            yield (
                f"| {target} | {len(found)} {kind} | "
                + " | ".join(str(count[state]) for state in State)
                + " |"
            )


def _of(outcomes: Mapping[str, Outcome], cases: Sequence[OnnxCase], *, node: bool) -> list[Outcome]:
    return [outcomes[case.name] for case in cases if (case.kind == NODE) == node and case.name in outcomes]


def _rest(by_target: Mapping[str, Mapping[str, Outcome]], cases: Sequence[OnnxCase]) -> Iterator[str]:
    """Everything that did not pass, by reason."""
    for target, outcomes in by_target.items():
        yield f"\n## Not passed on {target}\n\n| state | reason | cases |\n|---|---|---|"
        groups = defaultdict(list)
        for case in cases:
            one = outcomes.get(case.name)
            if one is not None and one.state is not State.PASSED:
                groups[one.state, _reason(one)].append(case.name.removeprefix("test_"))
        for (state, reason), names in sorted(
            groups.items(), key=lambda item: (list(State).index(item[0][0]), item[0])
        ):
            yield f"| {state.value} | {reason} | {', '.join(names)} |"
    yield ""


def _reason(outcome: Outcome) -> str:
    return " ".join(outcome.reason.split()).replace("|", "\\|")[:160]
