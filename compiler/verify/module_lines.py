"""Loops in the text of a kernel."""

from __future__ import annotations

import re

_LOOP = re.compile(r"\bfor \(")


def innermost_lines(text: str) -> frozenset[int]:
    """Numbers of the lines, from 0, that stand in a loop which has no other loop in it.

    The text is ours: every loop has braces, which open at the end of a line and close at the start of one.
    """
    inside: list[list[int] | None] = []
    """Of each open brace: the lines of a loop so far, None where it is none or has loops in it."""
    found: set[int] = set()
    for number, line in enumerate(text.splitlines()):
        if line.strip().startswith("}") and inside:
            found.update(inside.pop() or ())
        loop = next((one for one in reversed(inside) if one is not None), None)
        if loop is not None:
            loop.append(number)
        if not line.rstrip().endswith("{"):
            continue
        if _LOOP.search(line):
            inside = [None] * len(inside)
            inside.append([])
        else:
            inside.append(None)
    return frozenset(found)
