"""All rules over a Dockerfile: findings in the order of their lines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from compiler import BadInputError, UsageError, did_you_mean
from toolchain.lint import layers, pins, security, vendors
from toolchain.lint.dockerfile import parse_dockerfile
from toolchain.lint.rule import Finding, LintRule

_RULES = (*vendors.RULES, *security.RULES, *pins.RULES, *layers.RULES)


def rules() -> tuple[LintRule, ...]:
    """Every rule, the gravest first."""
    order = ("error", "warning", "note")
    return tuple(sorted(_RULES, key=lambda rule: (order.index(rule.severity), rule.id)))


@dataclass(frozen=True, slots=True)
class Linted:
    """One Dockerfile, by the name under which it was given, and what was found in it."""

    file: str
    findings: tuple[Finding, ...]


def lint_file(path: Path, *, ignore: Collection[str] = ()) -> tuple[Finding, ...]:
    """Findings in the Dockerfile at `path`. Raises BadInputError when there is none; see `lint_text`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(
            "cannot read the Dockerfile", where=str(path), why=error.strerror or str(error)
        ) from error
    return lint_text(data, where=str(path), ignore=ignore)


def lint_text(data: bytes | str, *, where: str, ignore: Collection[str] = ()) -> tuple[Finding, ...]:
    """Findings in a Dockerfile's text, sorted by line; each (rule, line, found) once.

    `ignore` are ids of rules that are left out. Raises BadInputError when it is no Dockerfile and UsageError
    for an unknown id.
    """
    known = {rule.id: rule for rule in _RULES}
    for one in ignore:
        if one not in known:
            raise UsageError(
                f"no lint rule is called `{one}`",
                where="--ignore",
                hint=did_you_mean(one, known) or "see docs/lint.md",
            )
    dockerfile = parse_dockerfile(data.encode() if isinstance(data, str) else data, where)
    found = {
        (line, rule.id, text): _finding(rule, line, text)
        for rule in _RULES
        if rule.id not in ignore
        for line, text in rule.check(dockerfile)
    }
    return tuple(found[key] for key in sorted(found))


def _finding(rule: LintRule, line: int, found: str) -> Finding:
    text = " ".join(found.split())
    short = text if len(text) <= 120 else f"{text[:117]}..."
    return Finding(rule.id, rule.severity, line, short, rule.message, rule.why, rule.fix, rule.source)
