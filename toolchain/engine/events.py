"""What happens in a build, read from the logs of BuildKit, of Docker's classic builder and of podman.

BuildKit's plain log: github.com/moby/buildkit, util/progress/progressui/printer.go. Each line begins with the
number of its step; the same step may come up again and again, as steps run side by side.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to the step `step`, a name that is unique in its build.

    `started` has the step's instruction in `text`, `output` a line of what it prints, `failed` what went
    wrong; `done` and `cached` end a step, with its `seconds`.
    """

    kind: Literal["started", "output", "done", "cached", "failed"]
    step: str
    text: str = ""
    seconds: float = 0.0


Listener = Callable[[Event], None]

_BUILDKIT = re.compile(r"#(\d+) (.*)")
_BUILDKIT_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BUILDKIT_DONE = re.compile(r"DONE ([\d.]+)s")
_BUILDKIT_OUTPUT = re.compile(r"(\d+\.\d+) (.*)")
_STEP = re.compile(r"(?:\[(\d+/\d+)\] )?(?:Step|STEP) (\d+)/(\d+) ?: (.*)")
_CLASSIC_NOISE = re.compile(
    r"( ---> |Removing intermediate container |Successfully (built|tagged) |--> |\[?\d*/?\d*\]? ?COMMIT )"
)
_MOUNT = re.compile(r"--mount=\S+\s*")


class BuildKitLog:
    """Reads BuildKit's plain log line by line."""

    def __init__(self, listener: Listener) -> None:
        self._tell = listener
        self._texts: dict[str, str] = {}

    def __call__(self, line: str) -> None:
        """Read one line; lines that belong to no step, as the summary of a failure, tell nothing."""
        match = _BUILDKIT.fullmatch(line)
        if match is None:
            return
        step, text = match[1], match[2]
        if step not in self._texts:
            self._texts[step] = text
            self._tell(Event("started", step, text))
        elif text != self._texts[step] and not _BUILDKIT_DIGEST.fullmatch(text):
            self._tell(_buildkit_event(step, text))


def _buildkit_event(step: str, text: str) -> Event:
    if done := _BUILDKIT_DONE.fullmatch(text):
        return Event("done", step, seconds=float(done[1]))
    if text == "CACHED":
        return Event("cached", step)
    if text == "CANCELED" or text.startswith("ERROR"):
        return Event("failed", step, text)
    output = _BUILDKIT_OUTPUT.fullmatch(text)
    return Event("output", step, output[2] if output else text)


class StepLog:
    """Reads the log of builders that do one step after the other: Docker's classic one, and podman."""

    def __init__(self, listener: Listener, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = listener
        self._clock = clock
        self._step = ""
        self._began = 0.0
        self._cached = False

    def __call__(self, line: str) -> None:
        match = _STEP.fullmatch(line)
        if match is not None:
            self.finish()
            self._step = f"{match[1] or ''} {match[2]}/{match[3]}".strip()
            self._began, self._cached = self._clock(), False
            self._tell(Event("started", self._step, f"[{match[2]}/{match[3]}] {match[4]}"))
        elif "Using cache" in line and _CLASSIC_NOISE.match(line):
            self._cached = True
        elif self._step and line and not _CLASSIC_NOISE.match(line):
            self._tell(Event("output", self._step, line))

    def finish(self) -> None:
        """The running step has ended well, if there is one."""
        if self._step:
            kind: Literal["done", "cached"] = "cached" if self._cached else "done"
            self._tell(Event(kind, self._step, seconds=self._clock() - self._began))
            self._step = ""

    def fail(self, why: str) -> None:
        """The running step has failed."""
        self._tell(Event("failed", self._step, why))
        self._step = ""


def brief(text: str) -> str:
    """A step's instruction in one line, without what says how it is run."""
    return " ".join(_MOUNT.sub("", text).split())


def is_work(text: str) -> bool:
    """Whether a step is an instruction of the Dockerfile, not the builder's own preparation."""
    return not text.startswith(("[internal]", "[auth]", "exporting", "importing", "copy /context", "resolve"))


def split_lines(parts: Iterator[str]) -> Iterator[str]:
    """Lines of a text that comes in parts, whatever their borders."""
    rest = ""
    for part in parts:
        *lines, rest = (rest + part).split("\n")
        yield from (line.rstrip("\r") for line in lines)
    if rest:
        yield rest
