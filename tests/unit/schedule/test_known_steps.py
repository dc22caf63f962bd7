"""Steps that other schedules took are not taken again, and lead to the same programs."""

from __future__ import annotations

import random
from functools import partial

import pytest

from compiler.schedule.chooser import RandomChooser
from compiler.schedule.errors import ScheduleError
from compiler.schedule.known_steps import KnownSteps
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target
from compiler.tune.candidate import make_candidate
from tests.support.tuned import product

FUNC = product(24, 32, 48).forms[0][1][0]


def test_candidates_are_the_same_with_known_steps() -> None:
    make, workload, known = make_candidate, product(24, 32, 48), KnownSteps()
    again = partial(make_candidate, known=known)
    for seed in range(6):
        alone, shared = (
            one(workload, get_target("cpu"), RandomChooser(random.Random(seed))) for one in (make, again)
        )
        assert (shared.program, shared.text) == (alone.program, alone.text)
        assert shared.trace.to_json() == alone.trace.to_json()
    assert known.found > 20


def test_a_step_is_known_of_the_program_that_it_was_taken_in() -> None:
    known = KnownSteps()
    first, second, wide = (
        Schedule(one, known=known) for one in (FUNC, FUNC, product(24, 64, 48).forms[0][1][0])
    )
    for one in (first, second, wide):
        loop = one.loops("product")[1]
        assert one.split(loop, (None, 8)) == one.loops("product")[1:3]
    assert known.found == 1
    assert first.func is second.func
    assert "0..8" in str(wide)
    assert str(wide) != str(first)


def test_what_is_refused_is_refused_again() -> None:
    known = KnownSteps()
    for _ in range(2):
        with pytest.raises(ScheduleError, match="no loop"):
            Schedule(FUNC, known=known).split("none", (None, 8))
    assert known.found == 0


def test_so_many_steps_are_kept() -> None:
    known = KnownSteps(most=1)
    for size in (2, 4, 2):
        one = Schedule(FUNC, known=known)
        one.split(one.loops("product")[1], (None, size))
    assert known.found == 0
