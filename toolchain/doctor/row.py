"""One finding of the doctor, and what its checks look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compiler import TkError

if TYPE_CHECKING:
    from toolchain.devices.detect import Inventory
    from toolchain.devices.host_facts import Caller
    from toolchain.engine.client import Engine
    from toolchain.images.named import Named
    from toolchain.settings import EngineSettings

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Row:
    """What was looked at, how it is, what was found; for anything but `ok` its cause and what helps."""

    about: str
    state: State
    found: str
    cause: str = ""
    fix: str = ""


def problem(about: str, error: TkError, state: State = "problem") -> Row:
    """A row from an error of ours."""
    cause = "; ".join(part for part in (error.where, " / ".join(error.why.splitlines())) if part)
    return Row(about, state, error.what, cause, " / ".join(error.hint.splitlines()))


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The machine as the checks see it: everything that they ask comes from here, so tests can make one up.

    engine: the engine, or the error that says why there is none. inventory: of the engine's machine; None
    when it cannot be looked at. images: chosen images, or the error that each name raised. free: bytes left
    on the file system of a folder. which: the path of a program, or None. version_of: first line of
    `PROGRAM --version`.
    """

    root: Path
    engine: Engine | TkError
    endpoint: str
    inventory: Inventory | TkError
    caller: Caller
    settings: EngineSettings
    cache: Path
    free: Callable[[Path], int]
    which: Callable[[str], str | None]
    version_of: Callable[[str], str]
    images: tuple[tuple[str, Named | TkError], ...] = ()
    site: Path | None = None


Check = Callable[[CheckContext], Iterable[Row]]
