"""How far a long piece of work has come, for whoever asked to be told; the compiler itself shows nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

Progress = Callable[[str, float, float], None]
"""Is told what is being done, how much of it is done, and of how much: 0 where nobody can say.

It may be called from any thread, and must not take long.
"""


def silent(_doing: str, _done: float, _total: float) -> None:
    """Tell nobody."""


class Steps:
    """Counts the steps of one phase, which may end in several threads, and tells each time."""

    def __init__(self, progress: Progress, doing: str, total: float) -> None:
        self._progress = progress
        self._doing = doing
        self._done = 0.0
        self._total = total
        self._lock = threading.Lock()
        progress(doing, 0, total)

    def advance(self, steps: float = 1) -> None:
        """`steps` more are done."""
        with self._lock:
            self._done += steps
            self._progress(self._doing, self._done, self._total)
