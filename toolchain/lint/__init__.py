"""What is wrong with a Dockerfile, one record per rule: `lint_text` is the door."""

from __future__ import annotations

from toolchain.lint.report import lint_file, lint_text, rules
from toolchain.lint.rule import Finding, Rule, Severity

__all__ = ["Finding", "Rule", "Severity", "lint_file", "lint_text", "rules"]
