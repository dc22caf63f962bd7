"""A pass is a named function from program to program; a pipeline is a tuple of them, run in order.

Observers see every pass: that one hook is enough for dumps, timings and verifying between passes. A pass that
changes a program place by place can be told to stop after so many, which finds the place where it goes wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, runtime_checkable

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


@dataclass(slots=True)
class Applications:
    """How often one pass was applied in a compile, and how often it may be: None for any number.

    last: what it was applied to the last time.
    """

    most: int | None = None
    count: int = 0
    last: str = ""

    @property
    def are_left(self) -> bool:
        """Whether it may be applied once more."""
        return self.most is None or self.count < self.most

    def add(self, what: str) -> None:
        """Count an application."""
        self.count, self.last = self.count + 1, what

    def are_all(self, what: str) -> None:
        """What the pass did to a whole model is one application, however often that is asked."""
        self.count, self.last = 1, what


@runtime_checkable
class PlaceByPlace(Protocol[T]):
    """What a pass runs that changes a program in one place after the other, each an application."""

    def within(self, program: T, applications: Applications) -> T:
        """Change as many places as may be; each is counted, and nothing is looked at behind the last."""
        ...


@dataclass(slots=True)
class Limits:
    """The applications of all passes of one compile; `most` limits those of some, by their names."""

    most: Mapping[str, int] = field(default_factory=dict)
    made: dict[str, Applications] = field(default_factory=dict)

    def of(self, name: str) -> Applications:
        """The applications of a pass."""
        return self.made.setdefault(name, Applications(self.most.get(name)))

    def run(self, step: Pass[T], program: T, what: str) -> T:
        """Run a pass as far as it may; to all of a program, which is called `what`, it is applied once."""
        applications = self.of(step.name)
        run: object = step.run
        if isinstance(run, PlaceByPlace):
            made: T = run.within(program, applications)
            return made
        if not applications.are_left:
            return program
        result = step.run(program)
        if result is not program:
            applications.add(what)
        return result


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
    passes: Iterable[Pass[T]],
    program: T,
    observers: Sequence[Callable[[PassEvent[T]], None]] = (),
    limits: Limits | None = None,
    what: str = "",
) -> T:
    """Apply the passes in order and tell every observer after each; `limits` counts what is done to `what`.

    Whatever a pass or observer raises goes on to the caller, with the name of the pass as a note.
    """
    for step in passes:
        started = time.perf_counter()
        try:
            result = step.run(program) if limits is None else limits.run(step, program, what)
            event = PassEvent(step.name, program, result, time.perf_counter() - started)
            for observe in observers:
                observe(event)
        except Exception as error:
            error.add_note(f"in pass {step.name}")
            raise
        program = result
    return program
