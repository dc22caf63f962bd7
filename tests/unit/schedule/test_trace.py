"""Traces: JSON and back, replay, replaced decisions, broken input."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from compiler.core.diagnostics import BadInputError
from compiler.loops.build import Builder
from compiler.loops.ir import Func, const
from compiler.schedule.errors import ScheduleError
from compiler.schedule.schedule import Schedule, replay
from compiler.schedule.trace import SampledInt, Trace


def two(n: int = 48) -> Func:
    b = Builder("two")
    x = b.input("x", (n,))
    a = b.compute("a", (n,), lambda i: x[i] + 1.0)
    return b.finish([b.compute("y", (n,), lambda i: a[i] * 2.0)])


def tuned(source: random.Random | None = None, factors: tuple[int, ...] | None = None) -> Schedule:
    s = Schedule(two(), source)
    outer, inner = s.split("y_i0", s.sample_tile("y_i0", 2, largest=16, decision=factors))
    s.vectorize(inner)
    s.parallel(outer)
    return s


def test_replay_gives_the_same_program() -> None:
    s = tuned(factors=(6, 8))
    again = replay(Trace.from_json(s.trace.to_json()), two())
    assert again.func == s.func
    assert again.trace == s.trace
    assert again.trace.to_json() == s.trace.to_json()


def test_sampling_from_the_same_seed_is_the_same() -> None:
    assert tuned(random.Random(7)).trace == tuned(random.Random(7)).trace
    assert len({tuned(random.Random(seed)).trace for seed in range(20)}) > 3


def test_sampled_values_are_references() -> None:
    s = tuned(factors=(6, 8))
    step = json.loads(s.trace.to_json())["instructions"][1]
    assert step["with"]["factors"] == [{"ref": [0, 0]}, {"ref": [0, 1]}]
    assert s.trace.decisions() == {0: (6, 8)}


def test_another_decision_changes_the_rest() -> None:
    s = tuned(factors=(6, 8))
    other = replay(s.trace, two(), {0: (3, 16)})
    assert other.func == tuned(factors=(3, 16)).func
    assert other.loop("y_i0_1").extent == const(16)


def test_a_decision_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ScheduleError, match="do not make up the loop"):
        replay(tuned(factors=(6, 8)).trace, two(), {0: (5, 5)})
    with pytest.raises(BadInputError, match="takes no decision"):
        replay(tuned(factors=(6, 8)).trace, two(), {1: (5, 5)})


def test_sampled_categories_and_places_are_references_too() -> None:
    s = Schedule(two(), random.Random(1))
    s.split("y_i0", (None, s.sample_categorical((4, 8, 16), decision=1)))
    s.compute_at("a", s.sample_compute_location("a", decision="y_i0_0"))
    again = replay(s.trace, two(), {0: 2})
    assert again.loop("y_i0_1").extent == const(16)
    assert isinstance(s.sample_categorical((1,), decision=0), SampledInt)


def test_a_trace_of_another_program_is_found() -> None:
    s = Schedule(two())
    s.split("y_i0", (None, 5), tail="partition")
    with pytest.raises(BadInputError, match="another program"):
        replay(s.trace, two(50))


def broken(change: Any) -> str:
    data = json.loads(tuned(factors=(6, 8)).trace.to_json())
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        (broken(lambda d: d.update(version=99)), "another version"),
        (broken(lambda d: d.pop("version")), "'version' is missing"),
        (broken(lambda d: d.update(extra=1)), "unknown field 'extra'"),
        (broken(lambda d: d.update(instructions={})), "list of instructions"),
        (broken(lambda d: d["instructions"][1].update(do="splitt")), "did you mean 'split'"),
        (broken(lambda d: d["instructions"][1].update(do=["split"])), "unknown primitive"),
        (broken(lambda d: d["instructions"][1]["with"].update(factor=1)), "did you mean 'factors'"),
        (broken(lambda d: d["instructions"][1]["with"].pop("tail")), "'tail' is missing"),
        (broken(lambda d: d["instructions"][1].update(decision=[1])), "unknown field 'decision'"),
        (broken(lambda d: d["instructions"][1].update(gives=[None])), "names or numbers"),
        (broken(lambda d: d["instructions"][1]["with"].update(loop={"ref": [1, 0]})), "earlier step"),
        (broken(lambda d: d["instructions"][1]["with"].update(loop={"ref": [0, -1]})), "earlier step"),
        (broken(lambda d: d["instructions"][1]["with"].update(loop={"rif": [0, 1]})), "did you mean 'ref'"),
    ],
)
def test_broken_traces_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadInputError) as caught:
        Trace.from_json(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["instructions"][1]["with"].update(loop=5),
        lambda d: d["instructions"][1]["with"].update(loop=None),
        lambda d: d["instructions"][1]["with"].update(factors="ab"),
        lambda d: d["instructions"][1]["with"].update(factors=[1.5, 2]),
        lambda d: d["instructions"][1]["with"].update(tail=[1]),
        lambda d: d["instructions"][1]["with"].update(factors=[{"ref": [0, 7]}, 2]),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(change: Any) -> None:
    with pytest.raises((BadInputError, ScheduleError)):
        replay(Trace.from_json(broken(change)), two())
