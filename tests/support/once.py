"""What is built once for all workers of a run: programs that tests of several of them use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(own_cache: Path) -> Once:
    """The folder of a name, which the first who asks fills; to be left as it is."""

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder = own_cache.parent / "once" / name
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not (folder / ".made").exists():
                make(folder)
                (folder / ".made").touch()
        return folder

    return made
