"""The random schedules of tests/unit/schedule, printed as OpenCL C and run by each driver for processors.

Schedules that bind loops to blocks or virtual threads are for GPUs and lowered as for one. What the compiler
refuses, with a reason in words, is not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler.core.diagnostics import BadInputError
from compiler.loops.ir import ForKind, Func
from compiler.loops.text import print_func
from compiler.schedule.primitives.base import ScheduleError
from compiler.schedule.races import check_schedule
from compiler.schedule.schedule import Schedule
from compiler.targets import Target, get_target
from tests.support.kernels import lower_all, pack_inputs, unpack_outputs
from tests.support.opencl_kernels import opened
from tests.support.random_programs import program
from tests.unit.schedule.test_random_schedules import (
    ONCE_WRONG,
    PROGRAMS,
    SCHEDULES,
    Tally,
    random_schedule,
)

CPU, GPU = get_target("opencl-cpu"), get_target("opencl-intel")
SIZE = 50
MUST_RUN = 0.8

GROUPS = [
    pytest.param(tuple(range(first, first + SIZE)), id=str(first), marks=[pytest.mark.slow] if first else [])
    for first in range(0, SCHEDULES, SIZE)
]


@pytest.mark.parametrize("numbers", [*GROUPS, pytest.param(ONCE_WRONG, id="once wrong")])
def test_results_are_those_of_the_unscheduled_program(
    numbers: Sequence[int], opencl_library: Path, opencl_driver: str
) -> None:
    for_cpu: dict[int, Schedule] = {}
    for_gpu: dict[int, Schedule] = {}
    for number in numbers:
        schedule = random_schedule(number, Tally())
        bound = any(loop.kind is ForKind.BOUND for loop in schedule.program.loops.values())
        (for_gpu if bound else for_cpu)[number] = schedule
    ran = check(for_cpu, CPU, opencl_library, opencl_driver)
    ran += check(for_gpu, GPU, opencl_library, opencl_driver)
    assert ran >= MUST_RUN * len(numbers)


def check(schedules: dict[int, Schedule], target: Target, library: Path, driver: str) -> int:
    """Run the schedules as one program; how many of them the compiler did not refuse."""
    lowered = {number: func for number, one in schedules.items() if (func := lower(one.func, target))}
    with opened(list(lowered.values()), target, library, driver) as kernels:
        for number, kernel in zip(lowered, kernels, strict=True):
            scheduled = schedules[number].func
            _, inputs, wanted = program(number % PROGRAMS)
            (got,) = unpack_outputs(scheduled, kernel(pack_inputs(scheduled, inputs))).values()
            np.testing.assert_allclose(
                got, wanted, rtol=1e-5, atol=1e-5, err_msg=f"schedule {number}\n{print_func(scheduled)}"
            )
    return len(lowered)


def lower(func: Func, target: Target) -> Func | None:
    """The program as the target's printer takes it; None when it is refused."""
    try:
        check_schedule(func)
        return lower_all(func, target.facts)
    except (ScheduleError, BadInputError):
        return None
