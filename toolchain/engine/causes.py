"""Known causes of failures, found in the last lines of a log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

LAST_LINES = 200
"""How much of a log is looked at: causes stand near the end, and logs can be long."""


class KnownIssue(Protocol):
    """A row of recipes/issues.yaml."""

    @property
    def id(self) -> str: ...
    @property
    def patterns(self) -> tuple[str, ...]: ...
    @property
    def cause(self) -> str: ...
    @property
    def evidence(self) -> str: ...
    @property
    def action(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Cause:
    """A known issue that a log shows: what it is, how well that is known, what to do, and the line found."""

    issue: str
    cause: str
    evidence: str
    action: str
    line: str

    @property
    def advice(self) -> str:
        """What to tell who has the trouble."""
        return f"known cause {self.issue}: {self.cause}; {self.action}"


def known_causes(lines: Sequence[str], issues: Iterable[KnownIssue]) -> tuple[Cause, ...]:
    """The issues of recipes/issues.yaml whose pattern is in one of the last lines, the latest line first.

    A pattern is plain text, in which `*` stands for anything; case counts.
    """
    last = [line.strip() for line in lines[-LAST_LINES:]]
    found: list[tuple[int, Cause]] = []
    for issue in issues:
        expressions = [_expression(pattern) for pattern in issue.patterns]
        places = [i for i, line in enumerate(last) if any(one.search(line) for one in expressions)]
        if places:
            cause = Cause(issue.id, issue.cause, issue.evidence, issue.action, last[places[-1]])
            found.append((places[-1], cause))
    return tuple(cause for _, cause in sorted(found, key=lambda one: -one[0]))


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))
