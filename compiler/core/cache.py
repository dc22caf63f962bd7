"""A content-addressed cache on disk: verified on every read, written atomically, safe for many processes.

An entry is one file, `root/<2 digits of key>/<key>/<SHA-256 of the payload><suffix>`: the name carries the
digest, so one rename publishes payload and digest together. A file whose bytes do not match its name is
removed and counts as absent; the worst outcome of a power loss or a flipped bit is work done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path

from compiler.core.diagnostics import InternalError
from compiler.core.files import sha256_bytes, sha256_file, write_atomic

_DIGITS = 64
_KEY = re.compile(r"[0-9a-f]{64}")
_SUFFIX = re.compile(r"[a-z0-9._-]{0,32}")


class ContentCache:
    """Files under `root`, found by a key that `content_key` made from everything that determines them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, key: str, suffix: str = "") -> Path | None:
        """Path of the payload of `key`, or None; a damaged entry is removed and counts as absent."""
        directory = self._directory(key, suffix)
        for path in _entries(directory, suffix):
            with contextlib.suppress(OSError):
                if sha256_file(path) == path.name[:_DIGITS]:
                    touch(path)
                    return path
                path.unlink(missing_ok=True)
        return None

    def put(self, key: str, data: bytes, suffix: str = "") -> Path:
        """Store `data` under `key` and return the payload's path; concurrent writers do not disturb it."""
        path = self._directory(key, suffix) / f"{sha256_bytes(data)}{suffix}"
        write_atomic(path, data)
        return path

    def _directory(self, key: str, suffix: str) -> Path:
        if not _KEY.fullmatch(key) or not _SUFFIX.fullmatch(suffix):
            raise InternalError(
                "a cache key is not the work of content_key", where=f"key {key!r}, suffix {suffix!r}"
            )
        return self.root / key[:2] / key


def touch(path: Path) -> None:
    """Remember that an entry was used now: those not used for the longest time are removed first."""
    with contextlib.suppress(OSError):  # the cache of somebody else: read only
        os.utime(path)


def _entries(directory: Path, suffix: str) -> list[Path]:
    """Finished files with this suffix, in a fixed order so that all processes prefer the same one."""
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError:
        return []
    return [directory / name for name in names if _KEY.fullmatch(name[:_DIGITS]) and name[_DIGITS:] == suffix]


def content_key(*parts: str | bytes) -> str:
    """SHA-256 over the parts, each preceded by its length and kind, so that no two lists of parts collide."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        kind = b"s" if isinstance(part, str) else b"b"
        digest.update(kind + len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
