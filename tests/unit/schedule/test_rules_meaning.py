"""Whatever a chooser decides, the rules write a schedule that computes what the function says.

The oracle is the interpreter on the function before scheduling. Programs are compared after scheduling and
after lowering; unused memory is NaN, and parallel loops run in shuffled order.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from dataclasses import replace

import numpy as np
import pytest

from compiler.core.target import TargetFacts
from compiler.loops.interp import interpret
from compiler.loops.ir import For, ForKind, Func
from compiler.loops.verify import verify_func
from compiler.lower.place_allocations import place_allocations
from compiler.schedule import rules
from compiler.schedule.chooser import AnalyticChooser, Chooser, RandomChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import Schedule, replay
from compiler.schedule.trace import Trace
from tests.support.kernels import lower_all, run_flat
from tests.support.schedules import Array, random_inputs, run_logical
from tests.support.sketch import NARROW
from tests.support.works import GRAPHS, works_of

FACTS = {4: NARROW, 16: replace(NARROW, vector_bits=512, vector_registers=32)}
SEEDS = 5


@pytest.fixture(autouse=True)
def nothing_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share even the smallest work."""
    for info in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}."):
        module = importlib.import_module(info.name)
        if hasattr(module, "SMALL"):
            monkeypatch.setattr(module, "SMALL", 1)


def scheduled(name: str, lanes: int, chooser: Chooser) -> list[tuple[Func, Schedule]]:
    return [
        (func, schedule_func(func, layouts, FACTS[lanes], chooser)) for func, layouts in works_of(name, lanes)
    ]


def assert_close(wanted: dict[str, Array], got: dict[str, Array]) -> None:
    assert wanted.keys() == got.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name].reshape(array.shape), array, 1e-5, 1e-5, err_msg=name)


def assert_meaning(func: Func, schedule: Schedule, facts: TargetFacts) -> None:
    verify_func(schedule.func)
    inputs = random_inputs(func)
    wanted = interpret(func, inputs)
    assert_close(wanted, run_logical(schedule.func, inputs, shuffle=1))
    assert_close(wanted, run_flat(schedule.func, lower_all(schedule.func, facts), inputs, shuffle=2))


@pytest.mark.sample(5, each=("name",))
@pytest.mark.parametrize("lanes", FACTS)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_analytic_choice(name: str, lanes: int) -> None:
    for func, schedule in scheduled(name, lanes, AnalyticChooser()):
        assert_meaning(func, schedule, FACTS[lanes])


@pytest.mark.sample(19, each=("name",))
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", GRAPHS)
def test_any_point_of_the_design_space(name: str, seed: int) -> None:
    lanes = 16 if seed % 3 == 2 else 4
    for func, schedule in scheduled(name, lanes, RandomChooser(random.Random(f"{name} {seed}"))):
        assert_meaning(func, schedule, FACTS[lanes])


@pytest.mark.sample(5, each=("name",))
@pytest.mark.parametrize("name", GRAPHS)
def test_threads_do_not_touch_what_another_one_writes(name: str) -> None:
    for func, schedule in scheduled(name, 4, AnalyticChooser()):
        placed = place_allocations(schedule.func)  # what only lives in an iteration is its own from then on
        run_logical(placed, random_inputs(func), races=True)


@pytest.mark.sample(8, each=("name",))
@pytest.mark.parametrize("name", GRAPHS)
def test_the_trace_replays(name: str) -> None:
    for func, schedule in scheduled(name, 4, AnalyticChooser()):
        text = schedule.trace.to_json()
        assert replay(Trace.from_json(text), func).func == schedule.func


def test_threads_share_the_work() -> None:
    for name in ("conv 3x3", "deep odd groups", "softmax", "elementwise", "scan", "scatter"):
        for _, schedule in scheduled(name, 4, AnalyticChooser()):
            kinds = {item.kind for item in schedule.func.body.walk() if isinstance(item, For)}
            assert ForKind.PARALLEL in kinds


def test_the_oracle_sees_a_wrong_schedule() -> None:
    ((func, schedule),) = scheduled("dense", 4, AnalyticChooser())
    inputs = random_inputs(func)
    got = run_logical(schedule.func, {**inputs, "x0": inputs["x0"] + 1})
    with pytest.raises(AssertionError):
        assert_close(interpret(func, inputs), got)
