"""What recipes know of a program's failure, added to the error that reports it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import ExitCode, TkError

if TYPE_CHECKING:
    from toolchain.recipes.schema import Issue

OF_PROGRAMS = frozenset({ExitCode.BUILD, ExitCode.CRASHED})
"""Errors whose `why` is what a compiler, a linker or a library wrote before it failed."""


def issues_of_site(site: Path | None = None) -> tuple[Issue, ...]:
    """Known issues, a site's own before the shipped ones; raises BadInputError where they cannot be read."""
    from toolchain.recipes.catalog import load_issues
    from toolchain.site import load_site

    return load_issues(load_site(site).recipe_folders)


def explained(error: TkError) -> TkError:
    """The error with the known causes of what a failed program wrote as its first hints."""
    if error.code in OF_PROGRAMS and error.why:
        error.hint = "\n".join(filter(None, (*advice_on(error.why.splitlines(), error.hint), error.hint)))
    return error


def advice_on(lines: Sequence[str], said: str = "") -> list[str]:
    """A line for each known cause of a failed program's output that was not `said` yet."""
    from toolchain.explain.causes import known_causes

    try:
        issues = issues_of_site()
    except (TkError, ModuleNotFoundError):  # a container has no recipes; a broken one must not hide the error
        return []
    known = said + "\n".join(lines)
    causes = known_causes(lines, issues)
    return [one.advice for one in causes if f"known cause {one.issue}:" not in known]
