"""Whether a database has anything for a target, and whether that has changed: asked before every compile.

Reads one row with Python's own sqlite3, as a compile without tuned kernels, or one whose library is there,
need not wait for more to be imported.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from compiler.tune.database.errors import WAIT_SECONDS, in_words, says

GENERATION = "generation:"
"""Before a target's name: the row of `meta` whose value is another one after every change."""


def generation(path: Path, target: str) -> str | None:
    """What changes with the measured records of a target; None where there are none.

    Raises BadInputError for a file that is damaged or no database, HostError where it cannot be read.
    """
    try:
        try:
            return _generation(path, target, "")
        except sqlite3.OperationalError as error:
            if not says(error, "unable to open", "readonly"):
                raise
            return _generation(path, target, "&immutable=1")  # in a folder that cannot be written
    except sqlite3.Error as error:
        raise in_words(error, path) from error


def _generation(path: Path, target: str, more: str) -> str | None:
    address = f"{path.absolute().as_uri()}?mode=ro{more}"
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS)) as connection:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            return None  # killed before it had tables
        found = connection.execute("SELECT value FROM meta WHERE name = ?", (GENERATION + target,)).fetchone()
    return None if found is None else str(found[0])
