"""`tk tune show`: one workload or one record, whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.tune import common


def show_tuned_command(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL", help="First digits of a workload or record, as `tk tune stats` shows them."
        ),
    ],
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=1, help="So many of the fastest records.")
    ] = 3,
    db: common.Database = None,
    json: options.Json = False,
) -> None:
    """Show a workload's loops and its fastest records, or one record with the steps of its schedule.

    Decisions that are not the default schedule's are marked with what that takes.
    """
    shown = compiler.show_tuning(kernel, [common.database_path(db)], top)
    if json:
        console.data_json(shown)
        return
    console.data(f"workload {shown.workload}")
    for name, text in shown.forms.items():
        console.data(f"\nform {name}" if name else "")
        console.data(text)
    failures = ", ".join(f"{count} {name}" for name, count in shown.failures.items())
    console.data(
        f"{compiler.counted(shown.tried, 'candidate')} tried" + (f": {failures}" if failures else "")
    )
    for record in shown.records:
        console.data("")
        for line in _lines(record):
            console.data(line)
    if shown.trace:
        console.data(f"\nschedule {shown.trace}")


def _lines(record: compiler.ShownRecord) -> Iterator[str]:
    yield f"record {record.id}"
    yield f"  {_outcome(record)}, on {record.date[:19]}"
    if record.message:
        yield f"  {record.message}"
    if record.withdrawn:
        yield f"  withdrawn: {record.withdrawn}"
    place = record.environment
    where = (place.device, place.driver, place.compiler, place.flags, f"tk {place.tk}")
    threads = f", {compiler.counted(place.threads, 'thread')}" if place.threads else ""
    yield f"  {place.target}:{place.arch}{threads}"
    yield f"  {', '.join(filter(None, where))}"
    names = dict.fromkeys((*record.decisions, *(record.changed or ())))
    yield from (f"    {_decision(name, record)}" for name in names)


def _outcome(record: compiler.ShownRecord) -> str:
    if record.ms is None:
        return record.status
    checked = f", checked by {record.checked_by}" if record.checked_by else ""
    return f"{common.ms_text(record.ms)} ms, {compiler.counted(record.runs, 'run')}{checked}"


def _decision(name: str, record: compiler.ShownRecord) -> str:
    taken = record.decisions.get(name)
    said = f"{name} = {_value(taken)}"
    if record.changed is None or name not in record.changed:
        return said
    return f"{said}  (default: {_value(record.changed[name][0])})"


def _value(value: tuple[int, ...] | None) -> str:
    return "not asked" if value is None else " ".join(map(str, value))
