"""What a compile makes of tuning databases: which of them count, and the records that it is told.

Light on purpose: SQLAlchemy is imported only where a kernel is to be looked up.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.core.diagnostics import BadInputError, TkError
from compiler.reports import CompileReport
from compiler.stages.job import CompileJob
from compiler.tune.database.generation import generation
from compiler.tune.environment import environment_here
from compiler.tune.record import Environment

if TYPE_CHECKING:
    from compiler.tune.database.lookup import Lookup


@dataclass(frozen=True, slots=True)
class Tuning:
    """The databases that have records for a compile's target, each with its generation.

    environment: under which records are hits; None where there are no databases. Both decide, with the
    options, over the library. warnings: why a database is not used.
    """

    databases: Mapping[Path, str] = field(default_factory=dict)
    environment: Environment | None = None
    warnings: tuple[str, ...] = ()


def tuning_of(job: CompileJob) -> Tuning:
    """The databases that a compile asks; none where its options leave out parts of the compiler.

    Raises BadInputError where one is named that does not exist.
    """
    options = job.options
    if options.without or options.limits or options.conservative:
        return Tuning()
    found: dict[Path, str] = {}
    warnings: list[str] = []
    for path in _paths(job):
        try:
            known = generation(path, job.target.text.partition(":")[0])
        except TkError as error:
            warnings.append(_unused(path, error.why or error.what))
        else:
            found |= {} if known is None else {path: known}
    if found and importlib.util.find_spec("sqlalchemy") is None:
        why = "sqlalchemy is not installed (the extra `tune`)"
        return Tuning(warnings=(*warnings, *(_unused(path, why) for path in found)))
    environment = environment_here(job.target, job.settings, options.threads) if found else None
    return Tuning(found, environment, tuple(warnings))


def tuned_job(job: CompileJob, tuning: Tuning) -> tuple[CompileJob, Lookup | None]:
    """The job that is told what its databases know, and who tells it; as it was where there are none."""
    if not tuning.databases or tuning.environment is None:
        return job, None
    from compiler.tune.database.lookup import Lookup

    lookup = Lookup(
        tuple(tuning.databases), job.target, job.settings, tuning.environment, trust=job.options.trust
    )
    return replace(job, records=lookup), lookup


def tuned_report(report: CompileReport, lookup: Lookup | None) -> CompileReport:
    """The report of a compile with what its databases knew."""
    if lookup is None:
        return report
    near = lookup.near_hits
    keys = dict.fromkeys(key for one in near for key in one.differs)
    troubles = (_unused(path, why) for path, why in lookup.troubles.items())
    return replace(report, near_hits=len(near), near_keys=tuple(keys), warnings=(*report.warnings, *troubles))


def _paths(job: CompileJob) -> Iterator[Path]:
    """The databases that are named, and the user's own if there is one."""
    own = job.settings.tuning_db
    for path in job.options.databases:
        if not path.is_file():
            raise BadInputError("there is no tuning database", where=str(path), hint="check the path")
        yield path
    if job.options.own_database and own is not None and own.is_file():
        yield own


def _unused(path: Path, why: str) -> str:
    return f"the tuning database is not used: {why} ({path})"
