"""Findings as SARIF 2.1.0 (OASIS), the form in which code hosts and editors take them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from compiler import __version__
from toolchain.lint.report import Linted, rules
from toolchain.lint.rule import Finding, LintRule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_URL = re.compile(r"https://\S+$")


def sarif(linted: Iterable[Linted]) -> dict[str, Any]:
    """The log of one run over some files; rules that found nothing are listed, too."""
    known = rules()
    index = {rule.id: number for number, rule in enumerate(known)}
    driver = {"name": "tk", "version": __version__, "rules": [_rule(one) for one in known]}
    results = [_result(one.file, found, index) for one in linted for found in one.findings]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _rule(rule: LintRule) -> dict[str, Any]:
    named = {"helpUri": rule.source} if _URL.match(rule.source) else {}
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.message},
        "fullDescription": {"text": f"{rule.message}; {rule.why}"},
        "help": {"text": f"{rule.fix}\nSource: {rule.source}"},
        "defaultConfiguration": {"level": rule.severity},
        **named,
    }


def _result(file: str, found: Finding, index: dict[str, int]) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": _uri(file)}, "region": {"startLine": max(found.line, 1)}}
    return {
        "ruleId": found.rule,
        "ruleIndex": index[found.rule],
        "level": found.severity,
        "message": {"text": f"{found.message}: {found.found}; {found.why}. Instead: {found.fix}"},
        "locations": [{"physicalLocation": place}],
    }


def _uri(file: str) -> str:
    """A path as a reference of RFC 3986: relative ones stay so."""
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
