"""The one opener of external tensor data.

A model file may name other files that hold its weights. Such a name is untrusted: it must stay inside the
model's directory, name a regular file by plain path components (no links), and hold the bytes it promises.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

from compiler.core.diagnostics import BadInputError

_ONLY_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ONLY_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class ExternalData:
    """Files of tensor data below one directory; each is mapped once, and only read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._maps: dict[str, memoryview] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The files that were opened, as the model calls them."""
        return tuple(self._maps)

    def content(self, location: str, tensor: str) -> memoryview:
        """All bytes of the file `location`; raises BadInputError, naming `tensor`."""
        if location not in self._maps:
            self._maps[location] = self._map(location, tensor)
        return self._maps[location]

    def read(self, location: str, offset: int, length: int, tensor: str) -> memoryview:
        """`length` bytes at `offset` of the file `location`; raises BadInputError, naming `tensor`."""
        content = self.content(location, tensor)
        if offset < 0 or length < 0 or offset + length > len(content):
            raise BadInputError(
                f"external data of {tensor!r} lies outside its file",
                where=location,
                why=f"bytes {offset}..{offset + length} of a file of {len(content)} bytes",
                hint="copy the data file again; it may be cut off or belong to another model",
            )
        return content[offset : offset + length]

    def _map(self, location: str, tensor: str) -> memoryview:
        handle = self._open(location, tensor)
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
                raise _refused(location, tensor, "it is no plain file of its own (device, pipe or hard link)")
            if facts.st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(handle, facts.st_size, access=mmap.ACCESS_READ))
        finally:
            os.close(handle)

    def _open(self, location: str, tensor: str) -> int:
        """Open component by component, following no link, so that nothing can lead outside."""
        parts = location.split("/")
        if not location or location.startswith("/") or "\\" in location or "\0" in location:
            raise _refused(location, tensor, "the path is not relative to the model's directory")
        if ".." in parts:
            raise _refused(location, tensor, "the path leaves the model's directory")
        parts = [part for part in parts if part not in ("", ".")]
        if not parts:
            raise _refused(location, tensor, "the path names no file")
        current = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for number, part in enumerate(parts):
                flags = _ONLY_FILE if number == len(parts) - 1 else _ONLY_DIRECTORY
                below = os.open(part, flags, dir_fd=current)
                os.close(current)
                current = below
        except OSError as error:
            os.close(current)
            reason = error.strerror or "cannot be opened"
            raise _refused(location, tensor, f"{reason} (links are not followed)") from error
        return current


def _refused(location: str, tensor: str, why: str) -> BadInputError:
    return BadInputError(
        f"external data of {tensor!r} cannot be read",
        where=location[:200],
        why=why,
        hint="keep the data files in the model's directory, under the names the model uses",
    )
