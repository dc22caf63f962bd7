"""What a compile makes of tuning databases: which of them count, and the records that it is told.

Light on purpose: SQLAlchemy is imported only where a kernel is to be looked up.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.core.diagnostics import BadInputError, TkError
from compiler.reports import CompileReport
from compiler.stages.job import CompileJob
from compiler.tune.database.errors import unused
from compiler.tune.database.generation import generation
from compiler.tune.environment import environment_here
from compiler.tune.record import Environment

if TYPE_CHECKING:
    from compiler.stages.compilation import Compilation


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
            warnings.append(unused(path, error.why or error.what))
        else:
            found |= {} if known is None else {path: known}
    if found and importlib.util.find_spec("sqlalchemy") is None:
        why = "sqlalchemy is not installed (the extra `tune`)"
        return Tuning(warnings=(*warnings, *(unused(path, why) for path in found)))
    environment = environment_here(job.target, job.settings, options.threads) if found else None
    return Tuning(found, environment, tuple(warnings))


def run_tuned(
    job: CompileJob, tuning: Tuning, observe: Callable[[Compilation], None] | None = None
) -> CompileReport:
    """Compile as `run_job` does, with what databases know; their warnings are not in the report."""
    from compiler.pipeline import run_job  # slow to import, and not needed where a library is there

    if not tuning.databases or tuning.environment is None:
        return run_job(job, observe)
    from compiler.tune.database.lookup import Lookup

    paths = tuple(tuning.databases)
    lookup = Lookup(paths, job.target, job.settings, tuning.environment, trust=job.options.trust)
    report = run_job(replace(job, records=lookup), observe)
    near = lookup.near_hits
    keys = dict.fromkeys(key for one in near for key in one.differs)
    warnings = (*report.warnings, *lookup.warnings())
    return replace(report, near_hits=len(near), near_keys=tuple(keys), warnings=warnings)


def _paths(job: CompileJob) -> Iterator[Path]:
    """The databases that are named, and the user's own if there is one."""
    own = job.settings.tuning_db
    for path in job.options.databases:
        if not path.is_file():
            raise BadInputError("there is no tuning database", where=str(path), hint="check the path")
        yield path
    if job.options.own_database and own is not None and own.is_file():
        yield own
