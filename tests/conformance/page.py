"""docs/conformance.md, written from outcomes."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from compiler.core.files import write_atomic
from tests.conformance.cases import NODE, OnnxCase
from tests.conformance.outcome import Outcome, State

_HEAD = """# ONNX conformance

The cases that ONNX itself has: {node} of single operators and their expansions, and {model} small models, of
onnx {version}. Do not edit; written by

    just conformance {targets} --write

- passed: compiled without options, and every output equals ONNX's within the tolerance of the case
- rounded: passes where floats of 16 bits may differ by two units in the last place: the data are
  rounded to 16 bits after each operator, and within sums; kernels round less often
- bound: passes when inputs that decide shapes are known to the compiler (`--bind`)
- unsupported: refused with the reason below
- disputed: differs from the data, which are not what the standard says, and equals what takes their place
- wrong, failed, internal error, crashed, timed out: our defects

Of operators that draw random numbers shapes and types are compared. `TARGET@emulator` runs the kernels that a
GPU would get in the [emulator](emulator.md), which checks every access.
"""


def write_page(
    path: Path,
    by_target: Mapping[str, Mapping[str, Outcome]],
    cases: Sequence[OnnxCase],
    keys: Mapping[str, Mapping[str, str]],
) -> None:
    """Write the page of these outcomes, by target and name of a case; `keys` are those of this compiler."""
    node = sum(case.kind == NODE for case in cases)
    head = _HEAD.format(
        node=node, model=len(cases) - node, version=onnx.__version__, targets=" ".join(by_target)
    )
    write_atomic(
        path,
        "\n".join(
            [head, *_sums(by_target, cases), *_older(by_target, keys), *_rest(by_target, cases)]
        ).encode(),
    )


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


def _older(
    by_target: Mapping[str, Mapping[str, Outcome]], keys: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Where outcomes are not of this compiler."""
    older = {
        target: sum(one.key != keys[target].get(one.case) for one in outcomes.values())
        for target, outcomes in by_target.items()
    }
    if any(older.values()):
        counts = ", ".join(f"{count} on {target}" for target, count in older.items() if count)
        yield "\n" + textwrap.fill(f"Of an earlier state of the compiler are {counts}.", 110)


def _of(outcomes: Mapping[str, Outcome], cases: Sequence[OnnxCase], *, node: bool) -> list[Outcome]:
    return [outcomes[case.name] for case in cases if (case.kind == NODE) == node and case.name in outcomes]


def _rest(by_target: Mapping[str, Mapping[str, Outcome]], cases: Sequence[OnnxCase]) -> Iterator[str]:
    """Everything that did not pass on the first target, by reason, and what is otherwise on the others."""
    first, *others = by_target
    yield f"\n## Not passed on {first}\n"
    yield from _reasons(by_target[first], [case for case in cases if _is_news(by_target[first], case.name)])
    for target in others:
        yield f"\n## Otherwise on {target}\n"
        outcomes = by_target[target]
        different = [case for case in cases if _is_news(outcomes, case.name, by_target[first])]
        if different:
            yield from _reasons(outcomes, different)
        else:
            yield f"Each of the {len(outcomes)} cases ends as on {first}."
    yield ""


def _is_news(outcomes: Mapping[str, Outcome], case: str, beside: Mapping[str, Outcome] | None = None) -> bool:
    """Whether a case did not pass, or not as in other outcomes."""
    state = outcomes[case].state if case in outcomes else None
    other = State.PASSED if beside is None else beside[case].state if case in beside else None
    return state is not None and state is not other


def _reasons(outcomes: Mapping[str, Outcome], cases: Sequence[OnnxCase]) -> Iterator[str]:
    yield "| state | reason | cases |\n|---|---|---|"
    groups = defaultdict(list)
    for case in cases:
        one = outcomes[case.name]
        groups[one.state, _reason(one)].append(case.name.removeprefix("test_"))
    for (state, reason), names in sorted(
        groups.items(), key=lambda item: (list(State).index(item[0][0]), item[0])
    ):
        yield f"| {state.value} | {reason} | {', '.join(names)} |"


def _reason(outcome: Outcome) -> str:
    text = " ".join(outcome.reason.split()).replace("|", "\\|")
    return text if outcome.state is State.DISPUTED else text[:160]
