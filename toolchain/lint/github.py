"""Findings as GitHub's workflow commands: a line each, which becomes a remark beside the line of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolchain.lint.report import Linted

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
_IN_TEXT = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY = {**_IN_TEXT, ":": "%3A", ",": "%2C"}


def github_lines(linted: Iterable[Linted]) -> Iterator[str]:
    """The lines (docs.github.com, workflow commands for GitHub Actions)."""
    for one in linted:
        for found in one.findings:
            place = f"file={_escaped(one.file, _IN_PROPERTY)},line={found.line}"
            title = _escaped(found.rule, _IN_PROPERTY)
            said = f"{found.message}: {found.found}\n{found.why}\nInstead: {found.fix}"
            yield f"::{_LEVELS[found.severity]} {place},title={title}::{_escaped(said, _IN_TEXT)}"


def _escaped(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(one, one) for one in text)
