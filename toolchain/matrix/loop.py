"""A run: which trials are to be made, several at a time where nothing is timed, and what becomes of them."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from compiler import (
    Progress,
    TkError,
    disk,
    load_settings,
    private_directory,
    remove_abandoned_directories,
    silent,
)
from toolchain.exclusive import exclusively
from toolchain.matrix.attempt import Attempt, MadeModel, Workshop, begin, make_model, planned_record
from toolchain.matrix.keys import Elsewhere, Surroundings, finished_record, key_of_result, trial_key
from toolchain.matrix.models import ModelDigests, TrialModel
from toolchain.matrix.plan import MatrixPlan, PlanSource
from toolchain.matrix.runs import PlannedCell, ProgressFile, RunDocument, RunStore, expected_seconds
from toolchain.matrix.steps import THIS_TK
from toolchain.matrix.trials import Machine, Trial, planned_trials, why_not
from toolchain.records.record import Record, State
from toolchain.records.store import RecordStore, new_id

Told = Callable[[Record, str], object]
"""Gets a record and the title of its trial."""
_CELLS_AT_ONCE = 4  # trials for each that runs at a time, before those of them that are timed are


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A trial with its key, the record that makes it needless, and why it cannot be made; either is rare."""

    trial: Trial
    key: str
    why_not: str
    found: Record | None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that its record may have."""
        return tuple(dict.fromkeys((self.key, key_of_result(self.key, self.trial, State.TIMED_OUT))))


@dataclass(frozen=True, slots=True)
class Agenda:
    """What a plan comes to on this machine, beside the records that are there."""

    trials: tuple[PlannedTrial, ...]
    around: Surroundings
    records: tuple[Record, ...]
    title: str = ""
    plan: str = ""

    @property
    def to_make(self) -> tuple[PlannedTrial, ...]:
        """The trials that have no record that counts."""
        return tuple(one for one in self.trials if one.found is None)


def agenda_of(
    plan: MatrixPlan,
    source: PlanSource,
    store: RecordStore,
    *,
    again: bool = False,
    machine: Machine | None = None,
    cluster: Elsewhere | None = None,
) -> Agenda:
    """Every trial of a plan, and whether it has a record already; raises as `planned_trials` does.

    again: records that are there do not count. cluster: for places that are workers'.
    """
    around = Surroundings(machine or Machine(), cluster)
    devices = cluster.devices if cluster else ()
    trials = planned_trials(plan, source, around.machine)
    digests = ModelDigests(load_settings().cache_dir / "matrix" / "digests.json")
    records = store.read()
    latest = {} if again else {record.key: record for record in records if record.key}
    planned = []
    for trial in trials:
        reason = why_not(trial.place, around.machine, devices)
        key = trial_key(trial, digests, around)
        planned.append(PlannedTrial(trial, key, reason, finished_record(key, trial, latest, reason)))
    digests.save()
    return Agenda(tuple(planned), around, records, plan.title, str(source.path or ""))


@dataclass(slots=True)
class MatrixRun:
    """Makes the trials of an agenda. jobs: at the same time, but for those that are timed.

    titles: of the trials that were made, by the identifiers of their records.
    """

    agenda: Agenda
    store: RecordStore
    jobs: int
    told: Told
    progress: Progress = silent
    tk: Sequence[str] = THIS_TK
    again: bool = False
    id: str = field(default_factory=new_id)
    made: list[Record] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)

    def make(self) -> list[Record]:
        """Make what is to be made; each record is kept as soon as it is known, then `told`."""
        todo = self.agenda.to_make
        if not todo:
            return []
        runs = RunStore(self.store.directory)
        cells = [PlannedCell(title=one.trial.title, keys=one.keys) for one in self.agenda.trials]
        runs.begin(RunDocument(id=self.id, started=datetime.now(UTC), title=self.agenda.title,
                               plan=self.agenda.plan, cells=tuple(cells)))  # fmt: skip
        remove_abandoned_directories("tk")
        with private_directory("tk-matrix") as folder:
            cores = load_settings().jobs
            shop = Workshop(folder, self.agenda.around, self.id, self.tk, max(1, cores // self.jobs))
            _Floor(self, shop, runs, _Clock(self, runs, todo)).make(todo)
        return self.made


class _Clock:
    """Tells how far a run has come, and for how long still."""

    def __init__(self, run: MatrixRun, runs: RunStore, todo: Sequence[PlannedTrial]) -> None:
        self._run, self._total = run, len(todo)
        self._file = ProgressFile(runs, run.id, len(todo))
        targets = {one.trial.title: one.trial.place.target for one in todo}
        self._expected = expected_seconds(targets, run.agenda.records)
        self._left = dict.fromkeys(targets, 0.0) | self._expected
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def began(self, title: str) -> None:
        """A trial began."""
        with self._lock:
            self._file.began(title)
            self._tell()

    def paused(self, title: str) -> None:
        """A trial waits until it is timed."""
        with self._lock:
            self._file.ended(title)
            self._tell()

    def ended(self, title: str) -> None:
        """A trial has its record."""
        with self._lock:
            self._file.ended(title)
            self._left.pop(title, None)
            self._tell()

    def _tell(self) -> None:
        done = self._total - len(self._left)
        self._run.progress("", done, self._total)
        with contextlib.suppress(TkError):  # a full disk: the records themselves say so
            self._file.tell(done, self._seconds_left(done))

    def _seconds_left(self, done: int) -> float | None:
        if done:
            return (time.monotonic() - self._started) / done * len(self._left)
        return sum(self._left.values()) / self._run.jobs if self._expected else None


@dataclass(slots=True)
class _Floor:
    """Where the trials of a run are made: models one after the other, some trials at a time."""

    run: MatrixRun
    shop: Workshop
    runs: RunStore
    clock: _Clock
    _models: dict[TrialModel, MadeModel] = field(default_factory=dict)
    _locks: dict[TrialModel, threading.Lock] = field(default_factory=dict)
    _keeping: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def make(self, todo: Sequence[PlannedTrial]) -> None:
        """Make trials here and, at the same time, on the workers of the cluster: each has its own device."""
        cluster = self.shop.around.cluster
        away = [one for one in todo if one.trial.place.worker and not one.why_not]
        here = [one for one in todo if one not in away]
        if cluster is None or not away:
            self._make_here(here)
            return
        with ThreadPoolExecutor(max(1, sum(cluster.devices.values()))) as pool:
            try:
                waiting = [pool.submit(self._make_away, one, cluster) for one in away]
                self._make_here(here)
                for future in waiting:
                    future.result()
            except BaseException:
                self._stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _make_away(self, one: PlannedTrial, cluster: Elsewhere) -> None:
        self.clock.began(one.trial.title)
        planned = planned_record(one.trial, self.shop, one.key)
        try:
            made = cluster.make(one.trial)
        except TkError as error:
            record = planned.model_copy(update={"why": f"{error.what}: {error.why}"})
        else:
            subject = planned.subject.model_copy(update={"model_sha256": made.subject.model_sha256})
            own = {name: getattr(planned, name) for name in ("id", "run", "when", "command")}
            own |= {"subject": subject, "key": key_of_result(one.key, one.trial, made.state)}
            record = made.model_copy(update=own)
        if not self._stopped:
            self._keep(record, one.trial.title)

    def _make_here(self, todo: Sequence[PlannedTrial]) -> None:
        with ThreadPoolExecutor(self.run.jobs) as pool:
            try:
                for number, some in enumerate(_by_models(todo, _CELLS_AT_ONCE * self.run.jobs)):
                    self._make_some(pool, some, number)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _make_some(self, pool: ThreadPoolExecutor, some: Sequence[PlannedTrial], number: int) -> None:
        folder = self.shop.folder / str(number)
        self._locks = {one.trial.model: threading.Lock() for one in some}
        check = functools.partial(self._check, folder=folder)
        futures = {pool.submit(check, one, place=place): one for place, one in enumerate(some)}
        waiting: list[Attempt] = []
        for future in as_completed(futures):
            done = future.result()
            if isinstance(done, Attempt) and done.awaits_bench:
                self.runs.keep_pending(done.record)
                waiting.append(done)
                self.clock.paused(done.trial.title)
            else:
                self._keep(done, futures[future].trial.title)
        for attempt in sorted(waiting, key=lambda one: one.trial.title):
            self.clock.began(attempt.trial.title)
            attempt.bench()
            self._keep(attempt, attempt.trial.title)
            self.runs.drop_pending(attempt.key)
        disk.remove_tree(folder)
        self._models.clear()

    def _check(self, one: PlannedTrial, folder: Path, place: int) -> Attempt | Record:
        """All of a trial but its timing; in a thread of the pool."""
        if one.why_not:
            return planned_record(one.trial, self.shop, one.key, why=one.why_not)
        self.clock.began(one.trial.title)
        model = self._model(one.trial, folder)
        attempt = begin(one.trial, self.shop, model, one.key, folder / str(place))
        known = None if self.run.again else self.runs.pending(one.key)
        if known is not None:
            attempt.record = known.model_copy(update={"run": self.run.id})
            if attempt.awaits_bench:
                return attempt
        attempt.check()
        return attempt

    def _model(self, trial: Trial, folder: Path) -> MadeModel:
        with self._locks[trial.model]:
            if trial.model not in self._models:
                place = folder / "models" / str(len(self._models))
                self._models[trial.model] = make_model(trial.model, place, trial.place.limits, self.shop)
            return self._models[trial.model]

    def _keep(self, done: Attempt | Record, title: str) -> None:
        record = done.record if isinstance(done, Attempt) else done
        with self._keeping:
            self.run.store.append(record)
            self.run.made.append(record)
            self.run.titles[record.id] = title
        if isinstance(done, Attempt):
            disk.remove_tree(done.library.parent)
        self.clock.ended(title)
        self.run.told(record, title)


def _by_models(todo: Sequence[PlannedTrial], fewest: int) -> Iterator[list[PlannedTrial]]:
    """Trials in groups: those of one model stay together, so that it is made once and removed."""
    group: list[PlannedTrial] = []
    for one in todo:
        if len(group) >= fewest and one.trial.model != group[-1].trial.model:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def alone_in(store: RecordStore) -> contextlib.AbstractContextManager[bool]:
    """One run at a time in a store: two would disturb each other's timing and make trials twice."""
    return exclusively(
        "matrix",
        str(store.directory.absolute()),
        waiting="another `tk matrix run` works in this store: waiting",
    )
