"""The file of a database: connections to it, its version, and sqlite's errors in the user's words."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from compiler.core.diagnostics import BadInputError, HostError
from compiler.tune.database.errors import WAIT_SECONDS, in_words
from compiler.tune.database.schema import VERSION, schema_version


def sqlite_engine(path: Path, mode: str, more: str = "") -> Engine:
    """Connections to a file: `rwc` reads, writes and makes it, `rw` makes none, `ro` reads."""
    address = f"{path.absolute().as_uri()}?mode={mode}{more}"

    def connect() -> sqlite3.Connection:
        made = sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
        made.execute("PRAGMA foreign_keys = ON")
        made.execute("PRAGMA synchronous = FULL")
        return made

    return create_engine("sqlite://", creator=connect, poolclass=NullPool)


@contextlib.contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """A transaction that holds the file from its beginning, so that it never fails in the middle."""
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            with contextlib.suppress(DBAPIError):  # after a full disk sqlite has undone it itself
                connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")


def use_log(path: Path) -> None:
    """Let readers and a writer work at the same time; a file remembers it."""
    for _ in range(50):
        connected = contextlib.closing(sqlite3.connect(path, timeout=WAIT_SECONDS))
        # It may be locked for a moment: others have just made the file, too.
        with connected as connection, contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
            return
        time.sleep(0.02)


def file_version(connection: Connection, path: Path) -> int | None:
    """The version of a file's tables, None for an empty one; raises BadInputError for another's file."""
    try:
        return schema_version(connection)
    except ValueError as error:
        raise BadInputError(
            "this is no tuning database", where=str(path), why=str(error), hint="name another file"
        ) from error


def check_version(version: int | None, path: Path) -> None:
    """Raise BadInputError for tables of another version."""
    if version is None or version == VERSION:
        return
    if version > VERSION:
        raise BadInputError(
            "the tuning database was written by a newer tk",
            where=str(path),
            why=f"its tables are of version {version}, this tk knows those up to {VERSION}",
            hint="use that tk, or another database with --db",
        )
    raise BadInputError(
        "the tuning database was written by an older tk",
        where=str(path),
        why=f"its tables are of version {version}, this tk has version {VERSION}",
        hint="bring it up to date: `tk tune migrate`",
    )


@contextlib.contextmanager
def speaking(path: Path) -> Iterator[None]:
    """Say in the user's words what sqlite found."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise in_words(error, path) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise HostError("the tuning database cannot be opened", where=str(path), why=why) from error
