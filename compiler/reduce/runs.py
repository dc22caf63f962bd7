"""Runs of what the steps of the compiler made, compared with what they are to give."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from compiler.core.diagnostics import BuildError
from compiler.reduce.ddmin import smallest_prefix
from compiler.runtime.tensors import Array
from compiler.verify.compare import compare

_TOLERANCE = 1e-3
"""Of a value's scale: far above rounding, below what anybody reduces a model for."""

T = TypeVar("T")
Run = Callable[[], Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs programs in interpreters; one that takes longer than `seconds`, if there are any, has no end."""

    seconds: float | None = None

    @property
    def fault(self) -> str:
        """What is said of a program that differs: it is the subject of the sentence."""
        return "computes something else" if self.seconds is None else "does not end"

    def differ(self, run: Run, wanted: Mapping[str, Array]) -> bool:
        """Whether a run gives another result, has no end, or cannot be made at all."""
        try:
            with _limited(self.seconds):
                got = run()
        except (MemoryError, BuildError):
            raise
        except Exception:  # noqa: BLE001 - a program that no interpreter can run has lost its meaning
            return True
        return any(differs(got[name], array) for name, array in wanted.items())

    def first_bad(
        self,
        made: Sequence[tuple[str, T]],
        run: Callable[[T], Mapping[str, Array]],
        wanted: Mapping[str, Array],
    ) -> str | None:
        """The name of the first of several steps after which it differs; None where the last does not."""

        def is_bad(count: int) -> bool:
            return self.differ(lambda: run(made[count - 1][1]), wanted)

        if not made or not is_bad(len(made)):
            return None
        return made[smallest_prefix(len(made), is_bad) - 1][0]


def differs(got: Array, wanted: Array) -> bool:
    """Whether an array is another one, by more than rounding."""
    if got.shape != wanted.shape:
        return True
    found = compare("", np.asarray(got).astype(wanted.dtype), np.asarray(wanted), _TOLERANCE)
    return not found.passed


@contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError in what takes longer; of the main thread, in Python."""
    if seconds is None:
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
