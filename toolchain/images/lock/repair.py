"""A `tk.lock` that cannot be read, put in order: what can be read of it is kept, and its bytes as a copy."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler import BadInputError, TkError, run, write_atomic
from toolchain.images.lock.file import FORMAT, Lock, LockedImage, lock_text, parse_lock, read_lock

_GIT_SECONDS = 20.0
_HEADER = re.compile(r"\s*\[image\.(?:\"(?P<quoted>[^\"]*)\"|(?P<bare>[\w-]+))(?=[.\]])")
_FORMAT = re.compile(rb"^format\s*=\s*(\d{1,9})\s*$", re.MULTILINE)
_SIDES = {"<": "ours", "|": "base", "=": "theirs", ">": ""}

_Sections = Mapping[str, LockedImage | None]
"""Name of a section -> what it says; None when it cannot be read."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What became of a broken lock: sections that were kept and lost, and the copy of what stood there."""

    kept: tuple[str, ...]
    lost: tuple[str, ...]
    backup: Path


def repair_lock(path: Path) -> Repaired | None:
    """Put the lock at `path` in order; None when it is, or when there is none.

    Each section that can be read stays as it is. Of an unfinished merge a section is kept that one side alone
    has or has changed, as far as what both started from is known; one that both have changed is lost. Raises
    BadInputError for the lock of a newer tk and for what is no file, HostError when nothing can be written.
    """
    try:
        read_lock(path)
    except BadInputError as error:
        data = _broken_bytes(path, error)
    else:
        return None
    found = mended(data.decode(errors="replace"), path)
    lock = Lock({name: one for name, one in found.items() if one is not None})
    lost = tuple(sorted(name for name, one in found.items() if one is None))
    backup = _copy(path, data)
    write_atomic(path, lock_text(lock))
    return Repaired(tuple(sorted(lock.images)), lost, backup)


def mended(text: str, path: Path) -> _Sections:
    """The sections of a lock's text, both sides of an unfinished merge brought together."""
    ours = _sections(_side(text, "ours"))
    theirs = _sections(_side(text, "theirs"))
    if ours == theirs:
        return ours
    base = _sections(_side(text, "base")) if re.search(r"^\|{7}", text, re.MULTILINE) else _base(path)
    names = sorted({*ours, *theirs})
    return {name: found for name in names for found in _merged(name, ours, theirs, base)}


def _merged(
    name: str, ours: _Sections, theirs: _Sections, base: _Sections | None
) -> Iterator[LockedImage | None]:
    """What one section is after the merge: nothing where a side has removed it."""
    if base is not None and base.get(name) is not None:
        for one, other in ((ours, theirs), (theirs, ours)):
            if one.get(name) == base[name]:  # the other side alone has changed or removed it
                yield from (other[name],) if name in other else ()
                return
    if name not in ours or name not in theirs:
        yield ours[name] if name in ours else theirs[name]
        return
    yield ours[name] if ours[name] == theirs[name] else None


def _broken_bytes(path: Path, error: BadInputError) -> bytes:
    """What stands in a broken lock; raises `error` for what is not ours to mend."""
    try:
        data = path.read_bytes()
    except OSError:
        raise error from None
    said = _FORMAT.search(data)
    if said and int(said[1]) > FORMAT:
        raise error
    return data


def _side(text: str, wanted: str) -> str:
    """The text as it was before a merge, on one side of it."""
    lines, here = [], ""
    for line in text.splitlines():
        if marker := re.match(r"(<{7}|\|{7}|={7}|>{7})(?= |$)", line):
            here = _SIDES[marker[1][0]]
        elif here in ("", wanted):
            lines.append(line)
    return "\n".join(lines)


def _sections(text: str) -> _Sections:
    """Each section read for itself."""
    blocks: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name = header["quoted"] or header["bare"] or ""
        elif line.lstrip().startswith("["):
            name = ""
        if name:
            blocks.setdefault(name, []).append(line)
    return {name: _section(name, lines) for name, lines in blocks.items()}


def _section(name: str, lines: list[str]) -> LockedImage | None:
    try:
        lock = parse_lock("\n".join((f"format = {FORMAT}", *lines)).encode(), name)
    except TkError:
        return None
    return lock.images.get(name)


def _base(path: Path) -> _Sections | None:
    """What both sides of a merge that git has not finished started from; None when nobody knows."""
    try:
        done = run(["git", "show", f":1:./{path.name}"], cwd=path.parent, timeout=_GIT_SECONDS)
    except TkError:
        return None
    return _sections(done.stdout) if done.returncode == 0 else None


def _copy(path: Path, data: bytes) -> Path:
    """A copy beside the lock, under a name that nothing has."""
    numbered = (f"{path.name}.broken" + (f"-{number}" if number > 1 else "") for number in itertools.count(1))
    target = next(one for name in numbered if not (one := path.with_name(name)).exists())
    write_atomic(target, data)
    return target
