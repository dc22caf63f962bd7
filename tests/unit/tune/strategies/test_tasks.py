"""Task schedulers on made-up curves."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from compiler.tune.strategies.choice import scheduler_for
from compiler.tune.strategies.tasks import GradientScheduler, RoundRobin, Task, TaskScheduler, latency


def run(scheduler: TaskScheduler, tasks: list[Task], curves: list[list[float]], rounds: int) -> list[int]:
    """Whose turn it was; each curve gives the least seconds of each round, its last for ever."""
    turns: list[int] = []
    while len(turns) < rounds and (number := scheduler.next()) is not None:
        curve, task = curves[number], tasks[number]
        task.add(curve[min(len(task.best), len(curve) - 1)])
        turns.append(number)
    return turns


def tasks_of(*rows: tuple[float, float]) -> list[Task]:
    return [Task(f"kernel {number}", calls, seconds) for number, (calls, seconds) in enumerate(rows)]


def test_each_task_has_a_turn_first() -> None:
    tasks = tasks_of((1, 9.0), (1, 0.1), (100, 1.0))
    assert sorted(run(GradientScheduler(tasks), tasks, [[9.0], [0.1], [1.0]], 3)) == [0, 1, 2]


def test_calls_and_seconds_weigh() -> None:
    tasks = tasks_of((1, 1.0), (10, 1.0), (1, 5.0))
    turns = Counter(run(GradientScheduler(tasks), tasks, [[1.0], [1.0], [5.0]], 32))
    assert turns[1] > turns[2] > turns[0]
    assert turns[1] == pytest.approx(2 * turns[2], abs=2), "an even decrease, halved with twice the rounds"


def test_what_gains_is_gone_on_with() -> None:
    tasks = tasks_of((1, 1.0), (1, 1.0))
    falling = [0.9 - 0.02 * n for n in range(30)]
    turns = Counter(run(GradientScheduler(tasks, 0.001), tasks, [[1.0], falling], 30))
    assert turns[1] > 2 * turns[0]


def test_a_gain_too_small_ends_it() -> None:
    tasks = tasks_of((2, 1.0), (1, 1.0), (1, 0.001))
    curves = [[0.9, 0.8, 0.7, 0.6], [1.0], [0.001]]
    turns = Counter(run(GradientScheduler(tasks, 0.01), tasks, curves, 100))
    assert turns[0] == 4 + 3, "three rounds say that nothing more comes"
    assert turns[1] == 3
    assert turns[2] == 0, "all of its time is less than what would be a gain"
    assert latency(tasks) == pytest.approx(2 * 0.6 + 1.0 + 0.001)


def test_without_a_least_gain_it_goes_on() -> None:
    tasks = tasks_of((1, 1.0))
    assert len(run(GradientScheduler(tasks), tasks, [[1.0]], 50)) == 50


@pytest.mark.parametrize("kind", [GradientScheduler, RoundRobin])
def test_exhausted_spaces_are_left_out(kind: type[GradientScheduler | RoundRobin]) -> None:
    tasks = tasks_of((9, 9.0), (1, 1.0))
    tasks[0].exhausted = True
    assert set(run(kind(tasks), tasks, [[9.0], [1.0]], 5)) == {1}
    tasks[1].exhausted = True
    assert kind(tasks).next() is None


def test_round_robin() -> None:
    tasks = tasks_of((1, 9.0), (1, 1.0), (7, 1.0))
    assert run(RoundRobin(tasks), tasks, [[9.0], [1.0], [1.0]], 7) == [0, 1, 2, 0, 1, 2, 0]


def test_rounds_without_a_success_keep_the_default() -> None:
    task = Task("kernel", 3, 2.0)
    task.add(math.inf)
    assert task.latency == 6.0
    task.add(1.0)
    task.add(1.5)
    assert task.best == [2.0, 1.0, 1.0]


def test_which_strategy_takes_turns() -> None:
    tasks = tasks_of((1, 1.0))
    assert scheduler_for("evolution", tasks, 0.01) == GradientScheduler(tasks, 0.01)
    assert scheduler_for("replay", tasks, 0.01) == RoundRobin(tasks, 0.01)
