"""One process of this user at a time: a lock on a file in the cache, which ends with the process."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

from compiler import HostError, disk, load_settings
from toolchain import console

_POLL_SECONDS = 0.25


@contextlib.contextmanager
def exclusively(kind: str, what: str, *, waiting: str = "") -> Iterator[bool]:
    """Keep other processes from doing the same in their blocks; whether one had to be waited for.

    waiting: what is said then. Raises HostError when the cache cannot be written.
    """
    from filelock import FileLock, Timeout

    same = hashlib.sha256(what.encode()).hexdigest()[:16]
    path = load_settings().cache_dir / "locks" / f"{kind}-{same}"
    lock = FileLock(path)
    waited = False
    try:
        disk.make_directories(path.parent)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            waited = True
            if waiting:
                console.talk(waiting)
            lock.acquire(poll_interval=_POLL_SECONDS)
    except (OSError, NotImplementedError) as error:  # the latter where a file system has no locks
        raise HostError(
            "cannot keep other processes of tk waiting",
            where=str(path),
            why=getattr(error, "strerror", "") or str(error),
            hint="make the cache writable, or choose another place with TK_CACHE_DIR",
        ) from error
    try:
        yield waited
    finally:
        lock.release()
