"""What sqlite found, in the user's words."""

from __future__ import annotations

import shutil
from pathlib import Path

from compiler.core.diagnostics import BadInputError, HostError, TkError

WAIT_SECONDS = 60.0
"""How long one process waits for another one's transaction."""
_MEND = "restore it from a copy, or move it away: the next `tk tune` begins a new one"


def says(error: Exception, *words: str) -> bool:
    """Whether sqlite's message has one of these words."""
    said = str(getattr(error, "orig", error)).lower()
    return any(word in said for word in words)


def in_words(error: Exception, path: Path) -> TkError:
    """The error for one of sqlite or of SQLAlchemy about a database."""
    why, where = str(getattr(error, "orig", error)), str(path)
    if says(error, "is full") or (says(error, "disk i/o") and _is_full(path)):
        return HostError(
            "the disk is full: nothing was added to the tuning database",
            where=where,
            why=why,
            hint="what was added before is safe; make room",
        )
    if says(error, "locked", "busy"):
        return HostError(
            "another process holds the tuning database",
            where=where,
            why=f"{why}, for {WAIT_SECONDS:.0f} seconds",
            hint="try again when it has ended",
        )
    if says(error, "unable to open", "readonly", "disk i/o"):
        return HostError(
            "the tuning database cannot be used", where=where, why=why, hint="check permissions and disk"
        )
    if says(error, "foreign key"):
        return BadInputError("a record is of a workload that is not in the database", where=where)
    if says(error, "no such table"):
        return BadInputError("this is no tuning database", where=where, why=why, hint="name another file")
    return damaged(path, why)


_INDEX_BYTES = 64 << 10
"""Of the file with which sqlite's log is shared: where it does not fit, sqlite speaks of an I/O error."""


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _INDEX_BYTES
    except OSError:
        return False


def damaged(path: Path, why: str) -> BadInputError:
    """The error for a database whose content makes no sense."""
    return BadInputError("the tuning database is damaged", where=str(path), why=why, hint=_MEND)


def unused(path: Path, why: str) -> str:
    """The warning of a command that goes on without a database."""
    return f"the tuning database is not used: {why} ({path})"
