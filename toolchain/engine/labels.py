"""Labels that tk puts on everything that it makes in an engine, so that it finds and removes its own."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

PLAN = "tk.plan"
"""On images: the key of the plan that they were built from."""
NAME = "tk.name"
"""On images: the canonical name of their recipe."""
STAND_IN = "tk.stand-in"
"""On images built on another base than their recipe's: that base."""
BASE_ID = "tk.base-id"
"""On the same: the id of that base, as its name may come to mean another image."""
STEP = "tk.step"
"""On layers of the classic builder: what a step was made from, so that it need not run again."""
OWNER = "tk.owner"
"""On containers and volumes: the process that made them and removes them at its end."""


def owner() -> str:
    """This process, so that another one can tell whether it still lives: host, process id and start time."""
    return f"{socket.gethostname()}:{os.getpid()}:{start_time(os.getpid())}"


def start_time(pid: int) -> str:
    """When a process started, in ticks since boot (proc(5), field 22); empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def owned(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Labels for a container or volume that lives no longer than this process."""
    return {OWNER: owner(), **(more or {})}


def is_abandoned(label: str) -> bool:
    """Whether the process that an OWNER label names has ended; those of other machines are not judged."""
    host, _, rest = label.rpartition(":")[0].rpartition(":")
    started = label.rpartition(":")[2]
    return host == socket.gethostname() and rest.isdigit() and start_time(int(rest)) != started


def fresh_name(kind: str) -> str:
    """A name for a container or volume, chosen first, so that it can be removed whatever happens."""
    return f"tk-{kind}-{secrets.token_hex(6)}"
