"""`compile_model`: hands out the library that was made before, or sends the model through the pipeline.

Light on purpose: numpy, onnx and the pipeline are imported only when there is something to compile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from compiler.core.answer import Answer, refusal
from compiler.core.cache_space import cache_in_use, make_room
from compiler.core.diagnostics import BadInputError, HostError, UsageError
from compiler.core.files import (
    remove_abandoned_directories,
    remove_abandoned_parts,
    replace_atomic,
    sha256_bytes,
    sha256_file,
    staging_directory,
)
from compiler.core.progress import Progress, silent
from compiler.core.settings import Settings, load_settings
from compiler.core.single_flight import single_flight
from compiler.frontend.external import ExternalData
from compiler.reports import CompileOptions, CompileReport, StageTime, TargetReport
from compiler.stages.finished import Finished, FinishedLibraries, externals_match, finished_key
from compiler.stages.job import CompileJob
from compiler.targets import TargetRow, all_targets, find_target, get_target
from compiler.tune.use import Tuning, run_tuned, tuning_of

_FACTS = ("kernels", "constant_bytes", "peak_memory", "tuned", "near_hits", "near_keys")


def compile_model(path: Path, options: CompileOptions, *, progress: Progress = silent) -> CompileReport:
    """Compile the ONNX model at `path` as `options` say, and report what it took.

    `progress` is told of stages and of kernels done, from any thread.

    Raises UsageError, BadInputError, HostError or BuildError; the old output stays in place then.
    """
    _check_output(path, options)
    job = CompileJob.of(path, options, progress)
    tuning = tuning_of(job)
    with cache_in_use(job.settings.cache_dir), job.target.plugins.answering():
        report = _compile(job, tuning)
    if not report.cached:
        make_room(job.settings)
    return replace(report, warnings=(*tuning.warnings, *report.warnings))


def _compile(job: CompileJob, tuning: Tuning) -> CompileReport:
    remove_abandoned_directories("tk")
    if not _may_be_kept(job):
        return run_tuned(job, tuning)
    started, before = time.perf_counter(), _state(job.model)
    libraries = FinishedLibraries(job.settings.cache_dir / "libraries", job.settings.cache_bytes)
    key = _key(job, tuning)
    remove_abandoned_parts(libraries.root)
    found = _taken(libraries, key, job)
    if found is None:
        with single_flight(libraries.root, key) as waited:
            found = _taken(libraries, key, job) if waited else None
            if found is None:
                return _made(libraries, key, job, before, tuning)
    return _report(found, job, started)


def _taken(libraries: FinishedLibraries, key: str, job: CompileJob) -> Finished | None:
    """The library that was made for `key` before, which lies at the output now; None where there is none."""
    found = libraries.find(key)
    fits = found is not None and externals_match(found, _digest(job.external))
    return found if found and fits and libraries.take(found, job.options.output) else None


def _made(
    libraries: FinishedLibraries, key: str, job: CompileJob, before: tuple[int, ...], tuning: Tuning
) -> CompileReport:
    """Compile, and keep what came of it; `before` is the state of the model before anything was read."""
    output = job.options.output
    with staging_directory(output) as directory:
        # Private at first: what goes into the cache is what was made here, whoever else writes there.
        made = directory / "library"
        report = run_tuned(replace(job, options=replace(job.options, output=made)), tuning)
        warnings = report.warnings
        # Kept is what has nothing to say to the user, of a model that nobody wrote to meanwhile.
        if _state(job.model) == before and not warnings:
            warnings = _keep(libraries, key, made, job.external, report)
        replace_atomic(made, output)
    return replace(report, path=output, warnings=warnings)


def list_targets() -> tuple[TargetReport, ...]:
    """The targets that `compile_model` accepts, and what this machine can do with each."""
    return tuple(_target_report(row, load_settings()) for row in all_targets())


def can_compile(target: str | None = None, arch: str | None = None) -> Answer:
    """Whether this machine has the toolchain of a target for these architectures (by default the target's).

    Raises UsageError for an unknown name.
    """
    chosen = get_target(target, arch)
    row = find_target(chosen.text.partition(":")[0])
    return row.readiness.compiles(chosen, load_settings())


def arch_here(target: str) -> str | None:
    """The architecture of the device for a target on this machine; None where none is found.

    Raises UsageError for an unknown name.
    """
    return find_target(target).readiness.arch(load_settings()) or None


def _target_report(row: TargetRow, settings: Settings) -> TargetReport:
    ready = row.readiness
    language, arch = "", ready.arch(settings) or row.default_arch
    try:
        target = row.make(arch)
    except HostError as error:  # a processor that cannot be described
        compiles = refusal(error)
    else:
        language = target.facts.language
        compiles = ready.compiles(target, settings)
    return TargetReport(
        name=row.name,
        aliases=row.aliases,
        language=language,
        device=row.title,
        arch=arch,
        archs=row.archs,
        compiles=compiles,
        loads=ready.loads(settings),
        runs=ready.runs(settings),
    )


def _check_output(path: Path, options: CompileOptions) -> None:
    """Find out before the work what cannot be its result."""
    output = options.output
    if options.emit != "library":
        if output.exists() and not output.is_dir():
            what = f"{options.emit}s go into a directory, and this is none"
            raise UsageError(what, where=str(output), hint="name another directory with -o")
    elif output.is_dir():
        raise UsageError("the output is a directory", where=str(output), hint="name a file in it with -o")
    elif output.exists() and path.exists() and output.samefile(path):
        raise UsageError("the output would replace the model", where=str(output), hint="name another file")


def _keep(
    libraries: FinishedLibraries, key: str, made: Path, external: ExternalData, report: CompileReport
) -> tuple[str, ...]:
    """Put a library into the cache; returns a warning when that fails, as the compile has not."""
    externals = {name: _digest(external)(name) for name in external.names}
    facts = {name: getattr(report, name) for name in _FACTS}
    try:
        libraries.keep(key, made, externals, facts)
    except HostError as error:
        return (f"the library was not kept in the cache: {error.why or error.what} ({error.where})",)
    return ()


def _may_be_kept(job: CompileJob) -> bool:
    """Whether this compile makes a library and nothing else; looking closer means compiling."""
    options, device = job.options, job.target.device
    asked = options.dump, options.stop_after, options.start_from
    changed = options.without or options.limits or options.conservative or job.settings.debug
    whole = options.emit == "library" and asked == (None, None, None) and not changed
    return whole and (device is None or device.identity is not None)


def _key(job: CompileJob, tuning: Tuning) -> str:
    options, target, cxx = job.options, job.target, job.target.cxx(job.settings)
    device = target.device
    identity = "" if device is None or device.identity is None else device.identity(target, job.settings)
    return finished_key(
        sha256_file(job.model),
        target.facts,
        target.features,
        target.plugins.identity,
        target.flags(cxx),
        cxx.identity,
        identity,
        options.shapes,
        options.dims,
        options.specialisations,
        options.binds,
        options.threads,
        options.environment,
        *((sorted(tuning.databases.values()), tuning.environment, options.trust) if tuning.databases else ()),
    )


def _state(path: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced."""
    try:
        facts = path.stat()
    except OSError as error:
        raise BadInputError(
            "the model cannot be read", where=str(path), why=error.strerror or str(error)
        ) from error
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _digest(external: ExternalData) -> Callable[[str], str]:
    return lambda name: sha256_bytes(external.content(name, "the model"))


def _report(found: Finished, job: CompileJob, started: float) -> CompileReport:
    seconds = time.perf_counter() - started
    return CompileReport(
        path=job.options.output,
        target=job.target.facts.name,
        arch=job.target.facts.arch,
        seconds=seconds,
        stages=(StageTime("cache", seconds),),
        kernels=found.facts["kernels"],
        cache_hits=found.facts["kernels"],
        library_bytes=found.bytes,
        constant_bytes=found.facts["constant_bytes"],
        peak_memory=found.facts["peak_memory"],
        tuned=found.facts["tuned"],
        near_hits=found.facts["near_hits"],
        near_keys=tuple(found.facts["near_keys"]),
        cached=True,
    )
