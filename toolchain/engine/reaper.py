"""Removes the containers and private directories of a `tk` that was killed: a small process that outlives it.

    python -m toolchain.engine.reaper        # started by Engine, never by a person

Its input says where the engine is (one JSON line), then `+NAME` before a container is created and `-NAME`
once it is removed; `=` at an orderly end. When the input ends, so has `tk`, and what is left is removed, as
soon as the engine answers. Without it, a container that was created and not yet started would stay until the
next `tk` sweeps up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolchain.engine.endpoint import Endpoint, Tls
from toolchain.engine.watch import Patience

FAREWELL = "="
"""The last line of a `tk` that was not killed, which leaves no directory."""
_AGAIN_SECONDS = 4.0
"""How long to look again: a request of `tk` may still be on its way to the engine when `tk` is gone."""
_PAUSE_SECONDS = 0.5
_GIVE_UP_SECONDS = 3600.0
"""How long to wait for an engine that does not answer; what it has then, the next `tk` sweeps up."""
_QUICK = Patience(first=2.0, answer=2.0)
"""An engine that hung forgets who asked: better ask again soon than wait for that answer."""


def introduction(endpoint: Endpoint) -> str:
    """The first line: how to reach the engine."""
    return json.dumps(asdict(endpoint), default=str)


def endpoint_of(line: str) -> Endpoint:
    """The endpoint that `introduction` wrote."""
    facts: dict[str, Any] = json.loads(line)
    tls = facts.pop("tls", None)
    if tls is None:
        return Endpoint(**facts)
    paths = {name: Path(tls[name]) for name in ("ca", "cert", "key")}
    return Endpoint(**facts, tls=Tls(**paths, verify=tls["verify"]))


def left(lines: Iterable[str]) -> tuple[str, ...]:
    """The containers that were announced and not taken back, oldest first."""
    names: dict[str, None] = {}
    for line in lines:
        name = line[1:].strip()
        if line.startswith("+"):
            names[name] = None
        elif line.startswith("-"):
            names.pop(name, None)
    return tuple(names)


def main() -> None:
    """Wait for the end of `tk` and remove what it left."""
    first, *lines = sys.stdin.read().splitlines() or [""]
    if not first:
        return
    names = left(lines)
    from compiler import remove_abandoned_directories

    remove_abandoned_directories("tk")  # secrets of a build, files of a job
    if not names and FAREWELL in lines:
        return
    endpoint = endpoint_of(first)
    give_up = time.monotonic() + _GIVE_UP_SECONDS
    again = _AGAIN_SECONDS if names else 3 * _PAUSE_SECONDS
    done = 0.0
    while done < again and time.monotonic() < give_up:
        began = time.monotonic()
        remove_abandoned_directories("tk")  # a killed process may hold its locks longer than the pipe to us
        removed = not names or _remove(endpoint, names)
        time.sleep(_PAUSE_SECONDS)
        done = done + time.monotonic() - began if removed else 0.0


def _remove(endpoint: Endpoint, names: Iterable[str]) -> bool:
    """Whether the engine was there and has these containers no longer."""
    from compiler import HostError
    from toolchain.engine.client import open_engine

    try:
        engine = open_engine(endpoint, patience=_QUICK)
        for name in names:
            engine.remove_container(name)
    except HostError:
        return False
    return True


if __name__ == "__main__":
    main()
