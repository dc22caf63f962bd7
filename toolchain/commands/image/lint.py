"""`tk image lint`: what is wrong with a Dockerfile that somebody else wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import ExitCode
from toolchain import console, options

if TYPE_CHECKING:
    from toolchain.lint import Finding

Target = Annotated[Path, typer.Argument(metavar="DOCKERFILE", help="The Dockerfile to look at.")]
Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", metavar="RULE", help="Leave out a rule; repeatable.")
]


def lint_command(dockerfile: Target, ignore: Ignore = None, json: options.Json = False) -> None:
    """Say what drifts, leaks or does not work in a Dockerfile; exit code 1 with findings.

    Nothing is built or fetched. docs/lint.md lists the rules.
    """
    from toolchain.lint import lint_file

    findings = lint_file(options.existing_file(dockerfile), ignore=ignore or ())
    if json:
        console.data_json({"file": dockerfile, "findings": findings})
    else:
        explained: set[str] = set()
        for one in findings:
            _show(str(dockerfile), one, explain=one.rule not in explained)
            explained.add(one.rule)
        console.talk(_summary(findings))
    if findings:
        raise typer.Exit(ExitCode.DIFFERENCES)


def _show(path: str, finding: Finding, *, explain: bool) -> None:
    """One finding; why, fix and source only with the first of each rule."""
    console.data(f"{path}:{finding.line}: {finding.severity}: {finding.message} [{finding.rule}]")
    console.data(f"  found: {finding.found}")
    if explain:
        console.data(f"  why: {finding.why}")
        console.data(f"  fix: {finding.fix}")
        console.data(f"  source: {finding.source}")


def _summary(findings: tuple[Finding, ...]) -> str:
    if not findings:
        return "no findings"
    counts = dict.fromkeys(("error", "warning", "note"), 0)
    for one in findings:
        counts[one.severity] += 1
    parts = [f"{count} {name}{'s' if count != 1 else ''}" for name, count in counts.items() if count]
    return f"{len(findings)} finding{'s' if len(findings) != 1 else ''}: {', '.join(parts)}"
