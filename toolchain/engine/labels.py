"""Labels that tk puts on everything that it makes in an engine, so that it finds and removes its own."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

PLAN = "tk.plan"
"""On images: the key of the plan that they were built from; on layers of builds without BuildKit `step:KEY`.

One label for both, as what a layer has the image on it inherits: there it gets the plan's own value, so that
an image is the same whoever built it.
"""
NAME = "tk.name"
"""On images: the canonical name of their recipe."""
RECIPE = "tk.recipe"
"""On the same: the hash of everything in the recipes that decides them."""
STAND_IN = "tk.stand-in"
"""On images built on another base than their recipe's: that base."""
BASE_ID = "tk.base-id"
"""On the same: the id of that base, as its name may come to mean another image."""
_STEP = "step:"
OWNER = "tk.owner"
"""On containers and volumes: the process that made them and removes them at its end.

Containers of build steps have it in their names: labels of a container get into what is committed from it.
"""
VOLUME = "tk.volume"
"""On volumes that are kept: `compiler`, `cache` (a user's) or `build` (of a build's steps)."""
STEP_NAME = "tk-step-"
"""How names of containers of build steps begin; then random digits, and the owner: process, start, host."""


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


def step_name() -> str:
    """A name for the container of a build step, which says whose it is."""
    host, pid, started = owner().rsplit(":", 2)
    return f"{STEP_NAME}{secrets.token_hex(6)}-{pid}-{started}-{host}"


def volume_of(step: str, what: str) -> str:
    """A name for a volume of a build step's container: `what` after the random digits of its name."""
    digits, rest = step.removeprefix(STEP_NAME).split("-", 1)
    return f"{_volumes_begin(digits)}{what}-{rest}"


def is_volume_of(step: str, volume: str) -> bool:
    """Whether a volume is one of that container's, by their names."""
    digits, _, _ = step.removeprefix(STEP_NAME).partition("-")
    return step.startswith(STEP_NAME) and volume.startswith(_volumes_begin(digits))


def _volumes_begin(digits: str) -> str:
    return f"{STEP_NAME}{digits}."


def owner_of(name: str, own: Mapping[str, str]) -> str:
    """Whose a container or volume is, by its label or by the name of a build step's; empty for others'."""
    parts = name.lstrip("/").removeprefix(STEP_NAME).split("-", 3)
    if name.lstrip("/").startswith(STEP_NAME) and len(parts) == 4:
        _, pid, started, host = parts
        return f"{host}:{pid}:{started}"
    return own.get(OWNER, "")


def step_label(key: str) -> str:
    """What the PLAN label of a layer says: which step it is the result of."""
    return f"{_STEP}{key}"


def is_step(own: Mapping[str, str]) -> bool:
    """Whether labels are those of a layer, not of an image of ours."""
    return own.get(PLAN, "").startswith(_STEP)
