"""`tune_model`: a search from request to report; `search`: the same from Python in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from compiler.core.cache_space import cache_in_use, make_room
from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.core.files import copy_atomic, private_directory
from compiler.core.progress import Progress, silent
from compiler.core.units import counted
from compiler.loops.ir import SAMPLES, SYMBOLS
from compiler.reports import CompileOptions
from compiler.runtime.manifest import manifest_of
from compiler.schedule.known_steps import KnownSteps
from compiler.stages.compilation import Compilation
from compiler.stages.job import CompileJob
from compiler.stages.tuned import changed_decisions, no_records
from compiler.tune.candidate import make_candidate
from compiler.tune.database.store import Database
from compiler.tune.finish import TunedLibrary, finish
from compiler.tune.graph_tuner import GraphTuner, comparison_seconds
from compiler.tune.machine import TuningMachine, local_machine
from compiler.tune.measure.measurer import Measurer
from compiler.tune.network import BuiltLibrary, Network, NetworkKernel, kernels_of
from compiler.tune.progress import KernelSearch
from compiler.tune.record import Record
from compiler.tune.report import Budget, TunedKernel, TuneReport, TuneRequest
from compiler.tune.session import Callbacks, Search, first_guesses, kernel_search, known_records
from compiler.tune.settling import Settles, settle_order
from compiler.tune.strategies.choice import STRATEGIES, make_strategy, model_for, scheduler_for
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.strategy import Strategy
from compiler.tune.strategies.tasks import Task

_PROFILE_SECONDS = 1.0
_MOST_WEIGHTS = 64 << 20
"""Bytes of weights that candidates go through: more than the caches of a core's share hold."""
_FINAL_SHARE = 0.02
"""Of the time of a search: what each comparison of two libraries takes at the end."""


def search(
    model: Path,
    target: str | None = None,
    budget: Budget | None = None,
    *,
    output: Path | None = None,
    callbacks: Sequence[Callbacks] = (),
) -> TuneReport:
    """Tune the kernels of a model with defaults for all that is not said; raises as `tune_model` does.

    The tuned library goes to `output`, by default beside the model with the suffix `.so`.
    """
    options = CompileOptions(output or model.with_suffix(".so"), target)
    return tune_model(TuneRequest(model, options, budget=budget or Budget()), watching=callbacks)


def tune_model(
    request: TuneRequest, *, watching: Sequence[Callbacks] = (), progress: Progress = silent
) -> TuneReport:
    """Search for faster schedules of a model's kernels, and leave the tuned library.

    `watching` hears of every record and batch, in this thread; `progress` of what is done beside them.

    Raises UsageError for an unknown strategy or kernel, and what a compile, the database and the measurement
    of the target raise.
    """
    job = _job(request, progress)
    with _machine(request, job, progress) as machine:
        answering = machine.job.target.plugins.answering()
        with cache_in_use(job.settings.cache_dir), private_directory("tk-tune") as directory, answering:
            report = _Tuner(request, machine, directory, watching, progress).run()
    make_room(job.settings)
    return report


def tune_plan(request: TuneRequest, progress: Progress = silent) -> tuple[TunedKernel, ...]:
    """The kernels that a search would go through, with as many trials as are known; nothing is measured."""
    job = _job(request, progress)
    with (
        _machine(request, job, progress) as machine,
        cache_in_use(job.settings.cache_dir),
        private_directory("tk-tune") as directory,
    ):
        return _Tuner(request, machine, directory, (), progress).plan()


def _job(request: TuneRequest, progress: Progress) -> CompileJob:
    if request.strategy not in STRATEGIES:
        raise UsageError(
            f"unknown strategy `{request.strategy}`",
            where="--strategy",
            why=f"there are {', '.join(STRATEGIES)}",
            hint=did_you_mean(request.strategy, STRATEGIES),
        )
    if request.cluster is not None:
        request.cluster.check()
    job = CompileJob.of(request.model, request.options, progress)
    workers = request.workers or job.settings.jobs
    return replace(job, settings=replace(job.settings, jobs=workers))


@contextmanager
def _machine(request: TuneRequest, job: CompileJob, progress: Progress) -> Iterator[TuningMachine]:
    """Where the request wants candidates measured."""
    threads = request.threads or job.settings.threads
    if request.cluster is None:
        yield local_machine(job, threads)
        return
    from compiler.tune.cluster.machine import cluster_machine

    with cluster_machine(request.cluster, request.device_key, job, request.threads, progress) as machine:
        yield machine


class _Tuner:
    """One request on its way to a report."""

    def __init__(
        self,
        request: TuneRequest,
        machine: TuningMachine,
        directory: Path,
        watching: Sequence[Callbacks],
        progress: Progress,
    ) -> None:
        self._request, self._machine, self._job = request, machine, machine.job
        self._watching, self._progress = watching, progress
        job = self._job
        self._network = Network(
            job, directory, threads=machine.threads, seed=request.seed, timing=machine.timing
        )
        path = request.database or job.settings.tuning_db
        self._database = None if path is None else Database.open(path)
        self._environment = machine.environment
        self._model, self._without_model = model_for(request.strategy)
        self._known_steps = KnownSteps()

    def plan(self) -> tuple[TunedKernel, ...]:
        wanted = _wanted(self._network.build("untuned", no_records)[1], self._request.kernels)
        searches = [kernel_search(one, self._job.target, 0.0) for one in wanted.kernels]
        self._recall(searches)
        return tuple(one.row(0.0) for one in searches)

    def run(self) -> TuneReport:
        request, target = self._request, self._job.target
        original, compilation = self._network.build("untuned", no_records)
        tuner = GraphTuner(request, self._network, self._database, self._environment, self._progress)
        graph = tuner.decide(original, compilation)
        untuned, wanted = graph.library, _wanted(graph.compilation, request.kernels)
        self._progress("timing the untuned library", 0, 0)
        before = self._network.compare([untuned], _PROFILE_SECONDS, self._progress)
        times = {one.workload.key: before.ms[one.workload.key][0] for one in wanted.kernels}
        kernels = sorted(
            wanted.kernels, key=lambda one: -times[one.workload.key]
        )  # what counts most is first
        searches = [kernel_search(one, target, times[one.workload.key]) for one in kernels]
        known = self._recall(searches)
        strategies = [self._strategy(one, records) for one, records in zip(searches, known, strict=True)]
        measurer = self._measurer(untuned, searches)
        found = Search(
            searches,
            strategies,
            scheduler_for(request.strategy, [_task(one) for one in searches], request.budget.min_gain),
            measurer,
            self._environment,
            self._database,
            request.budget,
            sum(ms for (ms, *_) in before.ms.values()),
            self._watching,
        )
        found.run()
        seconds = comparison_seconds(_FINAL_SHARE * found.seconds)
        if isinstance(measurer, Settles):
            settle_order(searches, measurer, target, seconds, self._progress)
        finished = finish(self._network, untuned, searches, seconds, self._progress)
        if graph.best is not None:
            finished = tuner.judge(graph, original, finished, searches, seconds)
        self._withdraw(finished, searches)
        output = request.options.output
        copy_atomic(finished.library.path, output)
        warnings = (*finished.warnings, *wanted.warnings)
        report = self._report(found, finished, before.whole[0], sum(map(len, known)), warnings)
        default, taken = compilation.graph.decisions, graph.tuned.decisions
        changed = changed_decisions(default, taken) if taken and finished.library is not original else {}
        return replace(report, graph=changed, graph_tried=sum(not one.is_default for one in graph.records))

    def _strategy(self, search_of: KernelSearch, known: Sequence[Record]) -> Strategy:
        """What proposes candidates of a kernel, and does not propose again what was measured before."""
        workload, database = search_of.kernel.workload, self._database
        space = Space(workload, self._job.target, partial(make_candidate, known=self._known_steps))
        guesses = first_guesses(workload, database) if database is not None else []
        strategy = make_strategy(self._request.strategy, space, self._request.seed, guesses, self._model)
        for record in known:
            strategy.learn(record, record.measured)
        return strategy

    def _measurer(self, untuned: BuiltLibrary, searches: Sequence[KernelSearch]) -> Measurer:
        """What measures candidates, with as many weights between two runs as the network has.

        Times are scaled to the known ones of default schedules, so that they compare with those of records.
        """
        size = min(_MOST_WEIGHTS, int(manifest_of(untuned.path)["constant_bytes"]))
        pace = {one.key: one.default_seconds for one in searches if one.default_seconds}
        return self._machine.measurer(self._request.seed, size, pace)

    def _recall(self, searches: Sequence[KernelSearch]) -> list[list[Record]]:
        """Records of the database that count as measured here, by kernel; the searches hear of them."""
        database, trust = self._database, self._request.trust
        if database is None:
            return [[] for _ in searches]
        known = [known_records(one, database, self._environment, trust=trust) for one in searches]
        for search_of, records in zip(searches, known, strict=True):
            for record in records:
                search_of.add(record)
        return known

    def _withdraw(self, finished: TunedLibrary, searches: Sequence[KernelSearch]) -> None:
        """Let `tk compile` use the tuned library's records, and none that did not gain in the network."""
        reasons = dict(finished.withdrawn)
        for one in searches:
            if not one.kept:
                reasons |= {record.id: one.reason or "not in the network" for record in one.faster}
        if self._database is None:
            return
        self._database.restore(one.record for one in finished.library.kernels if one.record)
        for reason in dict.fromkeys(reasons.values()):
            self._database.withdraw([key for key, why in reasons.items() if why == reason], reason)

    def _report(
        self, found: Search, finished: TunedLibrary, untuned_ms: float, known: int, warnings: tuple[str, ...]
    ) -> TuneReport:
        compared = finished.compared
        facts = self._job.target.facts
        return TuneReport(
            library=self._request.options.output,
            target=facts.name,
            arch=facts.arch,
            threads=self._machine.threads or 0,
            kernels=tuple(one.row(found.whole) for one in found.kernels),
            untuned_ms=untuned_ms if compared is None else compared.whole[0],
            tuned_ms=untuned_ms if compared is None else compared.whole[-1],
            difference=None if compared is None else compared.difference,
            ended=found.ended,
            seconds=found.seconds,
            measured=found.trials,
            known=known,
            database=None if self._database is None else self._database.path,
            warnings=(*warnings, *self._without_model, *self._machine.warnings),
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The kernels that are searched; left: how many are not, as their sizes are free."""

    kernels: list[NetworkKernel]
    left: int

    @property
    def warnings(self) -> tuple[str, ...]:
        if not self.left:
            return ()
        said = f"{counted(self.left, 'kernel')} of free sizes keep their default schedules"
        return (f"{said}: tune with one size (`--dim NAME=N`), and compile with it as a specialisation",)


def _wanted(compilation: Compilation, texts: Sequence[str]) -> _Wanted:
    """The kernels of fixed sizes whose names have one of some texts; all without any. Raises UsageError."""
    kernels = kernels_of(compilation)
    fixed = [one for one in kernels if not is_open(one)]
    wanted = [one for one in fixed if not texts or any(text in one.name for text in texts)]
    if not wanted:
        names = "\n".join(one.name for one in kernels)
        raise UsageError("no kernel has that in its name", where="--kernel", why=f"there are\n{names}")
    return _Wanted(wanted, len(kernels) - len(fixed))


def is_open(kernel: NetworkKernel) -> bool:
    """Whether a kernel has sizes or a number of samples that only a run knows."""
    func, _ = kernel.workload.forms[0][1]
    return bool({SAMPLES, SYMBOLS} & {name for name, _ in func.attrs})


def _task(search_of: KernelSearch) -> Task:
    """A kernel for the scheduler, in seconds of an inference of the untuned library."""
    kernel = search_of.kernel
    return Task(kernel.name, kernel.calls, 1e-3 * search_of.ms / kernel.calls)
