"""Sizes as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b?)", re.IGNORECASE | re.ASCII)
_POWERS = "kmgt"


def read_bytes(text: str) -> int:
    """Read `10 GB`, `500M`, `1.5 GiB` or a number of bytes; raises ValueError for anything else."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        raise ValueError(f"`{text}` is no size")
    power = _POWERS.index(found[2].lower()) + 1 if found[2] else 0
    unit: int = (1024 if found[3] else 1000) ** power
    return round(float(found[1]) * unit)


def counted(number: int, thing: str, things: str = "") -> str:
    """`1 problem`, `2 problems`; `things` where the plural is not made with an s."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
