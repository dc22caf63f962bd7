"""Which kernel is tuned next: the one that promises most for the whole network.

Pure: what was measured comes in, the number of a task comes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

_RECENT, _WINDOW = 0.2, 3
"""Weight of what the last rounds gained, and how many those are; alpha and the backward window of the task
schedulers of Ansor and MetaSchedule. The rest has what an even decrease down to nothing would bring."""


@dataclass(slots=True)
class Task:
    """A kernel of the network, and how far its search is.

    calls: in one inference. seconds: of its default schedule. best: the least seconds known after each round
    of measurements. exhausted: its space has no more candidates.
    """

    name: str
    calls: float
    seconds: float
    best: list[float] = field(default_factory=list)
    exhausted: bool = False

    def add(self, seconds: float) -> None:
        """A round of measurements ended, of which this is the least; infinite where none succeeded."""
        self.best.append(min(seconds, self._least))

    @property
    def _least(self) -> float:
        return self.best[-1] if self.best else self.seconds

    @property
    def latency(self) -> float:
        """Seconds in one inference, with the best schedule so far."""
        return self.calls * self._least

    @property
    def gradient(self) -> float:
        """Seconds of an inference that a round may save: what tasks are ordered by; infinite at first.

        Hopeful where little was tried: it says more of where to look than of what will be found.
        """
        if not self.best:
            return math.inf
        return _RECENT * self._recent() + (1 - _RECENT) * self.latency / len(self.best)

    @property
    def predicted(self) -> float:
        """Seconds of an inference that the next round saves if it goes on as in the last ones.

        All of its time while it had too few rounds to tell.
        """
        return self._recent() if len(self.best) >= _WINDOW else self.latency

    def _recent(self) -> float:
        """What the last rounds saved on average."""
        curve = [self.seconds, *self.best]
        back = min(_WINDOW, len(self.best))
        return self.calls * (curve[-1 - back] - curve[-1]) / back


class TaskScheduler(Protocol):
    """Says whose turn it is; what was measured is added to its tasks."""

    tasks: Sequence[Task]

    def next(self) -> int | None:
        """The number of the task to go on with; None when it is time to end."""
        ...


@dataclass(slots=True)
class GradientScheduler:
    """The task with the steepest gradient, of those that still promise `min_gain`; each one once at first.

    min_gain: as a share of the latency of all tasks together; with 0 only exhausted spaces end the search.
    """

    tasks: Sequence[Task]
    min_gain: float = 0.0

    def next(self) -> int | None:
        """See `TaskScheduler`."""
        return max(_promising(self.tasks, self.min_gain), key=lambda n: self.tasks[n].gradient, default=None)


@dataclass(slots=True)
class RoundRobin:
    """One after the other, those left out that do not promise `min_gain` any more."""

    tasks: Sequence[Task]
    min_gain: float = 0.0

    def next(self) -> int | None:
        """See `TaskScheduler`."""
        return min(_promising(self.tasks, self.min_gain), key=lambda n: len(self.tasks[n].best), default=None)


def _promising(tasks: Sequence[Task], min_gain: float) -> list[int]:
    least = min_gain * latency(tasks)
    return [n for n, task in enumerate(tasks) if not task.exhausted and task.predicted >= least]


def latency(tasks: Sequence[Task]) -> float:
    """Predicted seconds of an inference, as far as it is these kernels'."""
    return sum(task.latency for task in tasks)
