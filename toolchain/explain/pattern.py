"""A pattern of a log's line: plain text, in which `*` stands for any text. No expression that can explode."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

KEY_BYTES = 4
LONG_KEY_BYTES = 8
_COMMON = b"etaoinsrlcdpumfghbvwkyxjzq_/.:-0123456789"
"""Bytes of logs, the most frequent first; others are rare."""
_SPELLINGS = (
    ("\N{LEFT SINGLE QUOTATION MARK}", "'"),
    ("\N{RIGHT SINGLE QUOTATION MARK}", "'"),
    ("\N{LEFT DOUBLE QUOTATION MARK}", '"'),
    ("\N{RIGHT DOUBLE QUOTATION MARK}", '"'),
    ("\N{FULLWIDTH COLON}", ":"),
    ("\N{NO-BREAK SPACE}", " "),
)
_BYTES = tuple((one.encode(), plain.encode()) for one, plain in _SPELLINGS)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What stands in a line, in this order, anything between; `key`: 4 to 8 bytes that every match has."""

    pieces: tuple[bytes, ...]
    key: bytes

    def is_in(self, line: bytes) -> bool:
        """Whether it is in a line that `comparable` made; takes time in proportion to the line."""
        start = 0
        for piece in self.pieces:
            found = line.find(piece, start)
            if found < 0:
                return False
            start = found + len(piece)
        return True


@cache
def read_pattern(text: str) -> Pattern:
    """Raises ValueError where no word has four characters, by which a log could be searched quickly."""
    pieces = tuple(_one_blank(piece) for piece in plain_spelling(text.encode()).lower().split(b"*"))
    keys = [
        word[i : i + LONG_KEY_BYTES]
        for piece in pieces
        for word in piece.split()
        for i in range(len(word) - KEY_BYTES + 1)
    ]
    if not keys:
        raise ValueError("a pattern needs a word of four characters or more")
    return Pattern(tuple(piece for piece in pieces if piece), max(keys, key=_rarity))


def plain_spelling(text: bytes) -> bytes:
    """Quotation marks, colons and blanks of other keyboards as those of ASCII."""
    for one, plain in _BYTES:
        if one[:1] in text:
            text = text.replace(one, plain)
    return text


def comparable(line: bytes) -> bytes:
    """A line as patterns see it: in small letters, single blanks, and one at both ends."""
    return b" " + b" ".join(line.lower().split()) + b" "


def _one_blank(piece: bytes) -> bytes:
    inner = b" ".join(piece.split())
    if not inner:
        return b" " if piece else b""
    return b" " * piece[:1].isspace() + inner + b" " * piece[-1:].isspace()


def _rarity(key: bytes) -> tuple[int, int]:
    """The more bytes the rarer; of equally long ones that which begins with rare bytes."""
    places = [_COMMON.find(key[i : i + 1]) for i in range(KEY_BYTES)]
    return len(key), sum(len(_COMMON) if place < 0 else place for place in places)
