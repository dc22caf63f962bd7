"""A content-addressed cache on disk: verified on every read, written atomically, safe for many processes.

An entry is one file, `root/<2 digits of key>/<key>/<SHA-256 of the payload><suffix>`: the name carries the
digest, so one rename publishes payload and digest together. A file whose bytes do not match its name is
removed and counts as absent; the worst outcome of a power loss or a flipped bit is work done again.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from compiler.core import disk
from compiler.core.diagnostics import HostError, InternalError
from compiler.core.files import (
    private_directory,
    remove_abandoned_parts,
    sha256_bytes,
    sha256_file,
    write_atomic,
)
from compiler.core.single_flight import single_flight

_DIGITS = 64
_KEY = re.compile(r"[0-9a-f]{64}")
_SUFFIX = re.compile(r"[a-z0-9._-]{0,32}")


class _Spare:
    """Takes this process's entries where the cache cannot: a directory that goes when the process ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: Path | None = None
        self.trouble: HostError | None = None

    def put(self, trouble: HostError, below: Path, data: bytes) -> Path:
        """Store an entry that the cache had no place for, and remember why it had none."""
        with self._lock:
            self.trouble = trouble
            if self._root is None:
                held = contextlib.ExitStack()
                self._root = held.enter_context(private_directory("tk-spare"))
                atexit.register(held.close)
        write_atomic(self._root / below, data)
        return self._root / below

    def folders(self, below: Path) -> tuple[Path, ...]:
        """Where entries of a folder of the cache would be; nowhere as long as there are none."""
        return () if self._root is None else (self._root / below,)


_SPARE = _Spare()


def cache_trouble() -> tuple[str, ...]:
    """What kept this process from writing to the cache since it was last asked; empty when nothing did."""
    trouble, _SPARE.trouble = _SPARE.trouble, None
    if trouble is None:
        return ()
    return (f"nothing could be kept in the cache: {trouble.why or trouble.what} ({trouble.where})",)


class ContentCache:
    """Files under `root`, found by a key that `content_key` made from everything that determines them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, key: str, suffix: str = "") -> Path | None:
        """Path of the payload of `key`, or None; a damaged entry is removed and counts as absent."""
        below = self._below(key, suffix)
        folders = (self.root / below, *_SPARE.folders(below))
        for path in (path for folder in folders for path in _entries(folder, suffix)):
            with contextlib.suppress(OSError):
                if sha256_file(path) == path.name[:_DIGITS]:
                    touch(path)
                    return path
                disk.remove(path)
        return None

    def put(self, key: str, data: bytes, suffix: str = "") -> Path:
        """Store `data` under `key` and return the payload's path; concurrent writers do not disturb it.

        Where the cache cannot be written (its disk is full), the payload lies in a directory of this process
        as long as that lasts, and `cache_trouble` says so. Raises HostError where that cannot be, either.
        """
        folder = self._below(key, suffix)
        below = folder / f"{sha256_bytes(data)}{suffix}"
        remove_abandoned_parts(self.root / folder)
        try:
            write_atomic(self.root / below, data, durable=False)
        except HostError as trouble:
            return _SPARE.put(trouble, below, data)
        return self.root / below

    def made(self, key: str, make: Callable[[], bytes], suffix: str = "") -> Path:
        """Path of the payload of `key`, which `make` makes where there is none; raises what that does.

        Where several processes or threads want it, one makes it and the others wait.
        """
        if found := self.get(key, suffix):
            return found
        with single_flight(self.root, key) as waited:
            return (self.get(key, suffix) if waited else None) or self.put(key, make(), suffix)

    def _below(self, key: str, suffix: str) -> Path:
        if not _KEY.fullmatch(key) or not _SUFFIX.fullmatch(suffix):
            raise InternalError(
                "a cache key is not the work of content_key", where=f"key {key!r}, suffix {suffix!r}"
            )
        return Path(key[:2], key)


def checked_content(path: Path) -> bytes:
    """The bytes of an entry, if they are still those that its name tells; of another file just its bytes.

    Who goes on with these bytes, not with the file, is not handed what somebody puts there meanwhile. Raises
    HostError.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _changed(path, error.strerror or str(error)) from error
    if _KEY.fullmatch(path.name[:_DIGITS]) and sha256_bytes(data) != path.name[:_DIGITS]:
        raise _changed(path, "its content is another one now")
    return data


def _changed(path: Path, why: str) -> HostError:
    return HostError(
        "an entry of the cache changed while it was used", where=str(path), why=why, hint="compile again"
    )


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
