"""The page of known issues: `python -m toolchain.recipes.issues_page docs/known-issues.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from compiler import write_atomic
from toolchain.data import data_directory
from toolchain.recipes.check import Problems, validate
from toolchain.recipes.schema import Issue, Issues
from toolchain.recipes.strict_yaml import read_strict

_INTRODUCTION = """\
# Known issues

Made from `recipes/issues/` by `bin/just docs`; do not edit. [`tk explain`](explain.md) finds these in any
log, and `tk` itself in what a program wrote that it started. `*` stands for any text within a line.
"""
_FIELDS = (("Cause", "cause"), ("Evidence", "evidence"), ("Fix", "action"), ("tk", "tk"), ("Since", "since"),
           ("Until", "until"))  # fmt: skip


def issues_page() -> str:
    """The whole page as Markdown, a section for each file of the shipped recipes."""
    files = sorted((data_directory("recipes") / "issues").glob("*.yaml"))
    return "\n".join([_INTRODUCTION, *(part for path in files for part in _section(path))])


def _section(path: Path) -> Iterator[str]:
    problems: Problems = []
    whole = validate(Issues, read_strict(path), problems)
    assert whole is not None, problems
    title, _, _ = path.read_text(encoding="utf-8").removeprefix("# ").partition("\n")
    yield f"## {title.partition('. ')[0].rstrip('.')}\n"
    for issue in whole.issues:
        yield from _entry(issue)


def _entry(issue: Issue) -> Iterator[str]:
    yield f"### {issue.id}\n"
    shown = [*issue.patterns, *("` with `".join(one) for one in issue.together)]
    yield "| | |\n|---|---|"
    yield f"| Shows as | {', '.join(f'`{_cell(one)}`' for one in shown)} |"
    for label, name in _FIELDS:
        if value := getattr(issue, name):
            yield f"| {label} | {_cell(value)} |"
    if issue.follows:
        yield f"| Follows from | {', '.join(f'[{one}](#{_anchor(one)})' for one in issue.follows)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(name: str) -> str:
    """How a heading is linked to."""
    return re.sub(r"[^a-z0-9-]", "", name)


def main() -> int:
    """Write the page to the file that the command line names."""
    (path,) = map(Path, sys.argv[1:])
    write_atomic(path, issues_page().encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
