"""`tk tune export`, `import` and `merge`: records between machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.tune import common


def export_tuned_command(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write, as records.jsonl.")],
    best: Annotated[
        bool,
        typer.Option("--best", help="Only the fastest record of each workload in each environment."),
    ] = False,
    db: common.Database = None,
    json: options.Json = False,
) -> None:
    """Write records as lines of JSON, which `tk tune import` reads."""
    path = common.database_path(db)
    options.check_file(output, "FILE")
    _tell("wrote", compiler.export_tuning(path, output, best=best), json=json)


def import_tuned_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `tk tune export` wrote.")],
    db: common.Database = None,
    json: options.Json = False,
) -> None:
    """Add the records of a file to the database: all of them, or where a line is wrong none.

    Each line is checked. A record only chooses among schedules that tk itself offers: a wrong one can make a
    library slower, but not wrong. Records of other machines stay near hits.
    """
    path = common.database_path(db)
    _tell("added", compiler.import_tuning(options.existing_file(file), path), json=json)


def merge_tuned_command(
    databases: Annotated[
        list[Path], typer.Argument(metavar="DB...", help="Databases whose records are to be added.")
    ],
    db: common.Database = None,
    json: options.Json = False,
) -> None:
    """Add the records of other databases to the database."""
    path = common.database_path(db)
    made = [compiler.merge_tuning(options.existing_file(one), path) for one in databases]
    if json:
        console.data_json({"merged": made})
        return
    for one in made:
        _tell("added", one, json=False)


def _tell(verb: str, moved: compiler.Moved, *, json: bool) -> None:
    if json:
        console.data_json(moved)
        return
    records = compiler.counted(moved.records, "record")
    known = f", {moved.known} were there before" if moved.known else ""
    workloads = compiler.counted(moved.workloads, "workload")
    console.data(f"{moved.path}: {verb} {records} of {workloads}{known}")
