"""Tuning records for tests: kernels of a model as they would have been measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler.pipeline import run_job
from compiler.reports import CompileOptions
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.stages.job import CompileJob
from compiler.stages.tuned import Tuned
from compiler.stages.workload import Workload
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.database.store import Database, now
from compiler.tune.environment import environment_here
from compiler.tune.record import Environment, Measured, Record


def job_of(model: Path, **options: Any) -> CompileJob:
    """The job of a compile that ends with its kernels' texts."""
    given = {"output": model.with_suffix(".so"), "stop_after": "loops", **options}
    return CompileJob.of(model, CompileOptions(**given))


def workloads_of(model: Path, **options: Any) -> list[Workload]:
    """The workloads of a model, in the order of its kernels."""
    seen: dict[Workload, None] = {}

    def note(workload: Workload) -> Tuned:
        seen[workload] = None
        return Tuned()

    run_job(replace(job_of(model, **options), records=note))
    return list(seen)


def other_than_default(workload: Workload, job: CompileJob) -> KernelCandidate:
    """A candidate whose last decision is another one than the default's, where there is a choice."""
    made = make_candidate(workload, job.target, AnalyticChooser())
    for name, options in reversed(made.offered.items()):
        for option in options:
            if option.value == made.decisions[name]:
                continue
            decisions = {**made.decisions, name: option.value}
            found = make_candidate(workload, job.target, ReplayChooser(decisions, AnalyticChooser()))
            if found.program != made.program:
                return found
    return made


def record_of(
    made: KernelCandidate,
    environment: Environment,
    seconds: Sequence[float] = (1e-3,),
    status: str = "ok",
    **changes: Any,
) -> Record:
    """The record of a candidate that took so long."""
    values = {
        "workload": made.workload.key,
        "decisions": made.decisions,
        "program": made.program,
        "trace": made.trace.to_json(),
        "measured": Measured(status, tuple(seconds) if status == "ok" else (), "", "reference"),
        "environment": environment,
        "date": now(),
        **changes,
    }
    return Record.of(**values)


def tune(
    model: Path,
    database: Path,
    change: Callable[[Environment], Environment] = lambda item: item,
    **changes: Any,
) -> list[Record]:
    """Add a record of each workload of a model, other than its default, as if it had been measured."""
    job = job_of(model)
    environment = change(environment_here(job.target, job.settings))
    workloads = workloads_of(model)
    made = [record_of(other_than_default(one, job), environment, **changes) for one in workloads]
    Database.open(database).add(made, workloads)
    return made
