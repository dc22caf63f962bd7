"""Text of others made safe to show: what does not print, and what reorders text, is written as an escape."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHOWN = 8
_READABLE = 2000
_MANY_NUMBERS = 16
_NUMBER = r"[-+]?(?:\d{1,24}(?:\.\d{0,24})?(?:[eE][-+]?\d{1,4})?|nan|inf)"
_NEXT = rf"(?:, ?| ){_NUMBER}"
_NUMBERS = re.compile(
    rf"(?<![\w.])({_NUMBER}(?:{_NEXT}){{{_SHOWN - 1}}})((?:{_NEXT}){{{_MANY_NUMBERS - _SHOWN},}})(?![\w.])"
)


def visible(text: str, keep: str = "") -> str:
    """`text` with every character that does not print as its escape, except those in `keep`.

    Names in a model, a recipe or a container's output may hold escape sequences that command a terminal,
    newlines that forge a line of ours, and marks that reverse what is read.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def cut_text(text: str) -> str:
    """`text`, or where nobody would read it to its end its first and last characters."""
    if len(text) <= 2 * _READABLE:
        return text
    return f"{text[:_READABLE]} ... {len(text) - 2 * _READABLE:,} characters ... {text[-_READABLE:]}"


def cut_numbers(text: str) -> str:
    """`text` with every long list of numbers in it cut to its first ones: `1, 2, 3 ... 97 more`."""
    return _NUMBERS.sub(_cut, text)


def _cut(found: re.Match[str]) -> str:
    return f"{found[1]} ... {len(re.findall(_NEXT, found[2]))} more"


def some(names: Iterable[object], most: int = _SHOWN) -> str:
    """The first of `names` with commas between them, each visible, and how many more there are."""
    every = [visible(str(one)) for one in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
