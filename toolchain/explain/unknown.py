"""What nothing is known of: lines that look like an error, and a record of them to fill in."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_WORDS = (
    r"error(?!s?[= ]*[:=]? *0\b)", r"fatal", r"exception", r"traceback", r"panic(?:ked)?",
    r"abort(?:ed|ing)?", r"fail(?:ed|ure)?(?![= ]*[:=]? *0\b)", r"segmentation fault",
    r"undefined reference", r"killed", r"permission denied", r"assertion",
)  # fmt: skip
_WRONG = re.compile(rf"(?<![\w./-])(?:\w+)?(?:{'|'.join(_WORDS)})(?![\w/-]|\.\w)", re.IGNORECASE)
_FINE = re.compile(r"\b(?:0|no|without|ignor\w+|if|on) (?:\w+ )?(?:error|fail)|\bwarning\b", re.IGNORECASE)
KEYS = frozenset(b"erro fata xcep ceba pani abor fail segm ndef kill deni sert".split())
"""Four bytes of each of the words."""

_VOLATILE = re.compile(
    r"0x[0-9a-fA-F]+|(?<![\w.])/[\w./+-]+|\b[0-9a-f]{7,}\b|\d+(?:\.\d+)*|[\\$`\x00-\x1f\x7f-\x9f]+"
)
_LONGEST, _SHORTEST = 200, 8


def looks_wrong(line: str) -> bool:
    """Whether a line reads like an error."""
    return _WRONG.search(line) is not None and _FINE.search(line) is None


def suggested_pattern(line: str) -> str:
    """A line as a pattern: what differs from one time to the next is `*`."""
    pattern = re.sub(r"\*[\s*]*\*", "*", _VOLATILE.sub("*", line)).strip("* ")[:_LONGEST].rstrip("* ")
    return pattern if len(pattern) >= _SHORTEST else ""


def skeleton(lines: Sequence[str]) -> str:
    """A record for `issues/NAME.yaml` of a recipe folder, the first line that gives a pattern filled in."""
    line = next((one for one in lines if suggested_pattern(one)), "")
    shown = "".join(one for one in line if one.isprintable())
    return "\n".join(
        (
            "issues:",
            "  - id: a-name-for-it",
            f"    patterns: [{json.dumps(suggested_pattern(line), ensure_ascii=False)}]",
            f"    examples: [{json.dumps(shown, ensure_ascii=False)}]",
            "    cause: Why it happens.",
            "    evidence: Where that is known from.",
            "    action: What to do about it.",
        )
    )
