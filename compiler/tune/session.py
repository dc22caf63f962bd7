"""The search over a network: which kernel next, candidates, measurement, records, and the tuned library.

    untuned library     what each kernel takes in the network                 network.py
    until it ends       a kernel by its predicted gain                        strategies/tasks.py
                        candidates of it                                      strategies/
                        built, checked, timed                                 measure/
                        kept as records                                       database/
    tuned library       with each kernel's best, in turns with the untuned    finish.py

Here is the loop in the middle; `tuner.py` makes a report of a request. Who watches hears of records when they
are kept.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from compiler.core.process import deferred_signals
from compiler.schedule.chooser import AnalyticChooser
from compiler.stages.tuned import Decisions
from compiler.stages.workload import Workload
from compiler.targets import Target
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.database.store import Database, now
from compiler.tune.environment import differences
from compiler.tune.measure.measurer import Measurer
from compiler.tune.network import NetworkKernel
from compiler.tune.progress import KernelSearch
from compiler.tune.record import DEFAULT_NOTE, OK, PREDICTED_NOTE, Environment, Measured, Record
from compiler.tune.report import Budget, TuneState
from compiler.tune.strategies.strategy import Strategy
from compiler.tune.strategies.tasks import TaskScheduler


class Callbacks(Protocol):
    """Who watches a search: every method is called in the thread that searches, after records are kept."""

    def on_record(self, record: Record) -> None:
        """A candidate was tried."""
        ...

    def on_batch(self, state: TuneState) -> None:
        """A batch of candidates was tried."""
        ...


@dataclass(slots=True)
class Search:
    """Looks for schedules of the kernels of a network until a budget is spent.

    kernels: what is searched, by importance or not; others of the network are no part of it. measurer: tries
    candidates. database: keeps what was tried; None keeps it nowhere. whole: milliseconds of all kernels of
    the untuned library in an inference.
    """

    kernels: Sequence[KernelSearch]
    strategies: Sequence[Strategy]
    scheduler: TaskScheduler
    measurer: Measurer
    environment: Environment
    database: Database | None
    budget: Budget
    whole: float
    watching: Sequence[Callbacks] = ()
    trials: int = 0
    started: float = field(default_factory=time.monotonic)
    ended: str = ""

    def run(self) -> None:
        """Search; an interrupt ends it, and what was measured until then is kept."""
        with _interrupts_raise():
            try:
                while not self.ended:
                    self._step()
            except KeyboardInterrupt:
                self.ended = "interrupted"

    @property
    def seconds(self) -> float:
        """Wall seconds since it began."""
        return time.monotonic() - self.started

    def _step(self) -> None:
        """A batch of one kernel, or the end."""
        if self.budget.seconds is not None and self.seconds >= self.budget.seconds:
            self.ended = "time"
        elif self.budget.trials is not None and self.trials >= self.budget.trials:
            self.ended = "trials"
        elif (number := self.scheduler.next()) is None:
            self.ended = "little left to gain"
        else:
            left = self.budget.trials - self.trials if self.budget.trials is not None else BATCH
            found = self.strategies[number].propose(min(BATCH, left))
            if found:
                self._try(number, found)
            else:
                self.scheduler.tasks[number].exhausted = True
            self._refusals(number)

    def _try(self, number: int, candidates: Sequence[KernelCandidate]) -> None:
        """Measure candidates of a kernel, keep what came of them, and let all hear of it."""
        search, strategy = self.kernels[number], self.strategies[number]
        measured = self.measurer.measure(candidates)
        pairs = list(zip(candidates, measured, strict=True))
        default = search.default.program
        records = [
            record_of(
                one,
                result,
                self.environment,
                _notes(strategy.expected(one), is_default=one.program == default),
            )
            for one, result in pairs
        ]
        with deferred_signals():  # else an interrupt's report leaves out what was kept
            self._keep(search.kernel, records)
            for record in records:
                search.add(record)
            self.trials += len(records)
        for candidate, result in pairs:
            strategy.learn(candidate, result)
        task = self.scheduler.tasks[number]
        task.add(search.ratio * task.seconds)
        best = search.ratio
        self._tell(records, f"{search.kernel.name}: {len(records)} tried, best {100 * (1 - best):.1f} % less")

    def _refusals(self, number: int) -> None:
        """Keep what the rules offered and no kernel came of."""
        search, space = self.kernels[number], self.strategies[number].space
        refused = [
            Record.of(search.key, one.decisions, "", "", one.measured, self.environment, now())
            for one in space.take_rejections()
        ]
        if refused:
            self._keep(search.kernel, refused)
            for record in refused:
                search.add(record)
            self._tell(refused, "")

    def _keep(self, kernel: NetworkKernel, records: Sequence[Record]) -> None:
        if self.database is not None:
            self.database.add(records, [kernel.workload])

    def _tell(self, records: Iterable[Record], event: str) -> None:
        for watcher in self.watching:
            for record in records:
                watcher.on_record(record)
            if event:
                watcher.on_batch(self.state(event))

    def state(self, event: str) -> TuneState:
        """How far it has come."""
        left = None if self.budget.seconds is None else max(0.0, self.budget.seconds - self.seconds)
        saved = sum((1.0 - one.ratio) * one.ms for one in self.kernels)
        return TuneState(
            kernels=tuple(one.row(self.whole) for one in self.kernels),
            predicted=1.0 - saved / self.whole if self.whole else 1.0,
            trials=self.trials,
            seconds=self.seconds,
            seconds_left=left,
            event=event,
            untuned_ms=self.whole,
        )


@contextmanager
def _interrupts_raise() -> Iterator[None]:
    """Let an interrupt end the search only: a program may have a handler that ends all it starts after it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


BATCH = 12
"""Candidates of a kernel that are measured together: a process has to start for them. Of the first ones of a
kernel one is its default schedule."""


def record_of(
    candidate: KernelCandidate,
    measured: Measured,
    environment: Environment,
    notes: Mapping[str, str] | None = None,
) -> Record:
    """The record of a candidate."""
    return Record.of(
        candidate.workload.key,
        candidate.decisions,
        candidate.program,
        candidate.trace.to_json() if measured.status == OK else "",
        measured,
        environment,
        now(),
        notes or {},
    )


def _notes(expected: float | None, *, is_default: bool) -> dict[str, str]:
    """What a record says beside decisions and times."""
    return {
        **({DEFAULT_NOTE: "1"} if is_default else {}),
        **({PREDICTED_NOTE: f"{expected:.6g}"} if expected is not None else {}),
    }


def kernel_search(kernel: NetworkKernel, target: Target, ms: float) -> KernelSearch:
    """The search for one kernel, before anything was tried."""
    return KernelSearch(kernel, make_candidate(kernel.workload, target, AnalyticChooser()), ms)


def known_records(
    search: KernelSearch, database: Database, environment: Environment, *, trust: bool
) -> list[Record]:
    """Records of a kernel that count as measured here: by these rules and in this environment (`trust`: any).

    Rules that are others may make another kernel of the same decisions, which nobody has checked.
    """
    found = database.tried(search.key)
    same = [one for one in found if one.environment.tk == environment.tk]
    return [one for one in same if trust or not differences(environment, one.environment)]


def first_guesses(workload: Workload, database: Database) -> list[Decisions]:
    """Decisions to begin with: the best ones of the workload anywhere, then those of what is most like it."""
    own = database.top(workload.key, _OWN_GUESSES)
    alike = [one.record for one in database.related(workload, _ALIKE_GUESSES) if one.relation != "exact"]
    return [one.decisions for one in (*own, *alike)]


_OWN_GUESSES, _ALIKE_GUESSES = 4, 3
