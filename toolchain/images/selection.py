"""What is said beside the name of an image. Imports nothing heavy, as `tk --help` imports it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compiler import UsageError

if TYPE_CHECKING:
    from toolchain.recipes.additions import Additions


LockMode = Literal["auto", "locked", "frozen"]
"""auto: a fresh section is used, a stale one is reported; locked: stale or missing is an error; frozen:
the section is used as it is, and what it does not pin is an error."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What decides, beside its name, which image is meant.

    site: in place of the usual site configuration. allow: rules that are waived on top of the site's. base: a
    local stand-in for the recipe's. lock: how the project's `tk.lock` counts; None: it does not.
    """

    site: Path | None = None
    archs: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    base: str | None = None
    additions: Additions | None = None
    lock: LockMode | None = "auto"


NO_SELECTION = Selection()


def lock_mode(*, locked: bool, frozen: bool) -> LockMode:
    """The mode that `--locked` and `--frozen` ask for; raises UsageError when both do."""
    if locked and frozen:
        raise UsageError("--locked and --frozen exclude each other", hint="--frozen is the stricter one")
    return "frozen" if frozen else "locked" if locked else "auto"
