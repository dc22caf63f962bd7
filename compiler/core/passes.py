"""A pass is a named function from program to program; a pipeline is a tuple of them, run in order.

Observers see every pass: that one hook is enough for dumps, timings and verifying between passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


# No slots: Python 3.11 fails on `Pass[X](...)` for frozen classes with slots.
@dataclass(frozen=True)
class Pass(Generic[T]):
    """One step of a pipeline; `run` returns the same object when it changed nothing.

    optional: the pipeline makes a right program without it, too.
    """

    name: str
    run: Callable[[T], T]
    optional: bool = False


@dataclass(frozen=True)
class PassEvent(Generic[T]):
    """What an observer is told after a pass: its name, the program before and after, and wall seconds."""

    name: str
    before: T
    after: T
    seconds: float

    @property
    def changed(self) -> bool:
        return self.before is not self.after


def run_passes(
    passes: Iterable[Pass[T]], program: T, observers: Sequence[Callable[[PassEvent[T]], None]] = ()
) -> T:
    """Apply the passes in order and tell every observer after each.

    Whatever a pass or observer raises goes on to the caller, with the name of the pass as a note.
    """
    for step in passes:
        started = time.perf_counter()
        try:
            result = step.run(program)
            event = PassEvent(step.name, program, result, time.perf_counter() - started)
            for observe in observers:
                observe(event)
        except Exception as error:
            error.add_note(f"in pass {step.name}")
            raise
        program = result
    return program
