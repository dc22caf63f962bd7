"""The one place that writes files: temporary file beside the target, fsync, rename.

Whoever reads a file written here sees the old content or the new content, never a part, also after `kill -9`.
What a killed process leaves behind has a name of its own (`.NAME.<16 digits>.part` beside the target, and
`tk-NAME-<16 digits>.part` for private directories); its owner held a lock on it, so the next one that finds
it without the lock removes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import resource
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from compiler.core import disk
from compiler.core.diagnostics import HostError
from compiler.core.settings import temporary_folders

_CHUNK_BYTES = 1 << 20
_LOST = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""Of errors of a sync, those that say that something was not written."""
_OURS = re.compile(r"[.-][0-9a-f]{16}\.part")
"""How names end that nobody but us gives: what ends otherwise is somebody's, whatever it begins with."""
_HINT = "check the permissions and the free space of the directory, or choose another place"


def write_atomic(
    path: Path, data: bytes | str, *, mode: int | None = None, is_new: bool = False, durable: bool = True
) -> None:
    """Write `data` (text as UTF-8) to `path`, making missing parent directories.

    `mode` are permission bits; without it the process's umask decides, as for any new file. `is_new`: nothing
    may have that name. Without `durable` a loss of power may leave any content, so it is for what is checked
    when it is read, and what killed processes left beside `path` stays. Raises HostError when the place
    cannot be written.
    """
    payload = data.encode() if isinstance(data, str) else data
    with _replacing(path, is_new=is_new, durable=durable, size=len(payload)) as stream:
        if durable:
            _remove_abandoned(path.parent, f".{path.name[:64]}.")
        stream.write(payload)
        if mode is not None:
            disk.set_mode(stream.fileno(), mode, path)


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
            disk.set_mode(stream.fileno(), readable | (readable & 0o444) >> 2, path)


@contextlib.contextmanager
def _replacing(
    path: Path, *, is_new: bool = False, durable: bool = True, size: int | None = None
) -> Iterator[BinaryIO]:
    """A new file beside `path` that takes its place when the block ends without an error."""
    temporary = _part_beside(path)
    try:
        to_sync = _make_parents(path)
        with _create(temporary) as stream:
            yield stream
            stream.flush()
            if durable:
                disk.sync(stream.fileno(), temporary)
        (disk.link if is_new else disk.rename)(temporary, path)
        if durable:
            _sync_directories(to_sync)
    except OSError as error:
        if error.errno is None:  # not the system's: of what the block reads, as requests' are
            raise
        raise _cannot_write(path, error, size) from error
    finally:
        _discard(temporary)


def _make_parents(path: Path) -> list[Path]:
    """Make the missing directories above `path`; returns all that have to be synced when `path` is there."""
    missing = [parent for parent in path.parents if not parent.exists()]
    disk.make_directories(path.parent)
    return [path.parent, *(parent.parent for parent in missing)]


def replace_atomic(source: Path, target: Path) -> None:
    """Move the finished file `source` to `target` so that `target` is old or new at any moment.

    Both may lie on different file systems: then the bytes are first copied beside `target`. Raises HostError.
    """
    staged: Path | None = None
    try:
        to_sync = _make_parents(target)
        if source.stat().st_dev != target.parent.stat().st_dev:
            staged = _stage_copy(source, target)
        finished = staged or source
        with finished.open("rb") as stream:
            disk.sync(stream.fileno(), finished)
        disk.rename(finished, target)
        _sync_directories(to_sync)
        if staged is not None:
            disk.remove(source)
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
        disk.make_directories(target.parent)
        with contextlib.suppress(OSError):
            disk.link(source, staged)
            disk.rename(staged, target)
            return
        replace_atomic(_stage_copy(source, target), target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        _discard(staged)


def publish_directory(source: Path, target: Path) -> None:
    """Rename the finished directory `source` to `target`, which is not there or is an empty directory.

    Both are on one file system. Raises HostError.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            disk.remove_directory(target)
        for directory, _, names in os.walk(source, topdown=False):
            _sync_directories([Path(directory)] if names else [])
        disk.rename(source, target)
        _sync_directories([target.parent])
    except OSError as error:
        raise _cannot_write(target, error) from error


def remove_own(path: Path) -> None:
    """Remove a file, or a directory with all that is in it; raises HostError where it stays."""
    try:
        if path.is_dir() and not path.is_symlink():
            disk.remove_tree(path)
        disk.remove(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise HostError("cannot remove a file", where=str(path), why=why, hint=_HINT) from error


@contextlib.contextmanager
def private_directory(prefix: str) -> Iterator[Path]:
    """A new directory that only this user can enter, removed with its content at the end.

    It lies in the first temporary folder that takes a file. Raises HostError where none does.
    """
    with _held(*_private_directory(prefix)) as directory:
        yield directory


@contextlib.contextmanager
def private_stream(prefix: str) -> Iterator[BinaryIO]:
    """A stream to write and read what is too large to hold in memory; its file goes at the end.

    Raises HostError where no temporary folder takes a file.
    """
    with private_directory(prefix) as directory, (directory / "stream").open("w+b") as stream:
        yield stream


def _private_directory(prefix: str) -> tuple[Path, int]:
    """A new directory and the handle that holds its lock."""
    failed: list[tuple[Path, OSError]] = []
    for folder in temporary_folders():
        try:
            return _private_directory_in(folder.absolute(), prefix)
        except OSError as error:
            failed.append((folder, error))
    folder, why = next((one for one in failed if one[0].is_dir()), failed[0])
    raise _cannot_write(folder, why) from why


def _private_directory_in(folder: Path, prefix: str) -> tuple[Path, int]:
    """The same in a folder, which may be full; raises OSError where it takes no file."""

    def make() -> Path:
        directory = folder / f"{prefix}-{secrets.token_hex(8)}.part"
        disk.make_directory(directory, 0o700)
        return directory

    directory, handle = _create_directory(make)
    try:
        # A full disk may take directories. Inside, as the next process removes it should this one be killed.
        probe = directory / "probe"
        with disk.stream(disk.create(probe), probe) as stream:
            stream.write(b"room")
        disk.remove(probe)
    except BaseException:
        disk.remove_tree(directory)
        os.close(handle)
        raise
    return directory, handle


@contextlib.contextmanager
def staging_directory(target: Path) -> Iterator[Path]:
    """A private directory beside `target`: what is made there gets to `target` by one rename.

    Removes what killed processes left beside `target`. Raises HostError when the place cannot be written.
    """

    def make() -> Path:
        disk.make_directories(target.parent)
        _remove_abandoned(target.parent, f".{target.name[:64]}.")
        directory = _part_beside(target, may_be_directory=True)
        disk.make_directory(directory, 0o700)
        return directory

    try:
        directory, handle = _create_directory(make)
    except OSError as error:
        raise _cannot_write(target, error) from error
    with _held(directory, handle):
        yield directory


@contextlib.contextmanager
def _held(directory: Path, handle: int) -> Iterator[Path]:
    """A new directory whose lock the handle holds, removed with its content at the end."""
    try:
        yield directory
    finally:
        disk.remove_tree(directory)
        os.close(handle)


def remove_abandoned_directories(prefix: str) -> None:
    """Remove the private directories of this user whose processes were killed."""
    for folder in temporary_folders():
        _remove_abandoned(folder, f"{prefix}-")


def remove_abandoned_parts(directory: Path) -> None:
    """Remove what killed processes left in a directory where they were writing files."""
    _remove_abandoned(directory, ".")


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_bytes(data: bytes | memoryview) -> str:
    """SHA-256 of `data`, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _part_beside(path: Path, *, may_be_directory: bool = False) -> Path:
    """A fresh name in the directory of `path`: only a rename within one file system is atomic.

    Raises HostError where a rename to `path` would put a file in place of a device, pipe or directory.
    """
    if path.exists() and not path.is_file() and not (may_be_directory and path.is_dir()):
        raise HostError(
            "cannot write a file", where=str(path), why="something else has that name", hint=_HINT
        )
    return path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}.part")


def _create(path: Path) -> BinaryIO:
    """Open a file that must not exist yet, with the permissions that the umask leaves, and lock it."""
    while True:
        handle = disk.create(path)
        _lock(handle)
        if os.fstat(handle).st_nlink:
            return disk.stream(handle, path)
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
            disk.remove_tree(path)
        else:
            disk.remove(path)
    finally:
        os.close(handle)


def _stage_copy(source: Path, target: Path) -> Path:
    staged = _part_beside(target)
    try:
        with source.open("rb") as reader, _create(staged) as writer:
            shutil.copyfileobj(reader, writer, _CHUNK_BYTES)
            mode = stat.S_IMODE(os.fstat(reader.fileno()).st_mode)
            disk.set_mode(writer.fileno(), mode, staged)
    except BaseException:
        _discard(staged)
        raise
    return staged


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        disk.remove(path)


def _sync_directories(directories: list[Path]) -> None:
    """Make names durable; file systems that cannot sync a directory are left to their own promise."""
    for directory in directories:
        try:
            disk.sync_directory(directory)
        except OSError as error:
            if error.errno in _LOST:
                raise


def _cannot_write(path: Path, error: OSError, size: int | None = None) -> HostError:
    room = lack_of_room(path, error.errno, size)
    why = error.strerror or str(error)
    return HostError(
        "cannot write a file", where=str(path), why=f"{why}: {room}" if room else why, hint=_HINT
    )


def lack_of_room(path: Path, number: int | None, size: int | None = None) -> str:
    """In bytes, what is free where `path` was to be written and what is needed; empty for another error."""
    needed = "" if size is None else f", {size:,} are needed"
    if number == errno.EFBIG:
        return f"no file may have more than {resource.getrlimit(resource.RLIMIT_FSIZE)[0]:,} bytes{needed}"
    if number not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    existing = next((one for one in (path, *path.parents) if one.is_dir()), path)
    try:
        facts = os.statvfs(existing)
    except OSError:
        return ""
    return f"{facts.f_bavail * facts.f_frsize:,} bytes are free{needed}"
