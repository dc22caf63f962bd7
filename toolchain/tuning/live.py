"""What is seen while a search goes on: a live table on a terminal, plain lines elsewhere; its folder."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import compiler
from toolchain import console
from toolchain.settings import console_settings
from toolchain.tuning.words import HEADER, by_time, kernel_row

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

_QUIET_SECONDS = 10.0
"""Between two plain lines."""
_FRAMES_PER_SECOND = 2  # few frames: measurements run meanwhile
_MOST_ROWS = 20


class Watcher:
    """Shows how a search gets on; `folder` gets a log for each kernel, and a page at the end."""

    def __init__(self, model: Path, folder: Path | None, live: Live | None) -> None:
        self._model, self._folder, self._live = model, folder, live
        self._said = 0.0
        self._records: list[compiler.TuningRecord] = []

    def progress(self, doing: str, done: float, total: float) -> None:
        """What is done beside the measurement of candidates."""
        if self._live is not None:
            part = f" {done:.0f} of {total:.0f}" if total > 1 else ""
            self._live.update(f"{self._model.name}: {doing}{part}")

    def on_record(self, record: compiler.TuningRecord) -> None:
        """A candidate was tried."""
        if self._folder is not None:
            self._records.append(record)

    def on_batch(self, state: compiler.TuneState) -> None:
        """A batch was tried."""
        if self._live is not None:
            self._live.update(_screen(state))
        elif time.monotonic() - self._said >= _QUIET_SECONDS:
            self._said = time.monotonic()
            console.talk(f"{self._model.name}: {_whole(state)}; {compiler.visible(state.event)}")

    def finish(self, report: compiler.TuneReport) -> None:
        """Write the folder, if one is wanted."""
        if self._folder is not None:
            from toolchain.tuning.page import write_tuning_folder

            write_tuning_folder(self._folder, self._model, report, self._records)


@contextlib.contextmanager
def watching(request: compiler.TuneRequest, folder: Path | None) -> Iterator[Watcher]:
    """A watcher that draws on an interactive terminal, and talks elsewhere."""
    settings = console_settings()
    if not settings.interactive:
        yield Watcher(request.model, folder, None)
        return
    from rich.console import Console
    from rich.live import Live

    screen = Console(file=sys.stderr, force_terminal=True, no_color=not settings.color)
    with Live(console=screen, refresh_per_second=_FRAMES_PER_SECOND, transient=True) as live:
        yield Watcher(request.model, folder, live)


def _screen(state: compiler.TuneState) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(HEADER):
        table.add_column(name, justify="left" if number in (0, len(HEADER) - 1) else "right", no_wrap=True)
    kernels = by_time(state.kernels)
    for one in kernels[:_MOST_ROWS]:
        table.add_row(*map(Text, kernel_row(one)))
    more = len(kernels) - _MOST_ROWS
    rest = [Text(f"and {more} more")] if more > 0 else []
    return Group(table, *rest, Text(_whole(state)), Text(compiler.visible(state.event)))


def _whole(state: compiler.TuneState) -> str:
    """The network's predicted latency, and the time left."""
    predicted = f"kernels {state.predicted * state.untuned_ms:.4g} of {state.untuned_ms:.4g} ms predicted"
    left = "" if state.seconds_left is None else f", {_time(state.seconds_left)} left"
    saved = f"{100 * (1 - state.predicted):.1f} % less"
    return f"{state.trials} tried in {_time(state.seconds)}{left}; {predicted} ({saved})"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
