"""Random schedules of random blocks compute what the unscheduled program computes.

Every registered primitive is drawn, with arguments from `tests/support/random_steps.py`.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import numpy as np
import pytest

from compiler.loops.interp import interpret
from compiler.loops.ir import ForKind
from compiler.loops.text import print_func
from compiler.lower.place_allocations import place_allocations
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives import PRIMITIVES
from compiler.schedule.primitives.sampling import Sampling
from compiler.schedule.races import check_schedule
from compiler.schedule.schedule import Schedule, replay
from compiler.schedule.trace import Trace
from tests.support.random_programs import program
from tests.support.random_steps import propose

SCHEDULES = 500
ONCE_WRONG = (1159, 3710, 10110, 10851, 12945, 17679, 18049, 18341, 33013, 41496, 51711, 82711)
"""Schedules beyond those that once gave other results: rings, boxes outside of buffers, names twice."""
STEPS = 12
MUST_APPLY = 0.6
PROGRAMS = 60
WEIGHTS = {
    "cache_operand": 0,  # has tests of its own
    "compute_root": 0,  # at the end of these schedules: test_root_and_places.py
    "factor_out": 0,  # sums in the random programs share no factors
    "online_softmax": 0,  # nor is one of them a softmax
    "split": 5,
    "reorder": 5,
    "fuse": 2,
    "compute_at": 3,
    "reverse_compute_at": 2,
    "decompose_reduction": 2,
}

NAMES = [name for name in vars(Schedule) if name in PRIMITIVES]
"""In the order of the methods: the recorded numbers stand for schedules drawn in this order."""


@dataclasses.dataclass
class Tally:
    tried: Counter[str] = dataclasses.field(default_factory=Counter)
    applied: Counter[str] = dataclasses.field(default_factory=Counter)
    reasons: Counter[str] = dataclasses.field(default_factory=Counter)


def random_schedule(number: int, tally: Tally) -> Schedule:
    func, _, _ = program(number % PROGRAMS)
    r = random.Random(1000 + number)
    s = Schedule(func, r)
    for name in r.choices(NAMES, [WEIGHTS.get(name, 1) for name in NAMES], k=STEPS):
        try:
            step = propose(name, s, r)
        except LookupError:
            continue
        tally.tried[name] += 1
        try:
            s.apply(step)
        except ScheduleError as error:
            tally.reasons[f"{name}: {error.what} ({error.why})"] += 1
        else:
            tally.applied[name] += 1
    return s


def watches_races(s: Schedule) -> bool:
    """Whether memory is watched while the schedule runs.

    A later step may have moved a block out of a parallel loop, which leaves work that is done twice; and only
    parallel loops get private buffers before lowering for a GPU.
    """
    if any(item.kind is ForKind.BOUND for item in s.program.loops.values()):
        return False
    try:
        check_schedule(s.func)
    except ScheduleError:
        return False
    return True


def check(number: int, s: Schedule) -> None:
    func, inputs, expected = program(number % PROGRAMS)
    output = func.params[-1].name
    try:
        placed = place_allocations(s.func)
        result = interpret(placed, inputs, shuffle=number, races=watches_races(s))[output]
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    except Exception as error:
        error.add_note(f"schedule {number}\n{s.trace.to_json()}\n{print_func(s.func)}")
        raise
    again = replay(Trace.from_json(s.trace.to_json()), func)
    assert again.func == s.func
    assert again.trace == s.trace


@pytest.fixture(scope="module")
def tally() -> Tally:
    return Tally()


@pytest.mark.sample(2)
@pytest.mark.parametrize("first", range(0, SCHEDULES, 50))
def test_results_are_those_of_the_unscheduled_program(first: int, tally: Tally) -> None:
    for number in range(first, first + 50):
        check(number, random_schedule(number, tally))


@pytest.mark.parametrize("number", ONCE_WRONG)
def test_schedules_that_were_wrong_once(number: int) -> None:
    check(number, random_schedule(number, Tally()))


@pytest.mark.parametrize("number", [717, 1371])
def test_blocks_have_no_global_memory_to_themselves(number: int) -> None:
    with pytest.raises(ScheduleError, match=r"iterations of .* write the same elements"):
        check_schedule(random_schedule(number, Tally()).func)


def test_most_sampled_primitives_apply(tally: Tally) -> None:
    if not tally.tried:
        pytest.skip("counts what the test before it drew")
    share = tally.applied.total() / tally.tried.total()
    assert share >= MUST_APPLY, (share, tally.reasons.most_common(10))


def test_every_primitive_was_applied(tally: Tally) -> None:
    if not tally.tried:
        pytest.skip("counts what the test before it drew")
    drawn = set(PRIMITIVES) - {
        "tensorize",
        "cache_operand",
        "factor_out",
        "online_softmax",
        "compute_root",
    }  # with tests of their own
    assert set(tally.applied) >= drawn


def test_sampling_steps_are_primitives_too() -> None:
    assert any(issubclass(item, Sampling) for item in PRIMITIVES.values())
