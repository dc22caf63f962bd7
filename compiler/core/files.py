"""The one place that writes files: temporary file beside the target, fsync, rename.

Whoever reads a file written here sees the old content or the new content, never a part, also after `kill -9`.
What a killed process leaves behind has a name of its own (`.NAME.<16 digits>.part` beside the target, and
`tk-NAME-<16 digits>.part` for private directories); its owner held a lock on it, so the next one that finds
it without the lock removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from compiler.core.diagnostics import HostError

_CHUNK_BYTES = 1 << 20
_OURS = re.compile(r"[.-][0-9a-f]{16}\.part")
"""How names end that nobody but us gives: what ends otherwise is somebody's, whatever it begins with."""
_HINT = "check the permissions and the free space of the directory, or choose another place"


def write_atomic(path: Path, data: bytes | str, *, mode: int | None = None) -> None:
    """Write `data` (text as UTF-8) to `path`, making missing parent directories.

    `mode` are permission bits; without it the process's umask decides, as for any new file. Raises HostError
    when the place cannot be written.
    """
    payload = data.encode() if isinstance(data, str) else data
    with _replacing(path) as stream:
        stream.write(payload)
        if mode is not None:
            os.fchmod(stream.fileno(), mode)


@contextlib.contextmanager
def stream_atomic(path: Path, *, executable: bool = False) -> Iterator[BinaryIO]:
    """A new seekable stream whose content becomes the file `path` when the block ends without an error.

    For content too large to hold in memory; otherwise as `write_atomic`. `executable`: whoever may read the
    file may execute it. Removes what killed processes left beside `path`. Raises HostError when the place
    cannot be written.
    """
    with _replacing(path) as stream:
        _remove_abandoned(path.parent, f".{path.name[:64]}.")
        yield stream
        if executable:
            readable = os.fstat(stream.fileno()).st_mode & 0o777
            os.fchmod(stream.fileno(), readable | (readable & 0o444) >> 2)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file beside `path` that takes its place when the block ends without an error."""
    temporary = _part_beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _create(temporary) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        if error.errno is None:  # not the system's: of what the block reads, as requests' are
            raise
        raise _cannot_write(path, error) from error
    finally:
        _discard(temporary)


def replace_atomic(source: Path, target: Path) -> None:
    """Move the finished file `source` to `target` so that `target` is old or new at any moment.

    Both may lie on different file systems: then the bytes are first copied beside `target`. Raises HostError.
    """
    staged: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.stat().st_dev != target.parent.stat().st_dev:
            staged = _stage_copy(source, target)
        finished = staged or source
        with finished.open("rb") as stream:
            os.fsync(stream.fileno())
        finished.replace(target)
        _sync_directory(target.parent)
        if staged is not None:
            source.unlink()
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        if staged is not None:
            _discard(staged)


def copy_atomic(source: Path, target: Path) -> None:
    """Make `target` a copy of the finished file `source`, or where possible a second name of it.

    So a change of one in place may change the other: for targets whose content is checked when they are read.
    Raises HostError when the place cannot be written.
    """
    staged = _part_beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            os.link(source, staged, follow_symlinks=False)
            staged.replace(target)
            return
        replace_atomic(_stage_copy(source, target), target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        _discard(staged)


def private_directory(prefix: str) -> contextlib.AbstractContextManager[Path]:
    """A new directory that only this user can enter, removed with its content at the end."""
    place = Path(tempfile.gettempdir())

    def make() -> Path:
        directory = place / f"{prefix}-{secrets.token_hex(8)}.part"
        directory.mkdir(mode=0o700)
        return directory

    return _held_directory(make, place)


def staging_directory(target: Path) -> contextlib.AbstractContextManager[Path]:
    """A private directory beside `target`: what is made there gets to `target` by one rename.

    Removes what killed processes left beside `target`. Raises HostError when the place cannot be written.
    """

    def make() -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent, f".{target.name[:64]}.")
        directory = _part_beside(target)
        directory.mkdir(mode=0o700)
        return directory

    return _held_directory(make, target)


@contextlib.contextmanager
def _held_directory(make: Callable[[], Path], place: Path) -> Iterator[Path]:
    """A new directory, locked while it is used and removed with its content at the end."""
    try:
        directory, handle = _create_directory(make)
    except OSError as error:
        raise _cannot_write(place, error) from error
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(handle)


def remove_abandoned_directories(prefix: str) -> None:
    """Remove the private directories of this user whose processes were killed."""
    _remove_abandoned(Path(tempfile.gettempdir()), f"{prefix}-")


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_bytes(data: bytes | memoryview) -> str:
    """SHA-256 of `data`, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _part_beside(path: Path) -> Path:
    """A fresh name in the directory of `path`: only a rename within one file system is atomic.

    Raises HostError where a rename to `path` would put a file in place of a device, pipe or directory.
    """
    if path.exists() and not path.is_file():
        raise HostError(
            "cannot write a file", where=str(path), why="something else has that name", hint=_HINT
        )
    return path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}.part")


def _create(path: Path) -> BinaryIO:
    """Open a file that must not exist yet, with the permissions that the umask leaves, and lock it."""
    while True:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        _lock(handle)
        if os.fstat(handle).st_nlink:
            return os.fdopen(handle, "wb")
        os.close(handle)  # taken for abandoned before it was locked


def _create_directory(make: Callable[[], Path]) -> tuple[Path, int]:
    """A new directory and the handle that holds its lock."""
    while True:
        directory = make()
        with contextlib.suppress(FileNotFoundError):  # taken for abandoned before it was locked
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _lock(handle)
            if directory.exists():
                return directory, handle
            os.close(handle)


def _lock(handle: int) -> None:
    """Tell others that somebody works on this file; where a file system has no locks, nobody cleans up."""
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)


def _remove_abandoned(directory: Path, prefix: str) -> None:
    """Remove this user's entries that were named here, begin so, and that nobody has locked."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and _OURS.fullmatch(entry.name[-22:]):
                with contextlib.suppress(OSError):
                    remove_unless_locked(Path(entry.path))


def remove_unless_locked(path: Path) -> None:
    """Remove a file or directory of this user that no process has locked; raises OSError if one has."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(handle)
        if facts.st_uid != os.geteuid() or not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(facts.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _stage_copy(source: Path, target: Path) -> Path:
    staged = _part_beside(target)
    try:
        with source.open("rb") as reader, _create(staged) as writer:
            shutil.copyfileobj(reader, writer, _CHUNK_BYTES)
        shutil.copymode(source, staged)
    except BaseException:
        _discard(staged)
        raise
    return staged


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    """Make a rename durable; file systems that cannot sync a directory are left to their own promise."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _cannot_write(path: Path, error: OSError) -> HostError:
    return HostError(
        "cannot write a file",
        where=str(path),
        why=error.strerror or str(error),
        hint=_HINT,
    )
