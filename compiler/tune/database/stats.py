"""What databases know of a model's kernels, and of one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compiler.core.diagnostics import BadInputError, TkError, UsageError
from compiler.loops.text import print_func
from compiler.pipeline import model_kernels
from compiler.reports import CompileOptions
from compiler.schedule.chooser import AnalyticChooser
from compiler.stages.job import CompileJob
from compiler.stages.kernels import kernel_name
from compiler.stages.tuned import Decisions, changed_decisions
from compiler.stages.workload import Workload
from compiler.targets import get_target
from compiler.tune.candidate import RejectedError, make_candidate
from compiler.tune.database.lookup import Found, Lookup, made_program
from compiler.tune.database.report import KernelStats, ShownRecord, ShownWorkload, TuningStats
from compiler.tune.database.store import Database
from compiler.tune.environment import environment_here
from compiler.tune.record import OK, Environment, Record
from compiler.tune.use import tuning_of

_AMBIGUOUS = 8
_SHORTEST = 4


def tuning_stats(model: Path, options: CompileOptions) -> TuningStats:
    """What the databases that `options` name know of each kernel of a model.

    Raises what a compile raises before kernels are scheduled.
    """
    job = CompileJob.of(model, options)
    tuning = tuning_of(job)
    environment = tuning.environment or environment_here(job.target, job.settings, options.threads)
    lookup = Lookup(tuple(tuning.databases), job.target, job.settings, environment, trust=options.trust)
    tasks, steps = model_kernels(replace(job, records=lookup))
    calls = Counter(step.kernel for step in steps)
    names = {step.kernel: kernel_name(step.group) for step in reversed(steps)}
    rows = [_kernel(names[number], calls[number], task.workload, lookup) for number, task in enumerate(tasks)]
    troubles = tuple(lookup.warnings())
    return TuningStats(environment, lookup.paths, tuple(rows), (*tuning.warnings, *troubles))


def _kernel(name: str, calls: int, workload: Workload, lookup: Lookup) -> KernelStats:
    found = lookup.found[workload]
    record = found.record
    tried = list(lookup.tried(workload))
    best = None if record is None else record.measured.median
    default = _default_seconds(workload, found, tried, lookup)
    return KernelStats(
        name=name,
        calls=calls,
        workload=workload.key,
        kind=found.kind,
        differs=found.differs,
        record="" if record is None else record.id,
        best_ms=None if best is None else best * 1e3,
        default_ms=None if default is None else default * 1e3,
        gain=None if best is None or not default else 1 - best / default,
        records=len(tried),
    )


def _default_seconds(
    workload: Workload, found: Found, tried: Iterable[Record], lookup: Lookup
) -> float | None:
    """What the default schedule takes where the record that was found was measured."""
    if found.record is None:
        return None
    place = replace(found.record.environment, tk="")
    same = [one for one in tried if replace(one.environment, tk="") == place and one.measured.status == OK]
    program = made_program(workload, {}, lookup.target, lookup.environment, lookup.settings)
    times = [one.measured.median for one in same if one.program == program]
    return min(times, default=None)


# ---------------------------------------------------------------- one workload or record


@dataclass(frozen=True, slots=True)
class _Place:
    """A database with something that was asked for: a workload, and a record of it or all."""

    database: Database
    workload: str
    record: Record | None


def show_tuning(start: str, paths: Iterable[Path], count: int) -> ShownWorkload:
    """A workload or record whose name starts so, with so many of the fastest records.

    Raises UsageError where there is none or where several are called so, and what `Database.read` raises.
    """
    place = _place(start, [Database.read(path) for path in paths])
    workload = place.database.workload(place.workload)
    if workload is None:
        raise BadInputError("a record's workload is missing", where=str(place.database.path))
    tried = place.database.tried(workload.key)
    reasons = place.database.reasons(workload.key)
    shown = [place.record] if place.record else place.database.top(workload.key, count)
    failures = Counter(one.measured.status for one in tried if one.measured.status != OK)
    defaults: dict[Environment, Decisions | None] = {}
    return ShownWorkload(
        workload=workload.key,
        forms={name: print_func(func) for name, (func, _) in workload.forms},
        records=tuple(_shown(one, workload, defaults, reasons) for one in shown),
        tried=len(tried),
        failures=dict(failures),
        trace=place.record.trace if place.record else "",
    )


def _place(start: str, databases: Iterable[Database]) -> _Place:
    if len(start) < _SHORTEST or set(start) - set("0123456789abcdef"):
        raise UsageError(
            f"`{start}` names neither a workload nor a record",
            where="KERNEL",
            why=f"names are {_SHORTEST} or more of the digits that `tk tune stats` shows",
        )
    found: dict[str, _Place] = {}
    for database in databases:
        keys, ids = database.keys_like(start, _AMBIGUOUS)
        records = [one for one in map(database.record, ids) if one is not None]
        found |= {one.id: _Place(database, one.workload, one) for one in records if one.id not in found}
        found |= {key: _Place(database, key, None) for key in keys if key not in found}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UsageError(
            f"several are called `{start}...`", where="KERNEL", why="\n".join(found), hint="give more digits"
        )
    raise UsageError(
        f"no workload and no record is called `{start}...`",
        where="KERNEL",
        hint="`tk tune stats MODEL` shows those of a model",
    )


def _shown(
    record: Record,
    workload: Workload,
    defaults: dict[Environment, Decisions | None],
    reasons: Mapping[str, str],
) -> ShownRecord:
    environment, measured = record.environment, record.measured
    if environment not in defaults:
        defaults[environment] = _default_decisions(workload, environment)
    default = defaults[environment]
    return ShownRecord(
        id=record.id,
        status=measured.status,
        ms=measured.median * 1e3 if measured.status == OK else None,
        runs=len(measured.seconds),
        message=measured.message,
        checked_by=measured.checked_by,
        date=record.date,
        environment=environment,
        decisions=record.decisions,
        changed=None if default is None else changed_decisions(default, record.decisions),
        withdrawn=reasons.get(record.id, ""),
        notes=record.notes,
    )


def _default_decisions(workload: Workload, environment: Environment) -> Decisions | None:
    """The decisions that a compile takes without records; None for a target that is not known here."""
    try:
        target = get_target(environment.target, environment.arch or None)
        return make_candidate(workload, target, AnalyticChooser()).decisions
    except (TkError, RejectedError):
        return None
