"""What is wrong with a Dockerfile, one record per rule: `lint_text` is the door."""

from __future__ import annotations

from toolchain.lint.github import github_lines
from toolchain.lint.report import Linted, lint_file, lint_text, rules
from toolchain.lint.rule import Finding, LintRule, Severity
from toolchain.lint.sarif import sarif

__all__ = [
    "Finding", "LintRule", "Linted", "Severity", "github_lines", "lint_file", "lint_text", "rules", "sarif",
]  # fmt: skip
