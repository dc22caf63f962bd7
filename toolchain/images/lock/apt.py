"""A lock's versions as apt gets them: preferences, where old versions are found, and files by their sha256.

Every version that is not locked has a negative priority, so apt cannot take it (apt_preferences(5)): a
version that has vanished makes the step fail, it never becomes another one. The system's own archives have
snapshots; for vendors' repositories, which have none, each file's sha256 is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from toolchain.images.plan import ContextFile, Instruction, Mount, Pins, Run, Stage

if TYPE_CHECKING:
    from toolchain.recipes.schema import Archive

FOLDER = "apt/"
"""Where these files lie in the build context; their names are those that site.sh expects."""
PREFERENCES = f"{FOLDER}lock.pref"
SNAPSHOTS = f"{FOLDER}lock.snapshots"
CHECKSUMS = f"{FOLDER}lock.debs"
_TARGET = "/run/tk/"
_LOCKED = 1001
"""Above 1000 apt takes a version even when an installed one is newer."""
_NEVER = "Package: *\nPin: release *\nPin-Priority: -1\n"
_TIME = "%Y%m%dT%H%M%SZ"
_LATER = timedelta(days=1)
"""Snapshots are taken a few times a day: what was published just before locking is in a later one."""


def preferences(apt: Mapping[str, str]) -> str:
    """The preferences that allow these versions and no others; empty when nothing is locked."""
    if not apt:
        return ""
    entries = [
        f"Package: {name}\nPin: version {version}\nPin-Priority: {_LOCKED}\n"
        for name, version in sorted(apt.items())
    ]
    return "\n".join([_NEVER, *entries])


def snapshot_at(moment: datetime) -> str:
    """A moment as snapshots are named: `20261122T203000Z`."""
    return moment.astimezone(UTC).strftime(_TIME)


def snapshots(pins: Pins, archives: Iterable[Archive]) -> str:
    """Lines `<archive> <its snapshot>`: those of the time of the lock, then those of a day later."""
    if not pins.snapshot or not pins.apt:
        return ""
    locked = datetime.strptime(pins.snapshot, _TIME).replace(tzinfo=UTC)
    times = (pins.snapshot, snapshot_at(locked + _LATER))
    return "".join(f"{one.original} {one.snapshot}/{time}\n" for time in times for one in archives)


def checksums(pins: Pins) -> str:
    """Lines `<sha256> <how the name of the package's file begins>` in apt's folder of archives."""
    lines = []
    for name, deb in sorted(pins.debs.items()):
        package, _, _ = name.partition(":")
        if version := pins.apt.get(name):
            lines.append(f"{deb.sha256} {package}_{version.replace(':', '%3a')}_\n")
    return "".join(lines)


def lock_files(pins: Pins, archives: Iterable[Archive]) -> tuple[ContextFile, ...]:
    """What apt's steps read; nothing when nothing is locked."""
    texts = {
        PREFERENCES: preferences(pins.apt),
        SNAPSHOTS: snapshots(pins, archives),
        CHECKSUMS: checksums(pins),
    }
    return tuple(ContextFile(path, text.encode()) for path, text in texts.items() if text)


def obeying(instructions: Iterable[Instruction], files: Iterable[ContextFile]) -> tuple[Instruction, ...]:
    """The same instructions, in which each installation by apt sees the lock's files."""
    mounts = tuple(
        Mount("bind", f"{_TARGET}{one.path.removeprefix(FOLDER)}", source=one.path) for one in files
    )
    return tuple(_obeying(one, mounts) for one in instructions)


def obeying_stage(stage: Stage, files: Iterable[ContextFile]) -> Stage:
    """The same stage, in which each installation by apt sees the lock's files."""
    return dataclasses.replace(stage, instructions=obeying(stage.instructions, files))


def _obeying(one: Instruction, mounts: tuple[Mount, ...]) -> Instruction:
    if not isinstance(one, Run) or not any(command[2:4] == ("apt", "install") for command in one.commands):
        return one
    return dataclasses.replace(one, mounts=(*one.mounts, *mounts))
