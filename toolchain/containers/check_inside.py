"""Runs inside a job's container before its work: is every accelerator there that the engine was asked for.

    python -c <this file> TOKEN NAME...

An engine may pass over what it was asked for without a word (podman does so with device requests). NAME is a
device node, which is opened for reading and writing as a runtime would, or a library of the driver, which is
loaded. For each that cannot be used `TOKEN missing NAME WHY` is written to standard error, and the exit
status is 125. Nothing but the standard library is imported.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path


def trouble(name: str) -> str:
    """Why a node or library cannot be used; empty when it can."""
    try:
        if name.startswith("/"):
            return _node_trouble(name)
        ctypes.CDLL(name)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _node_trouble(path: str) -> str:
    if not stat.S_ISCHR(Path(path).stat().st_mode):
        return "it is no device"
    os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    return ""


def main(arguments: Sequence[str]) -> int:
    """Say what is missing; 125 when anything is."""
    token, *wanted = arguments
    troubles = {name: why for name in wanted if (why := trouble(name))}
    for name, why in troubles.items():
        sys.stderr.write(f"{token} missing {name} {why}\n")
    return 125 if troubles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
