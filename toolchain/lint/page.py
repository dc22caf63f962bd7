"""The lint rules as a page of the documentation."""

from __future__ import annotations

from toolchain.lint.report import rules

_HEAD = """# Lint for Dockerfiles

`tk image lint DOCKERFILE...` reads Dockerfiles that somebody else wrote and says what drifts, leaks or does
not work: file, line, what stands there, why it matters, what to do, and who says so. Nothing is built or
fetched. `-` is standard input; `--ignore RULE` leaves a rule out. Exit code 1 with findings, else 0; 3 when a
file cannot be read, after the findings in the others.

| `--format` | |
|---|---|
| `text` | for people; why, fix and source with the first finding of each rule |
| `json` (or `--json`) | `files`, and `findings` as records with `file` and `line` |
| `sarif` | SARIF 2.1.0 for code hosts and editors: `tk image lint Dockerfile --format sarif >lint.sarif` |
| `github` | workflow commands: in a job of GitHub Actions each finding stands beside its line |

An *error* does not work or is unsafe, a *warning* makes the image drift or surprise, a *note* is about size,
time or what others will trip over. Made from the rules by `bin/just golden`.

| rule | severity | finds | do instead | source |
|---|---|---|---|---|
"""


def rules_page() -> str:
    """docs/lint.md: what the command does, and a row for each rule."""
    rows = (
        (f"`{one.id}`", one.severity, f"{one.message}; {one.why}", one.fix, one.source) for one in rules()
    )
    return _HEAD + "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
