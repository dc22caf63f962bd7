"""The locks of this user's projects on this machine: every path at which tk has written or used one.

One small file for each in the user's state folder, so that two processes never meet; entries of locks that
are gone drop out when the list is read. Whoever removes images asks here what they are still wanted for.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from compiler import HostError, disk, write_atomic


def _folder() -> Path:
    from platformdirs import user_state_path

    return user_state_path("tk", appauthor=False) / "locks"


def remember(path: Path) -> None:
    """Note that there is a lock at `path`; what cannot be noted is no reason to stop."""
    text = str(path.absolute())
    entry = _folder() / hashlib.sha256(text.encode()).hexdigest()[:16]
    with contextlib.suppress(HostError, OSError):
        if not entry.exists():
            write_atomic(entry, f"{text}\n")


def known_locks() -> tuple[Path, ...]:
    """The locks that are still there, sorted."""
    found = []
    with contextlib.suppress(OSError):
        for entry in sorted(_folder().iterdir()):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                path = Path(entry.read_text().removesuffix("\n"))
                if path.is_file():
                    found.append(path)
                else:
                    disk.remove(entry)
    return tuple(sorted(found))
