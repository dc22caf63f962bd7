"""A lock's versions as apt's preferences: packages that are pulled in get the locked versions, too.

Every version that is not locked has a negative priority, so apt cannot take it (apt_preferences(5)): a
version that has vanished makes the step fail, it never becomes another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from toolchain.images.plan import ContextFile, Instruction, Mount, Pins, Run, Stage

PREFERENCES = "apt/lock.pref"
"""Where the preferences lie in the build context."""
_TARGET = "/run/tk/lock.pref"  # as site.sh expects it
_LOCKED = 1001
"""Above 1000 apt takes a version even when an installed one is newer."""
_NEVER = "Package: *\nPin: release *\nPin-Priority: -1\n"


def preferences(apt: Mapping[str, str]) -> str:
    """The preferences that allow these versions and no others; empty when nothing is locked."""
    if not apt:
        return ""
    entries = [
        f"Package: {name}\nPin: version {version}\nPin-Priority: {_LOCKED}\n"
        for name, version in sorted(apt.items())
    ]
    return "\n".join([_NEVER, *entries])


def lock_files(pins: Pins) -> tuple[ContextFile, ...]:
    """The file of preferences; none when nothing is locked."""
    return (ContextFile(PREFERENCES, preferences(pins.apt).encode()),) if pins.apt else ()


def obeying(instructions: Iterable[Instruction], pins: Pins) -> tuple[Instruction, ...]:
    """The same instructions, in which each installation by apt sees the preferences."""
    return tuple(_obeying(one) if pins.apt else one for one in instructions)


def obeying_stage(stage: Stage, pins: Pins) -> Stage:
    """The same stage, in which each installation by apt sees the preferences."""
    return dataclasses.replace(stage, instructions=obeying(stage.instructions, pins))


def _obeying(one: Instruction) -> Instruction:
    if not isinstance(one, Run) or not any(command[2:4] == ("apt", "install") for command in one.commands):
        return one
    return dataclasses.replace(one, mounts=(*one.mounts, Mount("bind", _TARGET, source=PREFERENCES)))
