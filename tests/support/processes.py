"""Watching processes that are not our children."""

from __future__ import annotations

import os
import time
from pathlib import Path


def ended(pid: int) -> bool:
    """Whether a process is gone or only waits to be reaped by its adopter, within five seconds."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False
