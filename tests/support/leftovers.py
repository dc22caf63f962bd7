"""What may be left of `tk` on an engine and on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from toolchain.engine import store
from toolchain.engine.client import Engine


def until(what: Callable[[], bool], seconds: float) -> bool:
    """Whether it becomes true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def sleeping(seconds: str) -> bool:
    """Whether some process of this machine, in a container or not, is `sleep <seconds>`."""
    wanted = f"sleep\0{seconds}\0".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                return True
        except OSError:
            continue
    return False


def containers(engine: Engine) -> list[str]:
    """Containers of the engine, whoever made them."""
    with engine.guard("list"):
        return [str(one["Names"]) for one in engine.api.containers(all=True)]


def volumes(engine: Engine) -> list[str]:
    """Volumes of the engine but those that are kept, of builds and of jobs in containers."""
    with engine.guard("list"):
        found = engine.api.volumes().get("Volumes") or []
    kept = ("tk-cache-", "tk-compiler-")
    return [one["Name"] for one in found if not one["Name"].startswith(kept)]


def remove_small_images(engine: Engine) -> None:
    """Remove the images of tests/support/plans.py; others may be somebody's."""
    ours = [one for one in store.list_images(engine, untagged=True) if one.name.startswith("small")]
    store.remove_images(engine, ours, force=True)
