"""What the search and its callers pass to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Searched(Protocol):
    """What the search needs of a known issue."""

    @property
    def id(self) -> str: ...
    @property
    def patterns(self) -> tuple[str, ...]: ...
    @property
    def together(self) -> tuple[tuple[str, ...], ...]: ...


class KnownIssue(Searched, Protocol):
    """A row of recipes/issues."""

    @property
    def cause(self) -> str: ...
    @property
    def evidence(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def level(self) -> str: ...
    @property
    def follows(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log and its number, from 1."""

    number: int
    text: str


@dataclass(slots=True)
class Sighting:
    """Where an issue was found first, and in how many lines."""

    issue: int
    first: LogLine
    times: int
    last: int
