"""How a node with a SPELLING is written, for printer and parser alike.

    SPELLING = "ramp({base}, {stride}, {lanes:the number of lanes})"
    SPELLING = "async_commit{group!o:a group number}"

`{field}` is a field, written as its annotation says, behind `:` what messages call it. `{field!o}` stands
behind its own name, and not at all where it has its default. Statements inside follow as a suite; where there
are several, each behind the name of its field.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from string import Formatter
from typing import Any, NamedTuple


class Piece(NamedTuple):
    """Literal text, and the field behind it (if there is one): what messages call it, its annotation."""

    text: str
    field: str
    what: str
    kind: str
    optional: bool
    default: object

    @property
    def words(self) -> list[str]:
        """The tokens of the literal text."""
        return re.findall(r"\w+|<-|[^\w\s]", self.text)


@cache
def spelling_of(kind: Any) -> tuple[Piece, ...]:
    """The spelling of a node class, piece by piece; none for one that has no SPELLING."""
    fields: dict[str | None, Any] = {item.name: item for item in dataclasses.fields(kind)}
    none = dataclasses.field()
    none.name, none.type = "", ""
    return tuple(
        Piece(text, (item := fields.get(name, none)).name, what or "", item.type, mark == "o", item.default)
        for text, name, what, mark in Formatter().parse(kind.SPELLING)
    )
