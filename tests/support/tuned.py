"""Tuning records for tests: kernels of a model as they would have been measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler.loops.text import parse_func
from compiler.pipeline import run_job
from compiler.reports import CompileOptions
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.trace import Trace
from compiler.stages.job import CompileJob
from compiler.stages.tuned import Tuned
from compiler.stages.workload import Workload
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.database.store import Database, now
from compiler.tune.environment import environment_here
from compiler.tune.record import Environment, Measured, Record

_PRODUCT = """func kernel(
    x0: f32[{m}, {k}],
    w1: f32[{k}, {n}] @constant
) -> (
    y: f32[{m}, {n}]
)
{local}  for i in 0..{m}
    for j in 0..{n}
      for r in 0..{k}
        block product(
            vi: spatial {m} = i,
            vj: spatial {n} = j,
            vr: reduce {k} = r
        )
          reads x0[vi, vr], w1[vr, vj]
          writes {into}[vi, vj]
          init
            {into}[vi, vj] = 0.0
          {into}[vi, vj] += x0[vi, vr] * w1[vr, vj]
{more}"""
_RELU = """  for a in 0..{m}
    for b in 0..{n}
      block relu(
          va: spatial {m} = a,
          vb: spatial {n} = b
      )
        reads t[va, vb]
        writes y[va, vb]
        y[va, vb] = max(t[va, vb], 0.0)
"""
HERE = Environment("cpu", "x86-64-v3", "a processor", "", "g++ 12.2.0", "-O2", 2, "0.1.0+0")


def product(m: int, n: int, k: int, *, relu: bool = False) -> Workload:
    """A product of matrices, with its result cut off below 0 or as it is."""
    sizes = {"m": m, "n": n, "k": k}
    local = f"  local t: f32[{m}, {n}]\n" if relu else ""
    more = _RELU.format(**sizes) if relu else ""
    text = _PRODUCT.format(**sizes, local=local, into="t" if relu else "y", more=more)
    return Workload.of(parse_func(text), {})


def plain_record(workload: Workload, seconds: float | None = 1e-3, **changes: Any) -> Record:
    """A record that nobody measured; a failure where there are no seconds."""
    measured = Measured("ok", (seconds,)) if seconds is not None else Measured("crash", (), "signal 11")
    values = {
        "workload": workload.key,
        "decisions": {"product.tile": (4, 3, 1), "product.order": (0,)},
        "program": "p",
        "trace": Trace(()).to_json(),
        "measured": measured,
        "environment": HERE,
        "date": now(),
        **changes,
    }
    return Record.of(**values)


def job_of(model: Path, **options: Any) -> CompileJob:
    """The job of a compile that ends with its kernels' texts."""
    given = {"output": model.with_suffix(".so"), "stop_after": "loops", **options}
    return CompileJob.of(model, CompileOptions(**given))


def workloads_of(model: Path, **options: Any) -> list[Workload]:
    """The workloads of a model's kernels, in their order."""
    seen: dict[Workload, None] = {}

    def note(workload: Workload) -> Tuned:
        if any(True for _ in workload.forms[0][1][0].blocks()):  # the graph is asked for, too
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
    options: Mapping[str, Any] | None = None,
    **changes: Any,
) -> list[Record]:
    """Add a record of each workload of a model, other than its default, as if it had been measured.

    options: of the compile.
    """
    job = job_of(model, **options or {})
    environment = change(environment_here(job.target, job.settings))
    workloads = workloads_of(model, **options or {})
    made = [record_of(other_than_default(one, job), environment, **changes) for one in workloads]
    Database.open(database).add(made, workloads)
    return made
