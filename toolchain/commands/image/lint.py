"""`tk image lint`: what is wrong with Dockerfiles that somebody else wrote."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import BadInputError, ExitCode, UsageError, counted
from toolchain import console, options

if TYPE_CHECKING:
    from toolchain.lint import Finding, Linted

_STDIN = "-"
_STDIN_NAME = "<stdin>"


class LintFormat(StrEnum):
    """How `tk image lint` writes what it found."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def lint_command(
    dockerfile: Annotated[
        list[str],
        typer.Argument(metavar="DOCKERFILE...", help="Dockerfiles to look at; - is standard input."),
    ],
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="RULE", help="Leave out a rule; repeatable.")
    ] = None,
    format: Annotated[  # noqa: A002 - the option's name
        LintFormat | None,
        typer.Option("--format", help="How to write findings; sarif and github are for code hosts. [text]"),
    ] = None,
    json: options.Json = False,
) -> None:
    """Say what drifts, leaks or does not work in Dockerfiles; exit code 1 with findings.

    Nothing is built or fetched. docs/lint.md lists the rules.
    """
    if json and format not in (None, LintFormat.JSON):
        raise UsageError("--json and --format exclude each other", where=f"--format {format}")
    linted, unread = _linted(list(dict.fromkeys(dockerfile)), ignore or ())
    _write(linted, LintFormat.JSON if json else format or LintFormat.TEXT, complete=not unread)
    if unread:
        raise _unread(unread)
    if any(one.findings for one in linted):
        raise typer.Exit(ExitCode.DIFFERENCES)


def _linted(files: Sequence[str], ignore: Sequence[str]) -> tuple[list[Linted], list[BadInputError]]:
    """What was found in each file, and why others could not be read."""
    from toolchain.lint import Linted, lint_file, lint_text

    linted, unread = [], []
    for file in files:
        try:
            if file == _STDIN:
                data = sys.stdin.buffer.read()
                found = lint_text(data, where=_STDIN_NAME, ignore=ignore)
                linted.append(Linted(_STDIN_NAME, found))
            else:
                linted.append(Linted(file, lint_file(options.existing_file(Path(file)), ignore=ignore)))
        except BadInputError as error:
            unread.append(error)
    return linted, unread


def _unread(errors: Sequence[BadInputError]) -> BadInputError:
    """One error for all files that could not be read."""
    if len(errors) == 1:
        return errors[0]
    said = (": ".join(part for part in (one.where, one.what, one.why) if part) for one in errors)
    return BadInputError(f"{len(errors)} of the files cannot be read as Dockerfiles", why="\n".join(said))


def _write(linted: Sequence[Linted], how: LintFormat, *, complete: bool) -> None:
    from toolchain.lint import github_lines, sarif

    found = [one for file in linted for one in file.findings]
    if not linted and not complete:
        return  # the error says it all
    if how is LintFormat.SARIF:
        console.data_json(sarif(linted))
    elif how is LintFormat.JSON:
        records = [{"file": one.file, **dataclasses.asdict(each)} for one in linted for each in one.findings]
        console.data_json({"files": [one.file for one in linted], "findings": records})
    elif how is LintFormat.GITHUB:
        for line in github_lines(linted):
            console.data(line)
    else:
        _show_all(linted)
    if complete:
        console.talk(_summary(found))


def _show_all(linted: Sequence[Linted]) -> None:
    explained: set[str] = set()
    for file in linted:
        for one in file.findings:
            _show(file.file, one, explain=one.rule not in explained)
            explained.add(one.rule)


def _show(path: str, finding: Finding, *, explain: bool) -> None:
    """One finding; why, fix and source only with the first of each rule."""
    console.data(f"{path}:{finding.line}: {finding.severity}: {finding.message} [{finding.rule}]")
    console.data(f"  found: {finding.found}")
    if explain:
        console.data(f"  why: {finding.why}")
        console.data(f"  fix: {finding.fix}")
        console.data(f"  source: {finding.source}")


def _summary(findings: Sequence[Finding]) -> str:
    if not findings:
        return "no findings"
    counts = dict.fromkeys(("error", "warning", "note"), 0)
    for one in findings:
        counts[one.severity] += 1
    parts = [counted(count, name) for name, count in counts.items() if count]
    return f"{counted(len(findings), 'finding')}: {', '.join(parts)}"
