"""Asynchronous copies: where they are started, closed, waited for; a wait that is missing shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.core.node import rewrite_nodes
from compiler.loops.interp import interpret
from compiler.loops.ir import (
    SHARED,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    Const,
    For,
    Func,
    Seq,
    Store,
    statements,
)
from compiler.schedule.chooser import AnalyticChooser, Option, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import Schedule
from tests.support.gpu import SM_70, TINY
from tests.support.kernels import lower_all, pack_inputs, run_flat
from tests.support.schedules import random_inputs
from tests.support.works import works_of
from tests.unit.schedule.test_gpu_rules import assert_close, product_of

WITH = replace(TINY, intrinsics=frozenset({"cp.async"}))


class Takes:
    """Takes the first tile with so many stages, by asynchronous copies; the cheapest option of all else."""

    def __init__(self, stages: int) -> None:
        self.stages = stages

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        if not name.endswith(".tile"):
            return min(options, key=lambda item: item.cost).value
        return next(item.value for item in options if item.value[5:] == (self.stages, 1))


def lowered(stages: int, shape: tuple[int, int, int] = (16, 16, 64)) -> tuple[Func, Schedule, Func]:
    func = product_of(*shape)
    schedule = schedule_func(func, {}, WITH, Takes(stages))
    return func, schedule, lower_all(schedule.func, WITH)


@pytest.mark.sample(2)
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_parts_arrive_while_others_are_multiplied(stages: int) -> None:
    func, schedule, flat = lowered(stages)
    found = list(statements(flat.body))
    assert [item.pending for item in found if isinstance(item, AsyncWait)] == [stages - 2]
    assert sum(isinstance(item, Barrier) for item in found) == 1
    assert sum(isinstance(item, AsyncCommit) for item in found) == stages, "one a round, in front and inside"
    inputs = random_inputs(func)
    assert_close(interpret(func, inputs), run_flat(schedule.func, flat, inputs, shuffle=1))
    interpret(flat, pack_inputs(schedule.func, inputs), races=True)


@pytest.mark.parametrize("shape", [(13, 16, 64), (16, 20, 64), (16, 16, 50)])
def test_zeros_are_copies_of_nothing(shape: tuple[int, int, int]) -> None:
    """No store, and no branch around it: where there is nothing to copy, it is a part of the copy."""
    func, schedule, flat = lowered(3, shape)
    found = list(statements(flat.body))
    assert any(isinstance(item, AsyncCopy) and not isinstance(item.where, Const) for item in found)
    assert not any(isinstance(item, Store) and item.buffer.scope == SHARED for item in found)
    inputs = random_inputs(func)
    assert_close(interpret(func, inputs), run_flat(schedule.func, flat, inputs, shuffle=1))


@pytest.mark.parametrize(
    ("graph", "tile"),
    [
        pytest.param("conv 3x3", (8, 8, 1, 1, 9, 3, 1), id="a part of the threads fetches weights"),
        pytest.param("deep conv", (8, 4, 1, 4, 4, 4, 1), id="rounds are channels of taps"),
    ],
)
def test_a_round_of_a_window_waits_once(graph: str, tile: tuple[int, ...]) -> None:
    """What is fetched for the next tap, and what is multiplied, are told apart: one barrier, one group."""
    func = [func for func, _ in works_of(graph, 4, joined=False)][:2][-1]
    schedule = schedule_func(func, {}, WITH, ReplayChooser({"conv.tile": tile}, AnalyticChooser()))
    flat = lower_all(schedule.func, WITH)
    loops = [item for item in statements(flat.body) if isinstance(item, For) and has_barrier(item)]
    (inner,) = [item for item in loops if not any(has_barrier(one) for one in below(item))]
    kinds = [type(item) for item in statements(inner.body)]
    assert (kinds.count(Barrier), kinds.count(AsyncWait), kinds.count(AsyncCommit)) == (1, 1, 1)
    inputs = random_inputs(func)
    assert_close(interpret(func, inputs), run_flat(schedule.func, flat, inputs, shuffle=1))
    interpret(flat, pack_inputs(schedule.func, inputs), races=True)


def has_barrier(loop: For) -> bool:
    return any(isinstance(item, Barrier) for item in statements(loop.body))


def below(loop: For) -> list[For]:
    return [item for item in statements(loop.body) if isinstance(item, For)]


@pytest.mark.parametrize("stages", [2, 3])
def test_a_missing_wait_shows(stages: int) -> None:
    func, schedule, flat = lowered(stages)
    broken = rewrite_nodes(flat, lambda item: Seq(()) if isinstance(item, AsyncWait) else None)
    got = run_flat(schedule.func, broken, random_inputs(func), shuffle=1)
    assert any(np.isnan(array).any() for array in got.values())


def test_a_wait_for_too_few_shows() -> None:
    func, schedule, flat = lowered(3)
    late = rewrite_nodes(flat, lambda item: item.replace(pending=2) if isinstance(item, AsyncWait) else None)
    got = run_flat(schedule.func, late, random_inputs(func), shuffle=1)
    assert any(np.isnan(array).any() for array in got.values())


def test_targets_without_copies_store() -> None:
    """The trace may come from elsewhere: what asks for copies then stores, and means the same."""
    func, schedule, _ = lowered(3)
    flat = lower_all(schedule.func, SM_70)
    assert not any(isinstance(item, AsyncCopy | AsyncCommit | AsyncWait) for item in statements(flat.body))
    inputs = random_inputs(func)
    assert_close(interpret(func, inputs), run_flat(schedule.func, flat, inputs, shuffle=1))
