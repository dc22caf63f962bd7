"""Yes, no or not known, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compiler.core.diagnostics import TkError


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether something is so.

    reason: what was found, or what is missing. fix: how to get what is missing.
    """

    answer: Literal["yes", "no", "not known"]
    reason: str
    fix: str = ""

    def __bool__(self) -> bool:
        """Whether it is known to be so."""
        return self.answer == "yes"


def yes(reason: str) -> Answer:
    """It is so."""
    return Answer("yes", reason)


def no(reason: str, fix: str = "") -> Answer:
    """It is not so."""
    return Answer("no", reason, fix)


def not_known(reason: str) -> Answer:
    """Nobody can tell before it is tried."""
    return Answer("not known", reason)


def refusal(error: TkError) -> Answer:
    """What an error says, as an answer."""
    return Answer("no", error.what, error.hint)
