"""Nobody is told of "1 problems": counts in what commands say go through `counted`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.sources import Source, violations

_COUNT = re.compile(
    r"\{(?:len\([^{}]*\)|[^{}]*\.(?:runs|threads|packages|kernels)|numbers\[[^{}]*\])\} ([a-z]+ )?[a-z]+s\b"
)
_ALWAYS_SEVERAL = re.compile(r" of \{|several|building \{len\(names\)\}")


def unguarded_plurals(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if _COUNT.search(line) and not _ALWAYS_SEVERAL.search(line):
            yield f"line {number}: {line.strip()}"


def test_rule() -> None:
    assert violations(unguarded_plurals, "toolchain/commands", "toolchain/doctor") == []  # type: ignore[arg-type]


def test_the_rule_can_fail() -> None:
    for text in (
        "f'{len(rows)} problems'",
        "f'{len(rows)} smoke tests'",
        "f'{report.runs} runs'",
        "f\"{numbers['problems']} problems\"",
    ):
        assert list(unguarded_plurals(Source("toolchain/commands/x.py", text))), text
