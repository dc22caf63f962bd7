"""What a lint rule is: an id, how bad, why, what to do, who says so, and a function that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from toolchain.lint.dockerfile import Dockerfile

Severity = Literal["error", "warning", "note"]
Hit = tuple[int, str]
"""Line number from 1, and what stands there that the rule is about."""
Check = Callable[[Dockerfile], Iterator[Hit]]


@dataclass(frozen=True, slots=True)
class LintRule:
    """One rule.

    `severity`: an error does not work or is unsafe, a warning makes the image drift or surprise, a note is
    about size, time or what others will trip over. `message` says what is found, `source` who says so.
    """

    id: str
    severity: Severity
    message: str
    why: str
    fix: str
    source: str
    check: Check


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that hit: where, and what stands there."""

    rule: str
    severity: Severity
    line: int
    found: str
    message: str
    why: str
    fix: str
    source: str
