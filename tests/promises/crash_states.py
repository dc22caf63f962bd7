"""States of a disk after a loss of power, by what was written and what was synced.

The model is weaker than any journal. What a file holds is known by its last sync; each later write may be
there or not, and the file may be empty. Which file a name leads to is known by the last sync of its
directory; each name may lead to what it did at any time since then, independently of others. `sync` and
`sync_directory` are all that a program may count on (fsync(2); "All file systems
are not created equal", OSDI 2014).
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from compiler.core.disk import DiskCall

_DIRECTORY = "directory"


@dataclass(slots=True)
class _File:
    """A file: what it holds for sure, and the writes since then as (offset, data); truncate: (size, None)."""

    base: Path | bytes
    writes: list[tuple[int, bytes | None]] = field(default_factory=list)

    def content(self) -> bytes:
        return _applied(self.base if isinstance(self.base, bytes) else self.base.read_bytes(), self.writes)

    def after_crash(self, drawn: random.Random) -> bytes | Path:
        """What may be found in it."""
        if not self.writes:
            return self.base
        base = self.base if isinstance(self.base, bytes) else self.base.read_bytes()
        how = drawn.randrange(4)
        if how == 0:
            return b""
        if how == 1:
            return self.content()
        if how == 2:
            kept = [one for one in self.writes if drawn.random() < 0.5]
            return _applied(base, kept)
        whole = self.content()
        return whole[: drawn.randrange(len(whole) + 1)]


def _applied(base: bytes, writes: Iterable[tuple[int, bytes | None]]) -> bytes:
    data = bytearray(base)
    for offset, part in writes:
        if part is None:
            data[offset:] = bytes(max(0, offset - len(data)))
            continue
        data.extend(bytes(max(0, offset - len(data))))
        data[offset : offset + len(part)] = part
    return bytes(data)


Inode = _File | str | None
"""What a name leads to: a file, a directory, nothing."""


@dataclass(slots=True)
class CrashDisk:
    """The files below `root`, as they were, and what a program did to them since then.

    `names` has what each path has led to since its directory was synced, the last as it is now.
    """

    root: Path
    names: dict[Path, list[Inode]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path, copy: Path) -> CrashDisk:
        """Everything that is in `copy` was below `root`, for sure."""
        made = cls(root)
        for folder, folders, files in os.walk(copy):
            here = root / Path(folder).relative_to(copy)
            made.names |= {here / name: [_DIRECTORY] for name in folders}
            made.names |= {here / name: [_File(Path(folder, name))] for name in files}
        return made

    def play(self, calls: Iterable[DiskCall]) -> None:
        """Do what a program did; what is outside `root` is nobody's concern after a loss of power."""
        for call in calls:
            if self._inside(call.path) or (call.target is not None and self._inside(call.target)):
                self._play(call)

    def _inside(self, path: Path) -> bool:
        return path.is_relative_to(self.root)

    def _play(self, call: DiskCall) -> None:
        name, path = call.name, call.path
        if name in ("create", "make_directory") and self.now(path) is None:
            self._set(path, _File(b"") if name == "create" else _DIRECTORY)
        elif name in ("write", "truncate", "sync"):
            found = self.now(path)
            assert isinstance(found, _File), call
            if name == "sync":
                found.base, found.writes = found.content(), []
            else:
                found.writes.append((call.offset, call.data if name == "write" else None))
        elif name in ("rename", "link"):
            assert call.target is not None
            self._move(path, call.target, keep=name == "link")
        elif name in ("remove", "remove_directory") and self.now(path) is not None:
            self._set(path, None)
        elif name == "sync_directory":
            for inside in [one for one in self.names if one.parent == path]:
                self.names[inside] = self.names[inside][-1:]

    def _move(self, path: Path, target: Path, *, keep: bool) -> None:
        found = self.now(path)
        if found is None:
            return  # the call failed, as for a link from outside
        inside = [one for one in self.names if one.is_relative_to(path) and one != path]
        self._set(target, found)
        for one in inside:
            self._set(target / one.relative_to(path), self.now(one))
        for one in [] if keep else [path, *inside]:
            self._set(one, None)

    def now(self, path: Path) -> Inode:
        """What a path leads to, to who asks without a crash."""
        return self.names.get(path, [None])[-1]

    def _set(self, path: Path, found: Inode) -> None:
        self.names.setdefault(path, [None]).append(found)

    def crash(self, target: Path, drawn: random.Random) -> None:
        """Write a state that may be found after a loss of power as the folder `target`."""
        contents: dict[int, bytes | Path] = {}
        target.mkdir(parents=True)
        for path in sorted(self.names, key=lambda one: len(one.parts)):
            found = drawn.choice(self.names[path])
            place = target / path.relative_to(self.root)
            if found is None or not place.parent.is_dir():
                continue
            if isinstance(found, str):
                place.mkdir(exist_ok=True)
                continue
            content = contents.setdefault(id(found), found.after_crash(drawn))
            if isinstance(content, bytes):
                place.write_bytes(content)
            elif path.suffix == ".o":
                os.link(content, place)
            else:
                shutil.copyfile(content, place)
