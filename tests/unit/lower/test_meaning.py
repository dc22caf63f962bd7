"""Every lowering pass keeps the meaning: the interpreter runs the program before and after each."""

from __future__ import annotations

import random

import numpy as np
import pytest

from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import Func
from compiler.render.cstyle import render_kernel
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target
from tests.support.kernels import lower_steps, run_flat
from tests.support.programs import PROGRAMS, matmul, random_schedule, vectorised
from tests.support.schedules import random_inputs

FACTS = {name: get_target(f"cpu:{name}").facts for name in ("x86-64-v4", "x86-64-v3", "x86-64")}


def assert_keeps_meaning(before: Func, scheduled: Func, facts_name: str) -> Func:
    inputs = random_inputs(before)
    wanted = interpret(before, inputs)
    lowered = scheduled
    for name, lowered in lower_steps(scheduled, FACTS[facts_name]):
        got = run_flat(scheduled, lowered, inputs, shuffle=1)
        for output, values in wanted.items():
            np.testing.assert_allclose(
                got[output], values, rtol=1e-5, atol=1e-5, err_msg=f"{output} after {name}"
            )
    return lowered


@pytest.mark.sample(2, each=("facts",))
@pytest.mark.parametrize("facts", FACTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_unscheduled(program: str, facts: str) -> None:
    func = PROGRAMS[program]()
    assert_keeps_meaning(func, func, facts)


@pytest.mark.parametrize("program", PROGRAMS)
def test_innermost_loop_vectorised(program: str) -> None:
    func = PROGRAMS[program]()
    assert_keeps_meaning(func, vectorised(func), "x86-64-v3")


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(40))
def test_random_schedules(seed: int) -> None:
    source = random.Random(seed)
    func = PROGRAMS[source.choice(list(PROGRAMS))]()
    scheduled = random_schedule(func, source)
    assert_keeps_meaning(func, scheduled, source.choice(list(FACTS)))


@pytest.mark.sample(3)
@pytest.mark.parametrize("facts", FACTS)
def test_a_kernel_that_is_unrolled_too_far_stays_short(facts: str) -> None:
    """16 x 16 registers, 16 steps for each: 4,096 products."""
    func = matmul(16, 64, 16)
    schedule = Schedule(func)
    row, column, step = schedule.loops("C")
    left, lane = schedule.split(column, (None, 4))
    schedule.reorder(row, left, step, lane)
    schedule.vectorize(lane)
    for loop in (row, left, step):
        schedule.unroll(loop)
    lowered = assert_keeps_meaning(func, schedule.func, facts)
    target = get_target(f"cpu:{facts}")
    text = render_kernel(lowered, 0, target.vocabulary, target.facts).text
    assert 200 < text.count("\n") < 3000


@pytest.mark.parametrize("tiled_too", [False, True])
def test_a_reduction_that_the_block_around_carries_on_starts_once(tiled_too: bool) -> None:
    func = matmul(2, 6, 4)
    schedule = Schedule(func)
    row, column, step = schedule.loops("C")
    outer, inner = schedule.split(step, (None, 2))
    left, right = schedule.split(column, (None, 3))
    schedule.reorder(row, outer, left, right, inner)
    schedule.blockize(right if tiled_too else inner)
    assert_keeps_meaning(func, schedule.func, "x86-64-v3")


def test_a_pipelined_reduction_starts_once() -> None:
    b = Builder("f")
    x = b.input("x", (4, 6))
    twice = b.compute("twice", (4, 6), lambda i, j: x[i, j] * 2.0)
    func = b.finish([b.reduce("y", (4,), (6,), lambda i, r: twice[i, r])])
    schedule = Schedule(func)
    step = schedule.split(schedule.loops("y")[-1], (None, 3))[0]
    schedule.compute_at("twice", step)
    schedule.software_pipeline(step, (0, 1))
    assert_keeps_meaning(func, schedule.func, "x86-64-v3")
