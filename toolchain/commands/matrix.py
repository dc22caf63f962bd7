"""`tk matrix`: many networks on many targets, each tried apart from the others, once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import compiler
from compiler import ExitCode, UsageError
from toolchain import console, options
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.matrix.cluster import Cluster
    from toolchain.matrix.loop import Agenda, PlannedTrial
    from toolchain.matrix.plan import MatrixPlan, PlanSource
    from toolchain.records.record import Record
    from toolchain.records.store import RecordStore

app = typer.Typer(help="Many networks on many targets: run, status, show, diff.")

_MOST_LISTED = 40

_RAN = ("verified", "measured", "emulated", "emulated-unchecked")
"""States of trials of which nothing is left to tell."""


@dataclass(frozen=True, slots=True)
class PlanWords:
    """What the options say of a plan; they count in place of the same fields of a file."""

    models: Mapping[str, tuple[str, ...]]
    targets: tuple[str, ...]
    place: Mapping[str, tuple[str, ...]]
    whole: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, Any]]


def plan_words(
    network: Annotated[
        list[str] | None,
        typer.Option("--network", metavar="NAME", help="A network of the zoo, or a pattern; repeatable."),
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option("--family", metavar="NAME", help="A family of networks; repeatable.")
    ] = None,
    revision: Annotated[
        list[str] | None,
        typer.Option("--revision", metavar="NAME", help="A trained model, as `mnist-8`; repeatable."),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="An ONNX file, a folder, a pattern; repeatable."),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="NAME", help="Models to leave out, or a pattern; repeatable."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", metavar="NAME", help="As `tk compile` takes it, NAME or NAME:ARCH; repeatable."
        ),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="NAME", help="Device of every target, as `tk verify`; repeatable."),
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option("--image", metavar="NAME", help="In containers of this image; repeatable."),
    ] = None,
    docker_host: Annotated[
        list[str] | None,
        typer.Option("--docker-host", metavar="URL", help="Container engine for images; repeatable."),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option("--worker", metavar="KEY", help="On a cluster's worker with device:KEY; repeatable."),
    ] = None,
    threads: Annotated[
        list[int] | None, typer.Option("--threads", metavar="N", min=1, help="Threads; repeatable.")
    ] = None,
    precision: Annotated[
        list[str] | None,
        typer.Option("--precision", metavar="NAME", help="f32, tf32x3, tf32, f16 or bf16; repeatable."),
    ] = None,
    do: Annotated[
        str | None, typer.Option("--do", metavar="STEPS", help="compile, verify, bench, with commas.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="SECONDS", help="Time for each step of a trial.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Memory for each step, as `8 GB`.")
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option("--disk", metavar="SIZE", help="What the folder of each trial may hold, as `8 GB`."),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option("--runs", metavar="N", min=1, help="Runs of each verification, as `tk verify`."),
    ] = None,
    bench_seconds: Annotated[
        float | None, typer.Option("--bench-seconds", metavar="SECONDS", help="Time to measure for.")
    ] = None,
    warmup: Annotated[
        float | None, typer.Option("--warmup", metavar="SECONDS", help="Time to warm up before that.")
    ] = None,
) -> PlanWords:
    """What the options say."""
    models = {"networks": network, "families": family, "revisions": revision, "files": file}
    place = {"devices": device, "images": image, "engines": docker_host, "workers": worker}
    lists = {"threads": threads, "precisions": precision, "do": do.split(",") if do else None}
    whole = {name: tuple(value) for name, value in lists.items() if value} | ({"runs": runs} if runs else {})
    parts: dict[str, dict[str, Any]] = {
        "limits": {"seconds": seconds, "memory": memory, "disk": disk},
        "bench": {"seconds": bench_seconds, "warmup": warmup},
    }
    return PlanWords(
        {name: tuple(value) for name, value in {**models, "without": without}.items() if value},
        tuple(target or ()),
        {name: tuple(value) for name, value in place.items() if value},
        whole,
        {
            part: {name: value for name, value in fields.items() if value is not None}
            for part, fields in parts.items()
        },
    )


@app.command("run")
@options.spread
def run_matrix_command(
    plan: Annotated[
        Path | None,
        typer.Argument(metavar="[PLAN]", help="A plan (docs/matrix.md); default: the zoo, on all targets."),
    ] = None,
    records: options.Records = None,
    *,
    words: Annotated[PlanWords, options.Depends(plan_words)],
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, max=256, help="Trials at a time; default: by processors."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler", metavar="URL", help="Dask cluster, for targets with `workers` in the plan."
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Make trials that have a record, too.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be made, and why; make nothing.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Try every model at every place, and keep a record of each trial.

    What has a record with the same inputs is not tried again. Exit code 1 where a trial failed.
    """
    from toolchain.matrix.loop import MatrixRun, agenda_of, alone_in

    store = _store(records)
    whole, source = _plan_of(plan, words, scheduler)
    if dry_run:
        with _cluster(whole) as cluster:
            _list(agenda_of(whole, source, store, again=again, cluster=cluster), json=json)
        return
    with alone_in(store), _cluster(whole) as cluster, progress_bar("trying") as progress:
        agenda = agenda_of(whole, source, store, again=again, cluster=cluster)
        run = MatrixRun(agenda, store, jobs or compiler.load_settings().jobs, _tell, progress, again=again)
        made = run.make()
    kept = [one.found for one in agenda.trials if one.found is not None]
    titles = run.titles | {one.found.id: one.trial.title for one in agenda.trials if one.found is not None}
    _summarise(run.id if made else "", store, made, kept, titles, json=json)


@app.command("status")
def matrix_status_command(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="A run; default: the last.")] = "last",
    records: options.Records = None,
    json: options.Json = False,
) -> None:
    """Show how far a run has come: done, running, left, and for how long still."""
    from toolchain.matrix.runs import RunStore, dump, records_of_run
    from toolchain.matrix.words import hours_and_minutes

    store = _store(records)
    runs = RunStore(store.directory)
    document = runs.read(run)
    found, progress = records_of_run(document, store.read()), runs.progress(document.id)
    unfinished = [one for one in document.cells if one.title not in found]
    left = [one.title for one in unfinished]
    checked = [one.title for one in unfinished if runs.pending(one.keys[0]) is not None]
    states = _counts(found.values())
    if json:
        console.data_json({"run": document.id, "title": document.title, "plan": document.plan,
                           "started": document.started.isoformat(), "states": states, "left": left,
                           "checked": checked,
                           "progress": dump(progress) if progress else None})  # fmt: skip
        return
    named = f" of {document.plan}" if document.plan else ""
    console.data(f"run {document.id}{named}, started {document.started:%Y-%m-%d %H:%M:%S} UTC")
    console.data(f"done: {len(found)} of {len(document.cells)} ({_in_words(states) or 'none'})")
    if checked:
        console.data(f"checked and still to be timed: {len(checked)}")
    if progress is None:
        console.data(f"left: {len(left)}; nothing runs" + ("" if left else ", all is done"))
        return
    for one in progress.running:
        console.data(f"running: {one.title}, for {time.time() - one.since:.0f} s")
    time_left = "" if progress.seconds_left is None else f", about {hours_and_minutes(progress.seconds_left)}"
    console.data(f"left: {len(left)}{time_left}")


@app.command("show")
def show_matrix_command(
    network: Annotated[
        str, typer.Argument(metavar="[NETWORK]", help="A network, a family or a revision.")
    ] = "",
    target: Annotated[str, typer.Argument(metavar="[TARGET]", help="A target, or how it begins.")] = "",
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="What a run found, or a folder; default: all.")
    ] = None,
    records: options.Records = None,
    json: options.Json = False,
) -> None:
    """Show the table of networks and targets; of one network its trials; with a target whole records."""
    from toolchain.matrix.runs import dump, records_named
    from toolchain.matrix.words import TRIAL_HEADER, trial_row, whole_record
    from toolchain.records.cells import trials_by_cell, trials_named

    store = _store(records)
    known = store.read() if run is None else records_named(run, store)
    if not network:
        _show_table(known, json=json)
        return
    trials = trials_by_cell(known)
    found = trials_named(trials, network, target)
    if not found:
        hint = compiler.did_you_mean(network, {one.model for one in trials} | {one.network for one in trials})
        raise UsageError(f"there is no record of {network} {target}".rstrip(), where=str(store.directory),
                         hint=hint or "`tk matrix show` lists what there is")  # fmt: skip
    if json:
        console.data_json([dump(one.result) for one in found])
    elif target:
        console.data("\n\n".join(whole_record(one.result) for one in found))
    else:
        console.data(console.table(TRIAL_HEADER, [trial_row(one.result) for one in found]))


def _show_table(records: Sequence[Record], *, json: bool) -> None:
    """The table of a report, with a column for each place."""
    from toolchain.report.content import make_report
    from toolchain.report.families import family_cells, family_rows, place_titles

    report = make_report(records)
    titles = place_titles(one.cell for one in report.trials)
    columns = sorted({*titles.values()})
    cells = family_cells(
        [replace(one, name=one.cell.model) for one in report.trials], lambda one: titles[one.cell]
    )
    rows = family_rows(report.families, columns, cells)
    if json:
        listed = [dict(zip(("family", *columns), row, strict=True)) for row in rows]
        console.data_json({"columns": columns, "rows": listed})
    else:
        console.data(console.table(("network", *columns), rows))


@app.command("diff")
def diff_matrix_command(
    before: Annotated[
        str, typer.Argument(metavar="A", help="A run (`before`, the beginning of its name) or a folder.")
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="The same; `last` is the last run.")] = "last",
    records: options.Records = None,
    json: options.Json = False,
) -> None:
    """Show what changed from A to B: failures, what was fixed, latencies beyond their confidence.

    The exit code is 1 when something fails that passed before, or got slower beyond both confidence
    intervals, as that of `tk report --compare`.
    """
    from toolchain.matrix.runs import records_named
    from toolchain.matrix.words import change_document, change_line
    from toolchain.records.compare import compare_records

    store = _store(records)
    changes = compare_records(records_named(before, store), records_named(after, store))
    if json:
        listed = [change_document(one) for one in changes.changes]
        console.data_json({"changes": listed, "regressions": len(changes.regressions),
                           "same": changes.same, "timed": changes.timed,
                           "undecided": len(changes.undecided)})  # fmt: skip
    else:
        for one in changes.changes:
            console.data(change_line(one))
        found = ", ".join((compiler.counted(len(changes.regressions), "regression"),
                           compiler.counted(len(changes.changes), "change")))  # fmt: skip
        times = compiler.counted(len(changes.undecided), "time")
        undecided = f"; {times} not compared: noisy, or of another machine" if changes.undecided else ""
        console.data(f"{found}, {changes.same} the same{undecided}")
    if changes.regressions:
        raise typer.Exit(ExitCode.DIFFERENCES)


# ---------------------------------------------------------------- what the options mean


def _store(records: Path | None) -> RecordStore:
    from toolchain.records.store import RecordStore, default_records

    return RecordStore(records or default_records())


@contextlib.contextmanager
def _cluster(plan: MatrixPlan) -> Iterator[Cluster | None]:
    """The cluster of a plan that has workers; raises HostError where it cannot be reached."""
    if not any(one.workers for one in plan.targets) or not plan.scheduler:
        yield None
        return
    from toolchain.matrix.cluster import Cluster

    with contextlib.closing(Cluster(plan.scheduler)) as cluster:
        yield cluster


def _plan_of(path: Path | None, words: PlanWords, scheduler: str | None) -> tuple[MatrixPlan, PlanSource]:
    """The plan of a file, or the usual one, with what the options say in place of it."""
    from toolchain.matrix.plan import MatrixPlan, PlanSource, changed_plan, read_plan

    plan, source = (MatrixPlan(), PlanSource()) if path is None else read_plan(path)
    changes: dict[str, Any] = {**words.whole, **({"scheduler": scheduler} if scheduler else {})}
    if words.models.keys() - {"without"}:
        changes["models"] = dict(words.models)
    elif words.models:
        changes["models"] = {**plan.models.model_dump(), **words.models}
    if words.targets:
        changes["targets"] = [
            {"target": name, "archs": [arch] if arch else []}
            for name, arch in compiler.choose_targets(words.targets)
        ]
    if words.place:
        targets = changes.get("targets") or [one.model_dump() for one in plan.targets]
        if not targets:
            given = ", ".join(words.place)
            raise UsageError(f"{given} of what?", where="--target", hint="name the targets with --target")
        changes["targets"] = [{**one, **words.place} for one in targets]
    for part, fields in words.parts.items():
        if fields:
            changes[part] = {**getattr(plan, part).model_dump(), **fields}
    return changed_plan(plan, source, changes)


# ---------------------------------------------------------------- what is said


def _tell(record: Record, title: str) -> None:
    seconds = sum(record.seconds.values())
    why = f": {record.why}" if record.why and record.state not in _RAN else ""
    console.talk(f"{record.state:<18} {title}, {seconds:.1f} s{why}")


def _list(agenda: Agenda, *, json: bool) -> None:
    """What a run would make, and why."""
    from toolchain.matrix.reasons import why_made

    rows = [(one.trial.title, *_would(one, why_made(one, agenda))) for one in agenda.trials]
    if json:
        console.data_json([{"trial": title, "would": would, "why": why} for title, would, why in rows])
        return
    console.data(console.table(("trial", "would", "why"), rows))
    todo = sum(one[1] == "be made" for one in rows)
    console.data(f"{todo} of {compiler.counted(len(rows), 'trial')} would be made")


def _would(one: PlannedTrial, why: str) -> tuple[str, str]:
    if one.found is not None:
        return "be kept", f"{one.found.state}, {one.found.when:%Y-%m-%d %H:%M}"
    return ("be noted as not run", one.why_not) if one.why_not else ("be made", why)


def _summarise(
    run: str,
    store: RecordStore,
    made: Sequence[Record],
    kept: Sequence[Record],
    titles: Mapping[str, str],
    *,
    json: bool,
) -> None:
    """What came of a run; raises Exit where a trial failed."""
    from toolchain.matrix.runs import dump
    from toolchain.records.record import FAILED

    every = [*made, *kept]
    failed = [one for one in every if one.state in FAILED]
    if json:
        fields = ("id", "state", "why", "subject", "place", "seconds")
        cells = [{name: value for name, value in _fields(dump(one)) if name in fields} for one in every]
        console.data_json({"run": run, "records": store.directory, "made": len(made), "kept": len(kept),
                           "states": _counts(every), "cells": cells})  # fmt: skip
    else:
        for one in failed[:_MOST_LISTED]:
            console.data(f"{one.state:<18} {titles[one.id]}: {one.why}")
        if len(failed) > _MOST_LISTED:
            console.data(f"and {len(failed) - _MOST_LISTED} more")
        console.data(f"{len(made)} made, {len(kept)} kept: {_in_words(_counts(every))}")
        console.data(f"records: {store.directory}")
    if failed:
        raise typer.Exit(ExitCode.DIFFERENCES)


def _fields(document: Any) -> list[tuple[str, Any]]:
    return list(document.items())


def _counts(records: Any) -> dict[str, int]:
    """How many records have each state, in the order of the states."""
    from toolchain.records.record import State

    states = [one.state for one in records]
    return {str(state): states.count(state) for state in State if state in states}


def _in_words(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.items())
