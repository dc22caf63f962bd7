"""`tk tune prune` and `migrate`: a database smaller, and as this tk reads it."""

from __future__ import annotations

from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.tune import common

_DAYS = 30.0


def prune_tuned_command(
    keep: Annotated[
        int,
        typer.Option(
            "--keep", metavar="N", min=1, help="Of each workload in each environment so many records."
        ),
    ] = 20,
    failures_older_than: Annotated[
        float, typer.Option("--failures-older-than", metavar="DAYS", min=0, help="Failures that may go.")
    ] = _DAYS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; say what would be removed.")
    ] = False,
    db: common.Database = None,
    json: options.Json = False,
) -> None:
    """Remove slow records and old failures; the fastest and those of default schedules stay.

    A later search measures again what was removed.
    """
    path = common.database_path(db)
    made = compiler.prune_tuning(path, keep, failures_older_than, dry_run=dry_run)
    if json:
        console.data_json({"dry_run": dry_run, **console.jsonable(made)})
        return
    verb = "would remove" if dry_run else "removed"
    records, failures = compiler.counted(made.removed, "record"), compiler.counted(made.failures, "failure")
    console.data(f"{verb} {records} and {failures}, {compiler.counted(made.workloads, 'workload')}")
    console.data(f"left {compiler.counted(made.left, 'record')}")


def migrate_tuned_command(db: common.Database = None, json: options.Json = False) -> None:
    """Bring a database that an older tk wrote to the tables of this one, at once or not at all."""
    made = compiler.migrate_tuning(common.database_path(db))
    if json:
        console.data_json(made)
    elif made.before == made.after:
        console.data(f"{made.path}: version {made.after}, nothing to do")
    else:
        console.data(f"{made.path}: version {made.before} became {made.after}")
