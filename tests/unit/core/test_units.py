"""Numbers for people: sizes, and things that are counted."""

from __future__ import annotations

import pytest

from compiler.core.units import counted


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("problem",), "0 problems"),
        (1, ("problem",), "1 problem"),
        (2, ("problem",), "2 problems"),
        (1, ("entry", "entries"), "1 entry"),
        (12345, ("entry", "entries"), "12,345 entries"),
    ],
)
def test_one_is_no_plural(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text
