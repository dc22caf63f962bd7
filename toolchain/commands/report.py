"""`tk report`: records as page, table, workbook, test results or chart, and what changed between two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.records.record import Record
    from toolchain.report.content import PlannedModel

_FORMS = "html, markdown, xlsx, junit, csv, json, png, svg"


def report_command(
    records: Annotated[
        Path | None,
        typer.Argument(metavar="RECORDS", help="A folder of records, or one record; default: this user's."),
    ] = None,
    form: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="KIND",
            help=f"{_FORMS}; several with commas between them or by repeating the option; default: by the "
            "end of FILE, else markdown.",
        ),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to write; repeatable. With one FILE and several formats each gets its own end; "
            "default: standard output, for what is text.",
        ),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option("--network", metavar="NAME", help="Only this network or revision; repeatable."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="RUN", help="What this run found: `last`, `before`, the beginning of its name."
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="PLAN",
            help="Show all of this plan's families and targets; what has no record is not tried.",
        ),
    ] = None,
    baseline: Annotated[
        str,
        typer.Option("--baseline", metavar="NAME", help="Show speed-ups to this target, or to this engine."),
    ] = "",
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--compare",
            metavar="OLD NEW",
            help="What changed between two runs (as for --run), or folders of records: as markdown or json.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show what was tried on which target: as a table, a page, a workbook, test results or a chart.

    With --compare the exit code is 1 when something fails that passed before, or got slower beyond both
    confidence intervals.
    """
    if compare is not None and plan is not None:
        raise compiler.UsageError("a comparison has no plan", where="--plan", hint="drop it, or --compare")
    if compare is not None:
        _compare(records, compare, network or [], form, output, json=json)
        return
    wanted = _wanted(form, output, json=json)
    planned = _planned(plan, network or []) if plan else ()
    from toolchain.records.store import RecordStore, default_records
    from toolchain.report.content import make_report
    from toolchain.report.plain import json_report
    from toolchain.report.write import report_as

    place = records or default_records()
    known = _records(place, run) if run or not planned else RecordStore(place).read()
    found = _of_networks(known, network or [], planned)
    report = make_report(found, baseline, planned)
    for kind, path in wanted:
        with progress_bar(f"writing {kind}") as progress:
            content = report_as(kind, report, network or [], progress=progress)
        if path is None:
            console.data(content.decode().rstrip("\n"))
        else:
            compiler.write_atomic(path, content)
            console.talk(f"{kind}: {path}")
    if json:
        console.data_json(json_report(report))


def _wanted(
    form: Sequence[str] | None, output: Sequence[Path] | None, *, json: bool
) -> list[tuple[str, Path | None]]:
    """Each form with its file; None stands for standard output. Raises UsageError for what does not fit."""
    from toolchain.report.write import SUFFIXES, TEXT_FORMS

    kinds = [one for text in form or () for one in text.split(",")]
    paths = list(output or ())
    for one in kinds:
        if one not in SUFFIXES:
            hint = compiler.did_you_mean(one, SUFFIXES) or f"one of {', '.join(SUFFIXES)}"
            raise compiler.UsageError(f"unknown format `{one}`", where="--format", hint=hint)
    for path in paths:
        options.check_file(path)
    if not paths:
        return _to_standard_output(kinds, TEXT_FORMS, json=json)
    if not kinds:
        return [(_kind_of(path), path) for path in paths]
    if len(paths) > 1:
        raise compiler.UsageError(
            "several files and --format", where="-o", hint="the end of each file's name says its format"
        )
    if len(kinds) == 1:
        return [(kinds[0], paths[0])]
    stem = paths[0].with_suffix("") if paths[0].suffix in SUFFIXES.values() else paths[0]
    return [(one, stem.with_name(stem.name + SUFFIXES[one])) for one in dict.fromkeys(kinds)]


def _to_standard_output(
    kinds: Sequence[str], text_forms: frozenset[str], *, json: bool
) -> list[tuple[str, Path | None]]:
    if json and not kinds:
        return []
    if json or len(kinds) > 1 or not text_forms.issuperset(kinds):
        raise compiler.UsageError(
            f"{', '.join(kinds)}: not all of it can go to standard output",
            where="--format",
            hint="name a file with -o",
        )
    return [(kinds[0] if kinds else "markdown", None)]


def _kind_of(path: Path) -> str:
    from toolchain.report.write import SUFFIXES

    kind = next((one for one, suffix in SUFFIXES.items() if path.suffix.lower() == suffix), "")
    if not kind:
        ends = ", ".join(SUFFIXES.values())
        raise compiler.UsageError("the format is not clear", where=f"-o {path}", hint=f"end it in {ends}")
    return kind


def _read(place: Path) -> tuple[Record, ...]:
    """The records of a folder, or one; raises BadInputError where there are none."""
    from toolchain.records.store import RecordStore, read_record

    if place.is_file():
        return (read_record(place),)
    store = RecordStore(place)
    found = store.read()
    for path, why in list(store.broken.items())[:3]:
        console.warn(f"left out: {path}: {why}")
    if len(store.broken) > 3:
        console.warn(f"left out: {compiler.counted(len(store.broken) - 3, 'more record')}")
    if not found:
        why = "" if place.exists() else "there is no such folder"
        raise compiler.BadInputError(
            "no records", where=str(place), why=why, hint="name a folder that has some"
        )
    return found


def _records(place: Path, run: str | None) -> Sequence[Record]:
    """The records in a place, or what a run of it found; raises UsageError for a run that is not there."""
    if run is None:
        return _read(place)
    from toolchain.matrix.runs import records_named
    from toolchain.records.store import RecordStore

    return records_named(run, RecordStore(place))


def _planned(path: Path, networks: Sequence[str]) -> tuple[PlannedModel, ...]:
    """The models of a plan on its targets, of these networks; raises BadInputError for a wrong plan."""
    from toolchain.matrix.plan import read_plan
    from toolchain.matrix.trials import Machine, planned_trials
    from toolchain.report.content import PlannedModel

    plan, source = read_plan(path)
    subjects = ((one.model.subject, one.place.target) for one in planned_trials(plan, source, Machine()))
    return tuple(
        PlannedModel(one.family or one.network, one.network, one.revision, target)
        for one, target in subjects
        if not networks or {one.network, one.revision} & {*networks}
    )


def _of_networks(
    records: Sequence[Record], networks: Sequence[str], planned: Sequence[PlannedModel] = ()
) -> list[Record]:
    """Records of these networks and revisions; raises UsageError for one that none is of, nor a plan has."""
    names = {(one.subject.network, one.subject.revision) for one in records}
    names |= {(one.network, one.revision) for one in planned}
    known = {name for both in names for name in both if name}
    for name in networks:
        if name not in known:
            hint = compiler.did_you_mean(name, known) or f"there are {compiler.some(sorted(known))}"
            raise compiler.UsageError(f"no record of `{name}`", where="--network", hint=hint)
    return [
        one for one in records if not networks or {one.subject.network, one.subject.revision} & set(networks)
    ]


def _compare(
    records: Path | None,
    sides: tuple[str, str],
    networks: Sequence[str],
    form: Sequence[str] | None,
    output: Sequence[Path] | None,
    *,
    json: bool,
) -> None:
    """Write what changed between two folders or runs."""
    from toolchain.records.compare import compare_records
    from toolchain.report.markdown import markdown_comparison
    from toolchain.report.plain import json_comparison, json_text

    wanted = [("json", None)] if json and not output else _wanted(form, output, json=False)
    if others := [kind for kind, _ in wanted if kind not in ("markdown", "json")]:
        raise compiler.UsageError(
            f"a comparison is no {others[0]}", where="--compare", hint="markdown or json"
        )
    before, after = (_of_networks(_side(records, one), networks) for one in sides)
    found = compare_records(before, after)
    for kind, path in wanted:
        text = json_text(json_comparison(found)) if kind == "json" else markdown_comparison(found)
        if path is None:
            console.data(text.rstrip("\n"))
        else:
            compiler.write_atomic(path, text)
    if found.regressions:
        raise typer.Exit(compiler.ExitCode.DIFFERENCES)


def _side(records: Path | None, name: str) -> Sequence[Record]:
    """The records of one side: a folder or a file of that name, else what a run found."""
    from toolchain.records.store import default_records

    if Path(name).exists():
        return _read(Path(name))
    return _records(records or default_records(), name)
