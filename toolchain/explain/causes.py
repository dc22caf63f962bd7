"""Known causes of what a text shows: the likeliest root cause first, and why it is taken for that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolchain.explain.issue import KnownIssue, Sighting

LAST_LINES = 200
"""How much of a failed step's log is looked at: causes stand near the end, and logs can be long."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A known issue that a log shows: what it is, how well that is known, what to do, and the line found.

    number: of the first such line. times: lines that show it. order: why it stands where it stands.
    """

    issue: str
    cause: str
    evidence: str
    action: str
    line: str
    number: int
    times: int
    order: str

    @property
    def advice(self) -> str:
        """What to tell who has the trouble."""
        return f"known cause {self.issue}: {self.cause} {self.action}"


def known_causes(lines: Sequence[str], issues: Iterable[KnownIssue]) -> tuple[Cause, ...]:
    """The issues of recipes/issues that one of the last lines shows, the likeliest root cause first."""
    from toolchain.explain.search import search_lines  # with numpy: only a failure needs it

    known = tuple(issues)
    return ranked(tuple(search_lines(lines[-LAST_LINES:], known)), known)


def ranked(found: Sequence[Sighting], issues: Sequence[KnownIssue]) -> tuple[Cause, ...]:
    """Errors before warnings, causes before what follows from them, then by line.

    Where two are found in one line, that of a team's own recipes comes first, as these come before the
    shipped ones.
    """
    ids = {issues[one.issue].id for one in found}

    def key(one: Sighting) -> tuple[bool, bool, int, int]:
        issue = issues[one.issue]
        return bool(ids & {*issue.follows}), issue.level == "warning", one.first.number, one.issue

    ordered = sorted(found, key=key)
    return tuple(_cause(one, issues[one.issue], ids, is_first=i == 0) for i, one in enumerate(ordered))


def _cause(one: Sighting, issue: KnownIssue, ids: set[str], *, is_first: bool) -> Cause:
    return Cause(
        issue.id,
        issue.cause,
        issue.evidence,
        issue.action,
        one.first.text,
        one.first.number,
        one.times,
        _order(issue, ids, is_first=is_first),
    )


def _order(issue: KnownIssue, ids: set[str], *, is_first: bool) -> str:
    above = [name for name in issue.follows if name in ids]
    if above:
        return f"follows from {above[0]}"
    if issue.level == "warning":
        return "a warning"
    return "the first error" if is_first else "a later error"
