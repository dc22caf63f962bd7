"""What the subcommands of `tk tune` have in common: the database that they are about."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from compiler import HostError, load_settings

Database = Annotated[
    Path | None, typer.Option("--db", metavar="FILE", help="The database; default: TK_TUNING_DB.")
]
DIGITS = 12
"""Of the name of a workload or record so many are shown; fewer name it, too."""


def database_path(named: Path | None) -> Path:
    """The database that is named, else this user's own; raises HostError without SQLAlchemy."""
    if importlib.util.find_spec("sqlalchemy") is None:
        raise HostError("SQLAlchemy is not installed", hint="pip install 'tk-toolchain[tune]'")
    own = load_settings().tuning_db
    path = named or own
    assert path is not None
    return path


def ms_text(ms: float | None) -> str:
    """A time for people; a dash where there is none."""
    return "-" if ms is None else f"{ms:.4g}"
