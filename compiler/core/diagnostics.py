"""What goes wrong, in the user's words: one exception tree, one exit code each.

A `TkError` answers four questions: what happened, where, why, and what to do about it. Only the command line
turns it into text and an exit code; library users catch the classes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum

from compiler.core.visible import cut_numbers, cut_text, visible

_LONGEST_WORD = 200


class ExitCode(IntEnum):
    """Exit codes of `tk`; a stable part of its contract."""

    OK = 0
    DIFFERENCES = 1
    USAGE = 2
    BAD_INPUT = 3
    HOST = 4
    BUILD = 5
    WRONG_RESULT = 6
    CRASHED = 7
    INTERNAL = 70


class TkError(Exception):
    """An error that a user can understand and act on.

    `what` is one sentence without a final period; `where` names the file, node or option; `why` gives the
    limit and the value that broke it; `hint` says what to do next. Empty fields are left out when shown.
    """

    default_code: ExitCode = ExitCode.INTERNAL

    def __init__(
        self, what: str, *, where: str = "", why: str = "", hint: str = "", code: ExitCode | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint
        self.code = self.default_code if code is None else code

    def lines(self) -> list[str]:
        """The error as it is shown: `error: ...`, then the filled fields, each on a line of its own."""
        return [f"{'error' if name == 'what' else name}: {text}" for name, text in self.fields() if text]

    def fields(self) -> tuple[tuple[str, str], ...]:
        """What, where, why and hint as they may be shown: nothing commands a terminal or goes on forever.

        Only `why` and `hint` may have several lines.
        """
        return (
            ("what", cut_numbers(cut_text(visible(self.what)))),
            ("where", cut_numbers(cut_text(visible(self.where)))),
            ("why", cut_numbers(visible(self.why, keep="\n\t"))),
            ("hint", cut_numbers(visible(self.hint, keep="\n\t"))),
        )

    def __str__(self) -> str:
        return "\n".join(self.lines()).removeprefix("error: ")

    def __reduce__(self) -> tuple[object, ...]:
        """Copy with all fields, also across process pools, which rebuild exceptions from their arguments."""
        return (_rebuild, (type(self), self.what, self.where, self.why, self.hint, self.code))


def _rebuild(kind: type[TkError], what: str, where: str, why: str, hint: str, code: ExitCode) -> TkError:
    error = kind.__new__(kind)
    TkError.__init__(error, what, where=where, why=why, hint=hint, code=code)
    return error


class UsageError(TkError):
    """The command or call itself is wrong: an unknown name, a missing or contradicting option."""

    default_code = ExitCode.USAGE


class BadInputError(TkError):
    """A file or tensor handed in cannot be used: broken, truncated, unsupported, of the wrong shape."""

    default_code = ExitCode.BAD_INPUT


class HostError(TkError):
    """This machine lacks something: a program, a library, a CPU feature, space, a permission."""

    default_code = ExitCode.HOST


class LimitError(HostError):
    """Something took more time or memory than it was given, and was ended."""


class BuildError(TkError):
    """A compiler or linker that we started refused our text."""

    default_code = ExitCode.BUILD


class WrongResultError(TkError):
    """A result differs from its reference by more than the tolerance."""

    default_code = ExitCode.WRONG_RESULT


class CrashError(TkError):
    """Code that we built ended by a signal or did not end in time."""

    default_code = ExitCode.CRASHED


class MemoryLimitError(CrashError):
    """A program held more memory than it was given."""


class DiskLimitError(CrashError):
    """A program wrote more to the disk than it was given; every message has the words `SAID`."""

    SAID = "wrote more than it may"


class InternalError(TkError):
    """A broken promise inside this project; always a defect worth a report."""

    default_code = ExitCode.INTERNAL


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Suggest the closest of `choices`: `did you mean 'x'?`, or the empty string when nothing is close."""
    if len(name) > _LONGEST_WORD:  # nobody mistypes that, and to compare it takes long
        return ""
    by_folded = {choice.casefold(): choice for choice in choices}
    matches = difflib.get_close_matches(name.casefold(), list(by_folded), n=1, cutoff=0.6)
    return f"did you mean {by_folded[matches[0]]!r}?" if matches else ""
