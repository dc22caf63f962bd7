"""The one place in `toolchain/` that reads the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How to talk: colour or not, and whether a person watches."""

    color: bool
    interactive: bool


def console_settings(stream: TextIO | None = None, env: Mapping[str, str] | None = None) -> ConsoleSettings:
    """Decide from the stream (by default standard error) and NO_COLOR, FORCE_COLOR, TERM (no-color.org)."""
    source = os.environ if env is None else env
    interactive = (sys.stderr if stream is None else stream).isatty() and source.get("TERM") != "dumb"
    forced = bool(source.get("FORCE_COLOR"))
    return ConsoleSettings(
        color=not source.get("NO_COLOR") and (forced or interactive), interactive=interactive
    )
