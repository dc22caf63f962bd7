"""What a step of a schedule raises when it refuses."""

from __future__ import annotations

from compiler.core.diagnostics import ExitCode, TkError


class ScheduleError(TkError):
    """A primitive refuses: what was asked, of which loop or block, why not, and what to do instead."""

    default_code = ExitCode.USAGE
