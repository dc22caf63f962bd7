"""The one place that writes files: temporary file beside the target, fsync, rename.

Whoever reads a file written here sees the old content or the new content, never a part, also after `kill -9`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from compiler.core.diagnostics import HostError

_CHUNK_BYTES = 1 << 20


def write_atomic(path: Path, data: bytes | str, *, mode: int | None = None) -> None:
    """Write `data` (text as UTF-8) to `path`, making missing parent directories.

    `mode` are permission bits; without it the process's umask decides, as for any new file. Raises HostError
    when the place cannot be written.
    """
    payload = data.encode() if isinstance(data, str) else data
    temporary = _part_beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _create(temporary) as stream:
            stream.write(payload)
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        _discard(temporary)


@contextlib.contextmanager
def stream_atomic(path: Path, *, executable: bool = False) -> Iterator[BinaryIO]:
    """A new seekable stream whose content becomes the file `path` when the block ends without an error.

    For content too large to hold in memory; otherwise as `write_atomic`. `executable`: whoever may read the
    file may execute it. Raises HostError when the place cannot be written.
    """
    temporary = _part_beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _create(temporary) as stream:
            yield stream
            if executable:
                readable = os.fstat(stream.fileno()).st_mode & 0o777
                os.fchmod(stream.fileno(), readable | (readable & 0o444) >> 2)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
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


@contextlib.contextmanager
def private_directory(prefix: str) -> Iterator[Path]:
    """A new directory that only this user can enter, removed with its content at the end."""
    try:
        directory = Path(tempfile.mkdtemp(prefix=f"{prefix}-"))
    except OSError as error:
        raise _cannot_write(Path(tempfile.gettempdir()), error) from error
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of `data`, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _part_beside(path: Path) -> Path:
    """A fresh name in the directory of `path`: only a rename within one file system is atomic."""
    return path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}.part")


def _create(path: Path) -> BinaryIO:
    """Open a file that must not exist yet, with the permissions that the umask leaves."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb")


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
        hint="check the permissions and the free space of the directory, or choose another place",
    )
