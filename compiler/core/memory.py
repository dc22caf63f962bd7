"""How much memory a process holds together with all that it started, as the kernel tells in /proc."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_GROUP = Path("/sys/fs/cgroup/memory.max")
_FIELDS = re.compile(rb"^(PPid|RssAnon|RssShmem|VmRSS):\s*(\d+)", re.MULTILINE)


def memory_here(proc: Path = _PROC, group: Path = _GROUP) -> int | None:
    """Bytes of memory that this machine has, or this container may have; None where nobody tells."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        found.append(int((proc / "meminfo").read_text().split()[1]) * 1024)
    with suppress(OSError, ValueError):  # "max", where there is no limit
        found.append(int(group.read_text()))
    return min(found, default=None)


def held_bytes(root: int, proc: Path = _PROC) -> int:
    """Bytes that process `root` and its descendants hold and that no file backs; 0 where nobody tells.

    Pages of libraries and of constants in them do not count: the kernel may drop and read them again.
    """
    facts = {int(one.name): _facts(one / "status") for one in proc.glob("[0-9]*")}
    children: dict[int, list[int]] = {}
    for number, (parent, _) in facts.items():
        children.setdefault(parent, []).append(number)
    held, waiting = 0, [root]
    while waiting:
        number = waiting.pop()
        held += facts.get(number, (0, 0))[1]
        waiting += children.get(number, [])
    return held


def _facts(status: Path) -> tuple[int, int]:
    """The parent of a process, and the bytes that it holds."""
    try:
        found = {name: int(value) for name, value in _FIELDS.findall(status.read_bytes())}
    except OSError:  # it has ended meanwhile
        return 0, 0
    own = found.get(b"RssAnon", found.get(b"VmRSS", 0)) + found.get(b"RssShmem", 0)
    return found.get(b"PPid", 0), own * 1024
