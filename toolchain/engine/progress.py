"""How far a build has come: a line a step, on a terminal with the time left; what steps print is in the log.

The time left comes from the last build of the same image: what its steps took is kept by their text.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from pathlib import Path
from typing import Any, Self

from compiler import HostError, load_settings, visible, write_atomic
from toolchain import console, names
from toolchain.engine.events import Event, brief, is_work
from toolchain.settings import console_settings

_WIDTH = 100
_NUMBER = re.compile(r"^\[[^]]*\] ")
"""Of a step: another step before it changes that, and not what the step takes."""
_TELLS = 2.0  # seconds: shorter times left say nothing


class StepTimes:
    """Seconds that each step of an image took when it was last run, kept between builds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = _read(path)
        self._seen: dict[str, float] = {}
        self._left = dict(self.known)
        self._running: dict[str, tuple[str, float]] = {}

    def hear(self, event: Event, now: float) -> None:
        """Keep what an event says about the time that a step takes; `now` in seconds, of any clock."""
        if event.kind == "started" and is_work(event.text):
            self._running[event.step] = (_NUMBER.sub("", event.text), now)
        elif event.kind in ("done", "cached") and event.step in self._running:
            text, _ = self._running.pop(event.step)
            self._left.pop(text, None)
            self._seen[text] = event.seconds if event.kind == "done" else self.known.get(text, 0.0)

    def seconds_left(self, now: float) -> float | None:
        """About how many seconds more, if each step takes as long as last time; None without a last time."""
        if not self.known:
            return None
        began = dict(self._running.values())
        return sum(max(0.0, taken - (now - began.get(text, now))) for text, taken in self._left.items())

    def keep(self) -> None:
        """Write down what the steps of this build took; those that were cached keep what they took before."""
        with contextlib.suppress(HostError):  # a full disk costs the next build its estimate, no more
            write_atomic(self._path, json.dumps(self._seen, indent=0, sort_keys=True))


def step_times(name: str, builder: str) -> StepTimes:
    """The times of the image `name` with that builder on that engine, in the user's cache."""
    file = f"{names.file_name(name)}-{hashlib.sha256(builder.encode()).hexdigest()[:12]}.json"
    return StepTimes(load_settings().cache_dir / "build-times" / file)


class BuildDisplay:
    """Listens to one build and shows it on standard error; use it as a context."""

    def __init__(self, title: str, times: StepTimes) -> None:
        self._title = title
        self._times = times
        self._began = time.monotonic()
        self._texts: dict[str, str] = {}
        self._lock = threading.Lock()
        self._last = ""
        self._live: Any = None

    def __enter__(self) -> Self:
        if console_settings().interactive:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                self, console=Console(stderr=True, highlight=False), refresh_per_second=4, transient=True
            )
            self._live.start()
        else:
            console.talk(f"building {self._title}")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Show an event; safe from any thread."""
        with self._lock:
            self._times.hear(event, time.monotonic())
            if event.kind == "started":
                self._texts[event.step] = event.text
        if self._live is None:
            self._show_plainly(event)
        else:
            self._show_live(event)

    def __rich__(self) -> Any:
        """The last line: what runs, since when, what it said last, and the time left."""
        from rich.text import Text

        now = time.monotonic()
        with self._lock:
            left = self._times.seconds_left(now)
            text = f"{self._title}: {duration(now - self._began)}"
        if left is not None and left > _TELLS:
            text += f", about {duration(left)} left"
        return Text(f"{text}  {self._last}", no_wrap=True, overflow="ellipsis")

    def _show_plainly(self, event: Event) -> None:
        if event.kind == "started" and is_work(event.text):
            console.talk(brief(event.text)[:_WIDTH])
        elif event.kind == "output" and not event.step:
            console.talk(event.text)  # of the build as a whole: which builder is taken, and why

    def _show_live(self, event: Event) -> None:
        text = self._texts.get(event.step, "")
        if event.kind in ("started", "output"):
            self._last = visible(brief(event.text))
        elif is_work(text):
            took = {"done": f"{event.seconds:6.1f} s", "cached": "  cached", "failed": "  FAILED"}[event.kind]
            line = f"{took}  {visible(brief(text))}"[:_WIDTH]
            self._live.console.print(line, markup=False, highlight=False)


def duration(seconds: float) -> str:
    """Seconds for people: `12 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _read(path: Path) -> dict[str, float]:
    """What was kept; nothing when it is missing or broken, as it is a mere estimate."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(text): float(taken) for text, taken in found.items()}
    return {}
