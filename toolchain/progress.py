"""A bar with the time left, on an interactive terminal, for work that takes more than two seconds.

Drawn by rich, which is imported only when there is something to draw: quick commands do not pay for it.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import compiler
from toolchain import console
from toolchain.settings import ConsoleSettings, console_settings

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Unit = Literal["steps", "part", "bytes"]
"""What is counted: things, a share of the whole, or bytes."""

_PATIENCE_SECONDS = 2.0
_FRAME_SECONDS = 0.5  # few frames: measurements run meanwhile
_BAR_WIDTH = 24


@contextlib.contextmanager
def progress_bar(doing: str, unit: Unit = "steps") -> Iterator[compiler.Progress]:
    """Show on an interactive terminal, after two seconds, what is being waited for and for how long still.

    Gives what the work is to call to tell how far it has come; without a terminal that tells nobody.
    """
    settings = console_settings()
    if not settings.interactive:
        yield compiler.silent
        return
    bar = ProgressBar(doing, unit, settings, _PATIENCE_SECONDS)
    bar.start()
    try:
        yield bar
    finally:
        bar.close()


@dataclass(frozen=True, slots=True)
class Phase:
    """How far one phase has come; times are of the monotonic clock, a total of 0 is unknown."""

    doing: str
    done: float
    total: float
    started: float
    told: float

    def seconds_left(self, now: float) -> float | None:
        """Seconds to the end of the phase if it goes on as until now; None when nobody can say."""
        if not self.total or not self.done:
            return None
        needed = (self.told - self.started) * self.total / self.done
        return max(0.0, self.started + needed - now)


class ProgressBar:
    """Shows how far `title` has come, after `patience` seconds; call it to tell, from any thread."""

    def __init__(self, title: str, unit: Unit, settings: ConsoleSettings, patience: float) -> None:
        self._title = title
        self._unit: Unit = unit
        self._settings = settings
        self._patience = patience
        now = time.monotonic()
        self._state = Phase("", 0, 0, now, now)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __call__(self, doing: str, done: float, total: float) -> None:
        """Tell that `done` of `total` of the phase `doing` is done."""
        now = time.monotonic()
        started = self._state.started if doing == self._state.doing else now
        self._state = Phase(doing, done, total, started, now)

    def start(self) -> None:
        """Begin to wait, and then to show."""
        self._thread.start()

    def close(self) -> None:
        """Take the bar away and leave the line empty."""
        self._over.set()
        self._thread.join()

    def _show(self) -> None:
        if self._over.wait(self._patience):
            return
        with contextlib.suppress(OSError):  # the terminal is gone: nobody to show it to
            self._draw()

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        screen = Console(file=sys.stderr, force_terminal=True, no_color=not self._settings.color)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(_BAR_WIDTH),
            TextColumn("{task.fields[count]}", markup=False),
            TextColumn("{task.fields[left]}", markup=False),
        )
        with Progress(
            *columns, console=screen, auto_refresh=False, transient=True, redirect_stdout=False
        ) as bar:
            shown, task = None, None
            while True:
                state = self._state
                if task is None or shown is None or shown.doing != state.doing:
                    task = self._begin(bar, state, task)
                shown = state
                bar.update(task, completed=state.done, count=self._count(state), left=_left(state))
                bar.refresh()
                if self._over.wait(_FRAME_SECONDS):
                    return

    def _begin(self, bar: Progress, state: Phase, before: TaskID | None) -> TaskID:
        if before is not None:
            bar.remove_task(before)
        doing = f"{self._title}: {state.doing}" if state.doing else self._title
        return bar.add_task(doing, total=state.total or None, count=self._count(state), left=_left(state))

    def _count(self, state: Phase) -> str:
        return count_text(state, self._unit)


def count_text(state: Phase, unit: Unit) -> str:
    """`12 of 57`, `43 %` or `1.5 MB of 2.0 MB`; empty when there is nothing to count."""
    if unit == "bytes":
        of = f" of {console.size(state.total)}" if state.total else ""
        return console.size(state.done) + of if state.done else ""
    if not state.total:
        return ""
    if unit == "part":
        return f"{100 * state.done / state.total:.0f} %"
    return f"{math.floor(state.done)} of {state.total:.0f}"


def _left(state: Phase) -> str:
    now = time.monotonic()
    left = state.seconds_left(now)
    return _time(now - state.started) if left is None else f"{_time(left)} left"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
