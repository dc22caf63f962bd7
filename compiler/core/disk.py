"""The calls that change what is on a disk: each passes one point, where a test can watch it or let it fail.

Without a hook nothing is in between. `core/files.py` is made of these, and so is what removes files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import BinaryIO, cast


@dataclass(frozen=True, slots=True)
class DiskCall:
    """A change that is about to be made.

    name: create, write, truncate, set_mode, sync, sync_directory, rename, link, remove,
    make_directory or remove_directory. path: what is changed; of rename and link what gets the name
    `target`. data: of write, at this offset; of truncate the offset is the new size.
    """

    name: str
    path: Path
    target: Path | None = None
    offset: int = 0
    data: bytes = b""


Hook = Callable[[DiskCall], int | None]
"""Is called before each change, in any thread. It may raise OSError in place of the call; an integer that it
returns for a write is how many bytes of it are written."""

_hook: Hook | None = None


@contextlib.contextmanager
def hooked(hook: Hook) -> Iterator[None]:
    """Call `hook` before each change while this lasts, in this process; for tests."""
    global _hook
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before


def _passed(call: DiskCall) -> int | None:
    return None if _hook is None else _hook(call)


def create(path: Path) -> int:
    """Open a file for writing that must not exist yet, with the permissions that the umask leaves."""
    if _hook is not None:
        _hook(DiskCall("create", path))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def stream(handle: int, path: Path) -> BinaryIO:
    """A buffered stream of a file that `create` opened."""
    if _hook is None:
        return os.fdopen(handle, "wb")
    return cast(BinaryIO, BufferedWriter(_WatchedFile(handle, path)))


class _WatchedFile(FileIO):
    """A file whose writes pass the hook."""

    def __init__(self, handle: int, path: Path) -> None:
        super().__init__(handle, "wb")
        self._path = path

    def write(self, data: object) -> int:
        """One write, which may be of a part of the data."""
        content = bytes(memoryview(data))  # type: ignore[arg-type]
        part = _passed(DiskCall("write", self._path, None, self.tell(), content))
        return super().write(content if part is None else content[: max(part, 1)])

    def truncate(self, size: int | None = None) -> int:
        """Cut off, or make longer with zeros."""
        wanted = self.tell() if size is None else size
        _passed(DiskCall("truncate", self._path, None, wanted))
        return super().truncate(wanted)


def set_mode(handle: int, mode: int, path: Path) -> None:
    """Permissions of an open file."""
    if _hook is not None:
        _hook(DiskCall("set_mode", path, None, mode))
    os.fchmod(handle, mode)


def sync(handle: int, path: Path) -> None:
    """The content of an open file is on the disk when this returns."""
    if _hook is not None:
        _hook(DiskCall("sync", path))
    os.fsync(handle)


def sync_directory(path: Path) -> None:
    """The names in a directory are on the disk when this returns."""
    if _hook is not None:
        _hook(DiskCall("sync_directory", path))
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rename(path: Path, target: Path) -> None:
    """Give a file or directory another name, in place of what has it."""
    if _hook is not None:
        _hook(DiskCall("rename", path, target))
    path.replace(target)


def link(path: Path, target: Path) -> None:
    """Give a file one name more; FileExistsError where something has it."""
    if _hook is not None:
        _hook(DiskCall("link", path, target))
    os.link(path, target, follow_symlinks=False)


def remove(path: Path) -> None:
    """Take a file its name; nothing happens where there is none."""
    if _hook is not None:
        _hook(DiskCall("remove", path))
    path.unlink(missing_ok=True)


def make_directory(path: Path, mode: int = 0o777) -> None:
    """A new directory; FileExistsError where something has the name."""
    if _hook is not None:
        _hook(DiskCall("make_directory", path))
    path.mkdir(mode=mode)


def make_directories(path: Path) -> None:
    """A directory and those above it, as far as they are missing."""
    if path.is_dir():
        return
    if not path.parent.exists():  # else the system says why, as of a file in the way
        make_directories(path.parent)
    try:
        make_directory(path)
    except FileExistsError:
        if not path.is_dir():
            raise


def remove_directory(path: Path) -> None:
    """Remove an empty directory."""
    if _hook is not None:
        _hook(DiskCall("remove_directory", path))
    path.rmdir()


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it, as far as that can be done."""
    if _hook is None:
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(path), key=lambda one: one.name):
            inside = Path(entry.path)
            with contextlib.suppress(OSError):
                (remove_tree if entry.is_dir(follow_symlinks=False) else remove)(inside)
        remove_directory(path)
