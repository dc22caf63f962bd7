"""The random schedules of tests/unit/schedule on devices: all on OpenCL for processors, some in the emulator.

Schedules that bind loops to blocks or virtual threads are for GPUs and lowered as for one. What the compiler
refuses, with a reason in words, is not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler.core.diagnostics import BadInputError
from compiler.loops.ir import ForKind, Func
from compiler.loops.text import print_func
from compiler.schedule.errors import ScheduleError
from compiler.schedule.races import check_schedule
from compiler.schedule.schedule import Schedule
from compiler.targets import Target, get_target
from tests.support.device_kernels import DeviceKernel, in_emulator, on_opencl
from tests.support.kernels import lower_all, pack_inputs, unpack_outputs
from tests.support.random_programs import program
from tests.unit.schedule.test_random_schedules import (
    ONCE_WRONG,
    PROGRAMS,
    SCHEDULES,
    Tally,
    random_schedule,
)

CPU, GPU = get_target("opencl-cpu"), get_target("opencl-intel")
SIZE = 25
MUST_RUN = 0.8
SAMPLE = range(0, SCHEDULES, 20)

GROUPS = [
    pytest.param(range(first, first + SIZE), id=str(first), marks=[pytest.mark.slow] if first else [])
    for first in range(0, SCHEDULES, SIZE)
]


@pytest.mark.sample(2, each=("numbers", "opencl_driver"))
@pytest.mark.parametrize("numbers", [*GROUPS, pytest.param(ONCE_WRONG, id="once wrong")])
def test_on_opencl(numbers: Sequence[int], opencl_library: Path, opencl_driver: str) -> None:
    drawn = {number: random_schedule(number, Tally()) for number in numbers}
    for_gpus = {number: one for number, one in drawn.items() if is_bound(one)}
    for_cpus = {number: one for number, one in drawn.items() if number not in for_gpus}
    ran = 0
    for target, schedules in ((CPU, for_cpus), (GPU, for_gpus)):
        lowered = lower(schedules, target)
        with on_opencl(list(lowered.values()), target, opencl_library, opencl_driver) as kernels:
            assert_same(schedules, dict(zip(lowered, kernels, strict=True)))
        ran += len(lowered)
    assert ran >= MUST_RUN * len(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cuda-nvidia", "rocm-amd"])
def test_in_the_emulator(name: str) -> None:
    target = get_target(name)
    schedules = {number: random_schedule(number, Tally()) for number in SAMPLE}
    lowered = lower(schedules, target)
    assert_same(schedules, dict(zip(lowered, in_emulator(list(lowered.values()), target), strict=True)))
    assert len(lowered) >= MUST_RUN * len(SAMPLE)


def is_bound(schedule: Schedule) -> bool:
    return any(loop.kind is ForKind.BOUND for loop in schedule.program.loops.values())


def lower(schedules: Mapping[int, Schedule], target: Target) -> dict[int, Func]:
    """The programs as the target's printer takes them, without those that are refused."""
    lowered = {}
    for number, schedule in schedules.items():
        try:
            check_schedule(schedule.func)
            lowered[number] = lower_all(schedule.func, target.facts)
        except (ScheduleError, BadInputError):
            continue
    return lowered


def assert_same(schedules: Mapping[int, Schedule], kernels: Mapping[int, DeviceKernel]) -> None:
    """Kernels compute what the programs compute that are not scheduled."""
    for number, kernel in kernels.items():
        scheduled = schedules[number].func
        _, inputs, wanted = program(number % PROGRAMS)
        (got,) = unpack_outputs(scheduled, kernel(pack_inputs(scheduled, inputs))).values()
        np.testing.assert_allclose(
            got, wanted, rtol=1e-5, atol=1e-5, err_msg=f"schedule {number}\n{print_func(scheduled)}"
        )
