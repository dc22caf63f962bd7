"""Names from a model as file names: percent-encoded, so that none leaves its directory or hits another."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

_LONGEST = 180  # bytes; file systems allow 255, and a suffix and a temporary file's decoration must fit too


def file_name(name: str) -> str:
    """Encode `name` as one file name without suffix.

    Letters, digits, `_`, `-`, `~` and inner dots stay; all else becomes %XX of its UTF-8 bytes. A name too
    long for a file system is cut and ends in its digest.
    """
    encoded = quote(name, safe="", errors="surrogateescape") or "%"
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) <= _LONGEST:
        return encoded
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()
    return f"{encoded[: _LONGEST - 65]}%{digest}"
