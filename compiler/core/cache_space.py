"""How much the cache holds, and making room in it: what was not used for the longest time goes first.

An entry is used when it is written and each time it is read, which sets its modification time. Who works with
entries holds a shared lock; who removes entries asks for the same lock alone. Where that is not to be had,
because others are at work, only entries stay out of their way that nobody used for an hour.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compiler.core import disk
from compiler.core.files import remove_unless_locked
from compiler.core.settings import Settings

KINDS = ("libraries", "objects", "peak", "benchmarks", "images", "programs", "candidates", "sycl", "emulated")
"""The directories below the cache's root whose files may be removed at any time: they are made again."""

_LOCK = ".lock"
_IN_USE_SECONDS = 3600.0
_LEAVE_OF_LIMIT = 0.9  # so that not every compile has to make room again


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the cache; `used` is when, in seconds of the clock on the wall.

    `path` is text: every compile lists all of them, and a Path takes longer than the call of the disk.
    """

    kind: str
    path: str
    bytes: int
    used: float


@dataclass(frozen=True, slots=True)
class KindUsage:
    """What one kind of entries takes."""

    kind: str
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """What the cache holds, and how many bytes it may hold after a compile."""

    path: Path
    limit_bytes: int
    kinds: tuple[KindUsage, ...]
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed, what is left, and how much of that stayed because other processes may be using it."""

    removed_entries: int
    removed_bytes: int
    left_entries: int
    left_bytes: int
    in_use_entries: int


def cache_usage(settings: Settings) -> CacheUsage:
    """Count what the cache holds."""
    entries = _entries(settings.cache_dir)
    kinds = []
    for kind in KINDS:
        sizes = [one.bytes for one in entries if one.kind == kind]
        if sizes:
            kinds.append(KindUsage(kind, len(sizes), sum(sizes)))
    total = sum(one.bytes for one in entries)
    return CacheUsage(settings.cache_dir, settings.cache_bytes, tuple(kinds), len(entries), total)


def prune_cache(
    root: Path,
    *,
    max_bytes: int | None = None,
    unused_seconds: float | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Remove entries not used for longer than `unused_seconds`, then the least used down to `max_bytes`.

    `dry_run` removes nothing and reports what would be removed. Entries that cannot be removed stay.
    """
    with _alone(root) as alone:
        entries = sorted(_entries(root), key=lambda one: one.used)
        now, left, removed, in_use = time.time(), sum(one.bytes for one in entries), [], 0
        for one in entries:
            old = unused_seconds is not None and now - one.used > unused_seconds
            if not old and (max_bytes is None or left <= max_bytes):
                continue
            if not alone and now - one.used < _IN_USE_SECONDS:
                in_use += 1
            elif dry_run or _remove(one.path):
                removed.append(one)
                left -= one.bytes
        if alone and not dry_run:
            _remove_leftovers(root)
    gone = sum(one.bytes for one in removed)
    return Pruned(len(removed), gone, len(entries) - len(removed), left, in_use)


def make_room(settings: Settings) -> None:
    """Bring the cache below its limit if it is above; what fails is tried again after the next compile."""
    with contextlib.suppress(OSError):
        if sum(one.bytes for one in _entries(settings.cache_dir)) > settings.cache_bytes:
            prune_cache(settings.cache_dir, max_bytes=int(settings.cache_bytes * _LEAVE_OF_LIMIT))


@contextlib.contextmanager
def cache_in_use(root: Path) -> Iterator[None]:
    """While this lasts, no process removes entries that were used just now; waits for one that does."""
    handle = _open_lock(root)
    try:
        if handle is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[bool]:
    """Keep others from starting to use the cache, if nobody does; tells whether that is so."""
    handle = _open_lock(root)
    try:
        yield handle is not None and _locked(handle)
    finally:
        if handle is not None:
            os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _open_lock(root: Path) -> int | None:
    """The lock file, made where it is missing; None where that cannot be."""
    try:
        disk.make_directories(root)
        return os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError:
        return None


def _entries(root: Path) -> list[Entry]:
    return [entry for kind in KINDS for entry in _walk(kind, str(root / kind))]


def _walk(kind: str, directory: str) -> Iterator[Entry]:
    with contextlib.suppress(OSError), os.scandir(directory) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False):
                yield from _walk(kind, one.path)
            elif not one.name.startswith("."):
                with contextlib.suppress(OSError):
                    facts = one.stat(follow_symlinks=False)
                    yield Entry(kind, one.path, facts.st_size, facts.st_mtime)


def _remove(path: str) -> bool:
    try:
        disk.remove(Path(path))
    except OSError:
        return False
    return True


def _remove_leftovers(root: Path) -> None:
    """Remove empty directories and what killed processes left; to be called while nobody uses the cache."""
    for kind in KINDS:
        for directory, _, names in os.walk(root / kind, topdown=False):
            for name in names:
                if name.startswith(".") and name.endswith(".part"):
                    with contextlib.suppress(OSError):
                        remove_unless_locked(Path(directory, name))
            with contextlib.suppress(OSError):
                disk.remove_directory(Path(directory))
